"""A plan's bytes are those of the index that is then built; its choices are the ones asked for."""

import json
import os
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from crossbyte import CMCQ, Index
from crossbyte.compute.executor import SAMPLE_ROWS
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput, NoPlan, NotCalibrated
from crossbyte.index.plan import pilot
from crossbyte.index.plan.pilot import AddTimes, FitTimes, WholeFit, _ElapsedTime, _TimedFit
from crossbyte.index.plan.plan import plan

N = 600
NEARLY = {"rel": 0.02, "abs": 4096}  # a page more or less


class Point(NamedTuple):
    n_bytes: int
    recall: float
    by_size: list = [(100, 0.0), (100_000, 0.0)]

    def recall_at(self, n_items):
        return self.recall - n_items / 1e6 if n_items <= self.by_size[-1][0] else None


CURVE = [Point(2, 0.3), Point(4, 0.5), Point(8, 0.6), Point(16, 0.62)]


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    """Most tests ask for bytes; the pilots that take times would only make them slow."""
    monkeypatch.setattr(pilot, "time_fits", lambda *_: (times(alternate=(1.0, 0.001)), None))
    monkeypatch.setattr(pilot, "time_adding", lambda *_: NO_ADD)


class Reported(CMCQ):
    """Stands in for a calibrated model."""

    report_ = SimpleNamespace(curve=CURVE)


def pairs():
    return make_pairs(N, 24, 40, random_state=0)


def model(n_bits=16, **params):
    return CMCQ(n_bits, **({"mapping": "cca", "max_iter": 2, "n_atoms": 32, "random_state": 0} | params))


def planned(**asked):
    images, texts, _ = pairs()
    return plan(images, texts, **({"items": N, "model": model()} | asked))


def payloads(n):
    rng = np.random.default_rng(0)
    return [
        {
            "title": f"number {rng.integers(10**6)} of many",
            "year": int(rng.integers(1990, 2026)),
            "kind": "ab"[i % 2],
        }
        for i in range(n)
    ]


def built(path, parameters, sides, ids, bodies):
    """Bytes on disk and in memory of the real index, the model's included."""
    images, texts, _ = pairs()
    fitted = parameters.fit(images, texts)
    features = {"images": images, "texts": texts}
    given = {name: features[name] for name in sides}
    with Index.create(path, fitted) as index:
        index.add(ids, **given, payloads=bodies)
    with Index.open(path) as index:
        memory = index.stats()["memory"]["bytes"]["total"] + len(fitted.to_bytes())
    return os.path.getsize(path), memory


CASES = {
    "pairs": ({}, "both", ("images", "texts")),
    "images": ({}, "image", ("images",)),
    "texts": ({"n_bits": 32}, "text", ("texts",)),
    "stored cross term": ({"cross_term": "stored"}, "both", ("images", "texts")),
    "two codes": ({"scoring": "unit", "cross_term": "constant"}, "both", ("images", "texts")),
    "two codes, more bits than dimensions": ({"scoring": "unit", "n_bits": 32}, "both", ("images", "texts")),
    "sparse": ({"mapping": "sparse"}, "both", ("images", "texts")),
    "own dimensions": ({"n_components": 10}, "both", ("images", "texts")),
    "more bits than dimensions": ({"n_bits": 32}, "both", ("images", "texts")),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_payloads", [False, True])
def test_bytes_are_those_of_the_real_index(tmp_path, case, with_payloads):
    params, sides, names = CASES[case]
    bodies = payloads(N) if with_payloads else None
    ids = [f"document-{i}" for i in range(N)] if with_payloads else range(N)
    found = planned(model=model(**params), sides=sides, payloads=bodies, ids=list(ids))
    disk, memory = built(tmp_path / "a.cb", model(**params), names, ids, bodies)
    assert found.disk["total"] == pytest.approx(disk, **NEARLY)
    assert found.memory["total"] == pytest.approx(memory, **NEARLY)


@pytest.mark.parametrize(("mapping", "n_bits"), [("cca", 32), ("cca", 64), ("sparse", 32)])
def test_bytes_of_other_widths_come_from_one_pilot(tmp_path, mapping, n_bits):
    width = next(one for one in planned(model=model(16, mapping=mapping)).widths if one.n_bits == n_bits)
    real = model(n_bits, mapping=mapping)
    disk, memory = built(tmp_path / "a.cb", real, ("images", "texts"), range(N), None)
    assert width.disk["total"] == pytest.approx(disk, **NEARLY)
    assert width.memory["total"] == pytest.approx(memory, **NEARLY)


@pytest.mark.parametrize(("pilot_bits", "n_bits"), [(16, 64), (64, 32)])
def test_long_codes_have_more_dimensions(pilot_bits, n_bits):
    """Features as wide as that let a model have 128 dimensions, or 256 from 64 bits on."""
    images, texts, _ = make_pairs(N, 270, 280, random_state=0)
    asked = {"items": N, "model": model(pilot_bits, memory=0, max_iter=1)}
    width = next(one for one in plan(images, texts, **asked).widths if one.n_bits == n_bits)
    real = model(n_bits, memory=0, max_iter=1).fit(images, texts)
    assert real.n_components_ == (128 if n_bits < 64 else 256)
    assert width.disk["model"] == pytest.approx(len(real.to_bytes()), rel=0.02)


@pytest.mark.parametrize(("scoring", "sides"), [("likelihood", ["document"]), ("unit", ["image", "text"])])
def test_bytes_grow_with_items_and_training_pairs(tmp_path, scoring, sides):
    """By one code of each document and of each fitted pair, or by two."""
    given, n_bytes = model(scoring=scoring, memory=0), 2 * len(sides)  # whether it remembers, a fit decides
    small, large = planned(items=1000, model=given), planned(items=101_000, train=10 * N, model=given)
    assert large.disk["codes"] - small.disk["codes"] == 100_000 * n_bytes
    assert large.disk["ids"] - small.disk["ids"] == 100_000 * 8
    assert large.disk["model"] - small.disk["model"] == 9 * N * n_bytes
    images, texts, _ = pairs()
    codes = np.zeros((101_000, 2), np.uint8)
    with Index.create(tmp_path / "a.cb", given.fit(images, texts)) as index:
        index.add(range(101_000), **{f"{side}_codes": codes for side in sides})
    expected = large.disk["total"] - 9 * N * n_bytes
    assert os.path.getsize(tmp_path / "a.cb") == pytest.approx(expected, **NEARLY)


# Choosing


def test_without_a_wish_the_bits_are_the_models():
    found = planned(model=model(24))
    assert found.n_bits == 24 and [width.n_bits for width in found.widths] == [16, 24, 32, 64, 128]
    assert found.recall is None and found.train == N


def test_the_most_bits_in_a_budget():
    widths = {width.n_bits: width for width in planned().widths}
    assert planned(max_disk=widths[64].disk["total"]).n_bits == 64
    assert planned(max_disk=widths[64].disk["total"] - 1).n_bits == 32
    assert planned(max_memory=widths[32].memory["total"], max_disk=10**12).n_bits == 32


def test_the_fewest_bits_for_a_recall():
    found = planned(min_recall=0.45, curve=CURVE)
    assert found.n_bits == 32 and found.recall == pytest.approx(0.5 - N / 1e6)
    assert planned(min_recall=0.45, curve=CURVE, items=60_000).n_bits == 64  # 0.44 is not enough any more


def test_a_calibrated_model_brings_its_curve():
    reported = Reported(16, mapping="cca", max_iter=1)
    assert planned(model=reported).recall == pytest.approx(0.3 - N / 1e6)
    assert planned(model=reported, min_recall=0.55).n_bits == 64
    assert planned(model=reported, min_recall=0.55, curve=CURVE[3:]).n_bits == 128


def test_a_fitted_model_says_how_long_its_document_is():
    images, texts, _ = pairs()
    fitted = model().fit(images, texts)
    fitted.random_state = 10**9
    assert planned(model=fitted).disk["model"] == pytest.approx(len(fitted.to_bytes()), rel=0.005)


def test_impossible_wishes_name_the_nearest():
    widths = {width.n_bits: width for width in planned().widths}
    with pytest.raises(NoPlan, match=rf"nearest is 16 bits.*{widths[16].disk['total']:,} bytes.*max_disk by"):
        planned(max_disk=1000)
    with pytest.raises(NoPlan, match=r"nearest is 64 bits.*max_memory by [\d,]+ bytes"):
        planned(n_bits=64, max_memory=widths[32].memory["total"])
    with pytest.raises(NoPlan, match=r"nearest is 128 bits with 0\.619.*min_recall=0\.61 or less"):
        planned(min_recall=0.9, curve=CURVE)
    with pytest.raises(NoPlan, match=r"recall@10 0\.55 fits.*nearest is 64 bits"):
        planned(min_recall=0.55, curve=CURVE, max_disk=widths[32].disk["total"])
    with pytest.raises(NoPlan, match="measured with 24 bits, only with 16, 32, 64, 128; leave n_bits out"):
        planned(n_bits=24, min_recall=0.1, curve=CURVE)
    with pytest.raises(NoPlan, match="no curve of recall by bytes; calibrate with a curve, or leave min_rec"):
        planned(min_recall=0.1, curve=[])


def test_advice_can_be_followed():
    """What is named as the nearest is reached, whichever way it would be rounded."""
    for recall in (0.6194, 0.29):
        curve = [Point(2, recall + N / 1e6)]
        with pytest.raises(NoPlan) as caught:
            planned(min_recall=0.99, curve=curve)
        advised = float(re.search(r"min_recall=([\d.]+) or less", str(caught.value))[1])
        assert recall - 0.01 < advised and planned(min_recall=advised, curve=curve).n_bits == 16


def test_no_recall_is_promised_beyond_the_measured_sizes():
    found = planned(items=100_001, curve=CURVE)
    assert found.recall is None and {width.recall for width in found.widths} == {None} and "–" in str(found)
    with pytest.raises(NoPlan, match="from 100 to 100,000 items.*among 100,001; calibrate with more pairs"):
        planned(items=100_001, min_recall=0.1, curve=CURVE)


@pytest.mark.parametrize("given", [None, model()])
def test_recall_needs_a_report(given):
    with pytest.raises(NotCalibrated, match="call calibrate"):
        planned(model=given, min_recall=0.5)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"items": 0}, "items"),
        ({"train": 1}, "train"),
        ({"n_bits": 12}, "multiple of 8"),
        ({"max_memory": 0}, "max_memory"),
        ({"max_disk": 1.5}, "max_disk"),
        ({"min_recall": 2, "curve": CURVE}, "min_recall"),
        ({"sides": "all"}, "sides"),
        ({"model": "cca"}, "expected a CMCQ"),
        ({"model": model(mapping="none")}, "mapping"),
        ({"payloads": [{}]}, "payloads"),
        ({"ids": ["a", "a"]}, "twice"),
    ],
)
def test_bad_input(asked, message):
    with pytest.raises(InvalidInput, match=message):
        planned(**asked)


def test_too_few_pairs():
    images, texts, _ = make_pairs(19, 8, 10, random_state=0)
    with pytest.raises(InvalidInput, match="at least 20, got 19"):
        plan(images, texts, items=100)


@pytest.mark.parametrize("mapping", ["cca", "sparse"])
def test_the_smallest_plan_and_its_progress(monkeypatch, mapping):
    monkeypatch.undo()  # with its pilots
    images, texts, _ = make_pairs(20, 8, 10, random_state=0)
    steps = []
    found = plan(
        images, texts, items=1, model=model(mapping=mapping), callback=lambda step: steps.append(step.done)
    )
    assert steps == [1, 2, 3, 4] and found.fit_seconds > 0 and found.add_seconds > 0


def test_words_and_dictionary():
    found = planned(items=2_000_000, curve=CURVE[:2], model=model(scoring="unit"))
    assert "2,000,000 documents (images and texts) of 16 bits a side" in str(found)
    assert "*     16" in str(found) and str(found).count("\n") >= 9
    one_code = planned(items=2_000_000, model=model())
    assert "2,000,000 documents (images and texts) of 16 bits a document" in str(one_code)
    assert (one_code.n_codes, found.n_codes) == (1, 2)
    assert 2 * one_code.disk["codes"] == found.disk["codes"]
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["n_bits"] == 16 and told["disk"] == found.disk and len(told["widths"]) == 4
    assert sum(size for name, size in told["disk"].items() if name != "total") == told["disk"]["total"]


# Times: only the arithmetic, never the clock


def times(mapping="cca", n_jobs=1, **seconds):
    """A fit whose stages take these (fixed, per row) seconds."""
    small, large = (
        _TimedFit(n, _ElapsedTime(1.0, 1.0, 0.5), {name: a + b * n for name, (a, b) in seconds.items()})
        for n in (1000, 8000)
    )
    return FitTimes(small, large, mapping, n_jobs)


time_fits = pilot.time_fits  # the real one; see no_clock


def fitted_sizes(monkeypatch, n, train, **params):
    """What is timed, and how many rows every fit on the way had."""
    sizes, fit = [], CMCQ.fit
    monkeypatch.setattr(CMCQ, "fit", lambda self, *pairs: sizes.append(len(pairs[0])) or fit(self, *pairs))
    images, texts, _ = make_pairs(n, 6, 8, random_state=0)
    found, fitted = time_fits(model(8, **params), images, texts, train, lambda _: None)
    return found, fitted, sizes


def test_a_quick_fit_is_run_as_it_is(monkeypatch):
    found, fitted, sizes = fitted_sizes(monkeypatch, 300, 300, max_iter=7)
    assert isinstance(found, WholeFit) and sizes == [300] and fitted.max_iter == 7
    assert found.seconds_at(300, NO_ADD) == found.seconds
    assert isinstance(fitted_sizes(monkeypatch, 2500, 2400)[0], WholeFit)


def test_a_fit_that_takes_long_is_broken_off_and_pilots_have_many_rows(monkeypatch):
    monkeypatch.setattr(pilot, "_WHOLE_BUDGET", 1e-9)
    found, fitted, sizes = fitted_sizes(monkeypatch, 3500, 3500)
    assert (
        isinstance(found, FitTimes)
        and found.one_code
        and sizes == [2048, 3500]
        and len(fitted.image_codes_) == 3500
    )
    assert fitted_sizes(monkeypatch, 300, 300)[2] == [300, 300, 150]  # broken off, then two pilots


def test_more_pairs_than_are_given_are_a_line(monkeypatch):
    found, _, sizes = fitted_sizes(monkeypatch, 300, 9000)
    assert isinstance(found, FitTimes) and sizes == [300, 150]


NO_ADD = AddTimes(0.0, 1000, _ElapsedTime(1.0, 1.0, 0.5), 1)


def test_a_line_goes_on_and_samples_end():
    found = times(alternate=(0.0, 0.001), codebooks=(0.0, 0.002))
    assert found.seconds_at(10_000, NO_ADD) == pytest.approx(10 + 20)
    assert found.seconds_at(100_000, NO_ADD) == pytest.approx(100 + 0.002 * SAMPLE_ROWS)
    one_code = replace(found, one_code=True)
    assert one_code.seconds_at(100_000, NO_ADD) == pytest.approx(0.003 * SAMPLE_ROWS)
    sparse = times("sparse", space=(0.0, 0.001))
    assert sparse.seconds_at(100_000, NO_ADD) == pytest.approx(0.001 * SAMPLE_ROWS + 100)


def test_time_for_any_number_of_rows_is_between_a_line_and_a_power():
    found = times(alternate=(2.0, 0.001))
    few, many = found.small.seconds["alternate"], found.large.seconds["alternate"]
    exponent = np.log(many / few) / np.log(found.large.n_rows / found.small.n_rows)
    line, power = 2 + 100, many * (100_000 / found.large.n_rows) ** exponent
    assert found.seconds_at(100_000, NO_ADD) == pytest.approx(np.sqrt(line * power))
    assert found.seconds_at(found.large.n_rows, NO_ADD) == pytest.approx(many)


def test_rounds_beyond_the_pilot_are_like_its_last():
    stages = pilot._Stages()
    stages.steps = {"alternate": [3.0, 1.0, 0.5, 0.5], "codebooks": [2.0]}
    stages.rounds = {"alternate": 1.0}
    assert stages.seconds(2, 10) == {"alternate": 5.0 + 8 * 1.0, "codebooks": 2.0}


def test_threads_share_blocks_but_not_the_main_threads_part():
    assert pilot._wall_seconds_per_cpu_second(4096, 0.4, 2) == 1.0
    assert pilot._wall_seconds_per_cpu_second(2 * 4096, 0.4, 2) == pytest.approx(0.7)
    assert pilot._wall_seconds_per_cpu_second(3 * 4096, 0.0, 2) == pytest.approx(2 / 3)
    # On the pilot's own size, what comes out is what was measured, whatever the shares.
    spent = _ElapsedTime(3.0, 5.0, 1.0)
    assert AddTimes(0.5, 8192, spent, 2).seconds_at(8192) == pytest.approx(3.5)


def test_small_fits_that_take_longer_do_not_bend_the_line_down():
    found = times(alternate=(9.0, -0.001))
    assert found.seconds_at(16_000, NO_ADD) > found.seconds_at(8000, NO_ADD)


def test_the_second_pilot_keeps_to_its_budget():
    assert pilot._second_size(2048, 100_000, 1.0) == 8192
    assert pilot._second_size(2048, 100_000, 5.0) == 7614
    assert pilot._second_size(2048, 100_000, 60.0) == 1024
    assert pilot._second_size(2048, 5000, 1.0) == 5000
