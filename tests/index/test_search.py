"""Searching an index: every kind of query against every target, and every option, beside brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte import Hits, Index
from crossbyte.errors import InvalidInput
from crossbyte.index.hits import Hit
from support.index_samples import COUNT, sample
from support.index_twin import TARGETS, Twin, compare_hits, features, small_model

IMAGES, TEXTS = features(6, seed=21)
QUERIES = {"images": IMAGES, "texts": TEXTS}


@pytest.fixture(scope="module", params=["constant", "stored"])
def made(request: Any, tmp_path_factory: Any) -> Iterator[tuple[Index, Twin]]:
    """An index with a history; no test writes to it."""
    path = tmp_path_factory.mktemp("search") / "i.cb"
    index, twin = sample(path, small_model(16, request.param))
    for target in (index, twin):
        target.delete(["p2", "i4", 6])
        target.upsert(["p3", "i5"], images=IMAGES[:2], payloads=[{"year": 1999, "kind": "a"}, None])
        target.update_payloads(
            ["p4", "p5", 7, "i6", "p6"],
            [{"year": 2004, "kind": "c"}, None, {"year": "late"}, {"year": [1, 2003]}, {"deep": {"n": -1}}],
        )
        target.update_payloads(["p4"], [{"year": 2003, "kind": "b", "new": True}])
        target.delete(["p5"])
    with index:
        yield index, twin


def both(made: tuple[Index, Twin], **options: Any) -> list[Hits]:
    """Compare the index with its twin, and give what was found."""
    index, twin = made
    keep = options.pop("keep", None)
    where = options.pop("where", None)
    found = index.search(**options, where=where)
    options["target"] = options.get("target") or ("text" if "images" in options else "image")
    compare_hits(found, twin.search(**options, keep=keep))
    return found


# Queries and targets


@pytest.mark.parametrize(("side", "target"), list(product(QUERIES, (*TARGETS, None))))
def test_every_query_against_every_target(made: tuple[Index, Twin], side: str, target: str | None) -> None:
    for k in (1, 3, 50, 1000):
        both(made, **{side: QUERIES[side]}, target=target, k=k)


@pytest.mark.parametrize("target", TARGETS)
def test_k_larger_than_the_database_gives_all(made: tuple[Index, Twin], target: str) -> None:
    index, twin = made
    having = {
        "image": [e.id for e in twin.entries.values() if e.image_code],
        "text": [e.id for e in twin.entries.values() if e.text_code],
        "document": list(twin.entries),
    }
    for k in (10**4, 10**30):
        hits = index.search(texts=TEXTS[0], target=target, k=k)[0]
        assert sorted(hits.ids, key=str) == sorted(having[target], key=str)


def test_a_query_may_come_alone(made: tuple[Index, Twin]) -> None:
    index, _ = made
    expected = [(hits.ids, hits.distances) for hits in index.search(texts=TEXTS, target="document")]
    for row, answer in zip(TEXTS, expected, strict=True):
        for query in (row, row[None], row.tolist(), row.astype(np.float64)):
            compare_hits(index.search(texts=query, target="document"), [answer])
    compare_hits(index.search(texts=np.asfortranarray(TEXTS), target="document"), expected)
    rows = sparse.csr_matrix(TEXTS)  # differs from dense rows in the last bits, but not with the batch
    expected = [(hits.ids, hits.distances) for hits in index.search(texts=rows)]
    for row, answer in zip(rows, expected, strict=True):
        compare_hits(index.search(texts=sparse.csr_matrix(row)), [answer])


def test_no_queries_have_no_answers(made: tuple[Index, Twin]) -> None:
    index, _ = made
    assert index.search(images=np.empty((0, 6))) == index.search(like=[]) == []


def test_many_queries_are_answered_like_single_ones(made: tuple[Index, Twin]) -> None:
    index, _ = made
    images = np.concatenate([features(400, seed=s)[0] for s in range(3)])  # more than fit into one turn
    batch = index.search(images=images, target="document", k=5, where="year >= 2001")
    for place in (0, 1, 500, 1023, 1024, 1199):
        single = index.search(images=images[place], target="document", k=5, where="year >= 2001")
        compare_hits(single, [(batch[place].ids, batch[place].distances)])


def test_hits_say_what_they_are(made: tuple[Index, Twin]) -> None:
    index, twin = made
    (hits,) = index.search(images=IMAGES[0], target="document", k=4, payloads=True)
    assert len(hits) == 4
    assert [hit.id for hit in hits] == hits.ids
    assert hits.numbers.tolist() == [twin.entries[key].number for key in hits.ids]
    first = next(iter(hits))
    assert first == Hit(hits.ids[0], float(hits.distances[0]), twin.entries[hits.ids[0]].payload)
    assert repr(hits).startswith(f"Hits(4: {hits.ids[0]!r}: ")
    assert "…" in repr(index.search(images=IMAGES[0], k=6)[0])
    (bare,) = index.search(images=IMAGES[0], k=4)
    assert bare.payloads is None
    assert next(iter(bare)).payload is None


def test_payloads_are_those_of_the_hits(made: tuple[Index, Twin]) -> None:
    index, twin = made
    for hits in index.search(texts=TEXTS, target="document", k=1000, payloads=True):
        assert hits.payloads == [twin.entries[key].payload for key in hits.ids]


# like


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("key", ["p1", "i1", 1, "p3"])
def test_a_document_can_be_the_question(made: tuple[Index, Twin], key: Any, target: str) -> None:
    found = both(made, like=key, target=target, k=20)
    assert len(found) == 1
    entry = made[1].entries[key]
    if target == "document" or entry.code(target) is not None:
        whole = made[0].search(like=key, target=target, k=1000)[0]
        assert key in whole.ids


@pytest.mark.parametrize(("key", "side"), [("p1", "image"), ("i1", "image"), (1, "text")])
def test_without_a_target_like_searches_its_own_side(made: tuple[Index, Twin], key: Any, side: str) -> None:
    index, twin = made
    compare_hits(index.search(like=key), twin.search(like=key, target=side))


@pytest.mark.parametrize("target", [*TARGETS, None])
def test_many_examples_are_answered_in_their_order(made: tuple[Index, Twin], target: str | None) -> None:
    index, _ = made
    keys = [1, "p1", "i1", "p0", 2, "i0", "p1"]
    single = [index.search(like=key, target=target)[0] for key in keys]
    for given in (keys, tuple(keys)):
        found = index.search(like=given, target=target)
        compare_hits(found, [(hits.ids, hits.distances) for hits in single])
    compare_hits(
        index.search(like=np.array([1, 2])), [(h.ids, h.distances) for h in index.search(like=[1, 2])]
    )


def test_an_example_of_a_removed_document_is_unknown(made: tuple[Index, Twin]) -> None:
    for key in ("p2", "p5", "1", "absent"):
        with pytest.raises(InvalidInput, match="no document"):
            made[0].search(like=key)


# where

FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "year = 2001": lambda p: p.get("year") == 2001,
    "year == 2001": lambda p: p.get("year") == 2001,
    "2001 <= year": lambda p: any(isinstance(v, int) and v >= 2001 for v in _values(p, "year")),
    "year != 2001": lambda p: bool(_values(p, "year")) and 2001 not in _values(p, "year"),
    "year <> 2001": lambda p: bool(_values(p, "year")) and 2001 not in _values(p, "year"),
    "year < 2001": lambda p: any(isinstance(v, int) and v < 2001 for v in _values(p, "year")),
    "year > 2002 AND kind = 'b'": lambda p: (
        any(isinstance(v, int) and v > 2002 for v in _values(p, "year")) and p.get("kind") == "b"
    ),
    "kind IN ('a', 'c')": lambda p: p.get("kind") in ("a", "c"),
    "kind NOT IN ('a', 'c')": lambda p: p.get("kind", "a") not in ("a", "c"),
    "score BETWEEN 1 AND 2.5": lambda p: 1 <= p.get("score", 0) <= 2.5,
    "score NOT BETWEEN 1 AND 2.5": lambda p: "score" in p and not 1 <= p["score"] <= 2.5,
    "title LIKE 'the sea%'": lambda p: p.get("title", "").startswith("The sea"),
    "title NOT LIKE '%sea _'": lambda p: "title" in p and p["title"][:-1] != "The sea ",
    "new IS NOT NULL": lambda p: "new" in p,
    "year IS NULL": lambda p: not _values(p, "year"),
    "good = TRUE": lambda p: p.get("good") is True,
    "NOT good = TRUE": lambda p: p.get("good") is not True,
    "tags = 't2'": lambda p: "t2" in p.get("tags", []),
    "deep.n >= 20 OR deep.n = -1": lambda p: (
        p.get("deep", {}).get("n", 0) >= 20 or p.get("deep") == {"n": -1}
    ),
    "year = 'late'": lambda p: p.get("year") == "late",
    "(year = 1999 OR new = TRUE) AND NOT kind = 'x'": lambda p: p.get("year") == 1999 or p.get("new") is True,
    "year > 3000": lambda p: False,
}


def _values(payload: dict[str, Any], field: str) -> list[Any]:
    value = payload.get(field)
    return [] if value is None else value if isinstance(value, list) else [value]


@pytest.mark.parametrize("where", FILTERS)
def test_filters_choose_by_payload(made: tuple[Index, Twin], where: str) -> None:
    for target in TARGETS:
        for k in (2, 1000):
            both(made, texts=TEXTS, target=target, k=k, where=where, keep=FILTERS[where])


def test_filters_work_on_a_reader_and_after_a_compaction(tmp_path: Path, made: tuple[Index, Twin]) -> None:
    index, twin = made
    index.backup(tmp_path / "copy.cb")
    with Index.open(tmp_path / "copy.cb", "rw") as copy, Index.open(tmp_path / "copy.cb") as reader:
        for handle in (reader, copy, copy):
            for where, keep in FILTERS.items():
                both((handle, twin), texts=TEXTS[:2], target="document", k=1000, where=where, keep=keep)
            copy.compact()


def test_answers_of_filters_are_kept_no_longer_than_a_generation(tmp_path: Path) -> None:
    index, twin = sample(tmp_path / "i.cb")
    with index:
        for year in (2003, 5):
            for target in (index, twin):
                target.update_payloads(["p1"], [{"year": year}])
                target.upsert(["p2"], texts=TEXTS[:1], payloads=[{"year": year}])
            options = {"texts": TEXTS, "target": "document", "k": 1000}
            for where, keep in {
                "year = 2003": lambda p: p.get("year") == 2003, "year = 5": lambda p: p.get("year") == 5
            }.items():  # fmt: skip
                both((index, twin), **options, where=where, keep=keep)


def test_more_filters_than_are_kept(made: tuple[Index, Twin]) -> None:
    for turn in range(2):
        for n in range(40):
            where, keep = f"deep.n = {n}", lambda p, n=n: p.get("deep") == {"n": n}
            both(made, images=IMAGES[:1], target="document", k=9, where=where, keep=keep)
            assert turn in (0, 1)


# max_distance and distinct


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_farther_than_the_limit_is_found(made: tuple[Index, Twin], target: str) -> None:
    whole = made[0].search(images=IMAGES[0], target=target, k=1000)[0].distances
    for limit in (
        *whole[[0, 5, 20, -1]].tolist(),
        whole[0] - 1,
        0,
        -1,
        float(whole[-1]) + 1,
        1e30,
        1e300,
        -1e300,
    ):
        found = both(made, images=IMAGES, target=target, k=12, max_distance=min(max(limit, -3e38), 3e38))
        again = made[0].search(images=IMAGES, target=target, k=12, max_distance=limit)
        compare_hits(again, [(hits.ids, hits.distances) for hits in found])
        assert all((hits.distances <= np.float32(min(max(limit, -3e38), 3e38))).all() for hits in found)


@pytest.mark.parametrize("target", TARGETS)
def test_a_group_counts_once(made: tuple[Index, Twin], target: str) -> None:
    for k, limit in product((1, 4, 9, 1000), (None, 1.0)):
        options = {"target": target, "k": k, "max_distance": limit, "distinct": "group"}
        for hits in both(made, images=IMAGES, **options) + both(made, texts=TEXTS, **options):
            groups = [made[1].entries[key].group for key in hits.ids]
            named = [label for label in groups if label is not None]
            assert len(set(named)) == len(named)
    where = "year >= 2002"
    keep = lambda p: any(isinstance(v, int) and v >= 2002 for v in _values(p, "year"))  # noqa: E731
    both(made, images=IMAGES, target=target, k=5, distinct="group", where=where, keep=keep)


def test_a_large_group_does_not_hide_the_others(tmp_path: Path) -> None:
    """The nearest thousand documents are one group: the search must look behind them."""
    model = small_model()
    code = model.encode_images(IMAGES[:1])
    far = np.random.default_rng(3).integers(0, 256, (40, 2), dtype=np.uint8)
    index, twin = Index.create(tmp_path / "i.cb", model, n_jobs=1), Twin(model)
    for target in (index, twin):
        target.add(range(1000), image_codes=np.repeat(code, 1000, axis=0), groups=["crowd"] * 1000)
        target.add([f"f{i}" for i in range(40)], image_codes=far, groups=[i % 20 for i in range(40)])
    with index:
        for k in (1, 2, 10, 21, 50):
            (hits,) = both((index, twin), images=IMAGES[:1], target="image", k=k, distinct="group")
            assert len(hits) == min(k, 21)


# rescore


def test_rescore_decides_the_order(made: tuple[Index, Twin]) -> None:
    index, _ = made
    seen: list[tuple[int, int, Any]] = []

    def backwards(query: int, hits: Hits) -> Any:
        seen.append((query, len(hits), hits.payloads))
        return -np.arange(len(hits))

    plain = index.search(images=IMAGES[:2], target="image", k=25)
    found = index.search(images=IMAGES[:2], target="image", k=5, rescore=backwards, candidates=25)
    assert [hits.ids for hits in found] == [hits.ids[::-1][:5] for hits in plain]
    assert [hits.distances.tolist() for hits in found] == [[-24, -23, -22, -21, -20]] * 2
    assert seen == [(0, 25, None), (1, 25, None)]
    index.search(images=IMAGES[:1], target="image", k=3, rescore=backwards)
    index.search(images=IMAGES[:1], target="image", k=3, rescore=backwards, payloads=True)
    assert seen[2] == (0, 30, None)
    assert len(seen[3][2]) == 30


def test_rescore_sees_all_candidates_and_the_options_look_at_its_distances(made: tuple[Index, Twin]) -> None:
    index, twin = made
    finer = lambda _, hits: hits.numbers.astype(float)  # noqa: E731
    options: dict[str, Any] = {"texts": TEXTS[:1], "target": "document", "rescore": finer, "candidates": 1000}
    (hits,) = index.search(**options, k=1000, max_distance=40)
    expected = [e.id for e in twin.entries.values() if e.number <= 40]
    assert hits.ids == expected
    (hits,) = index.search(**options, k=1000, distinct="group")
    seen: set[Any] = set()
    wanted = []
    for entry in twin.entries.values():
        if entry.group is None or entry.group not in seen:
            wanted.append(entry.id)
        seen.add(entry.group)
    assert hits.ids == wanted
    (hits,) = index.search(**options, k=4, payloads=True, where="new = TRUE")
    assert (hits.ids, hits.payloads) == (["p4"], [{"year": 2003, "kind": "b", "new": True}])


def test_equal_rescored_distances_are_in_the_order_of_numbers(made: tuple[Index, Twin]) -> None:
    index, _ = made
    (hits,) = index.search(
        texts=TEXTS[0], target="document", k=9, candidates=1000, rescore=lambda _, h: [1] * len(h)
    )
    assert hits.ids == index.ids()[:9]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _, hits: hits.distances[:-1], lambda _, hits: hits.distances[None], lambda _, hits: 1.0,
        lambda _, hits: None, lambda _, hits: ["x"] * len(hits), lambda _, hits: [True] * len(hits),
        lambda _, hits: [np.nan] * len(hits), lambda _, hits: [np.inf] * len(hits),
        lambda _, hits: [1j] * len(hits), lambda _, hits: [1e300] * len(hits),
        lambda _, hits: [[1], [1, 2]],
    ],
)  # fmt: skip
def test_bad_distances_from_rescore_are_refused(made: tuple[Index, Twin], wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="rescore"):
        made[0].search(images=IMAGES[0], rescore=wrong)


def test_an_error_in_rescore_comes_out(made: tuple[Index, Twin]) -> None:
    def fail(_: int, hits: Hits) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made[0].search(images=IMAGES[0], rescore=fail)


# Offsets of codings


class Offsets:
    """Stands for a calibration: says who asked, and favours some codings."""

    def __init__(self, values: dict[str, float]) -> None:
        self.values, self.asked = values, set[tuple[str, str, str]]()

    def offset(self, query: str, target: str, coding: str, n_items: int | None = None) -> float:
        self.asked.add((query, target, coding))
        return self.values.get(coding, 0.0)

    def knows(self, query: str, target: str, coding: str) -> bool:
        return False


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("side", QUERIES)
def test_offsets_are_added_before_documents_compete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, target: str
) -> None:
    index, twin = sample(tmp_path / "i.cb")
    values = {"pair": 0.3, "image": -0.7, "text": 1e-3}
    query = {side: QUERIES[side]}
    with index:
        plain = index.search(**query, target=target, k=1000)
        offsets = Offsets(values)
        monkeypatch.setattr(index.model, "_calibration", offsets)
        assert index.model.calibration_ is offsets
        for k in (1, 10, 1000):
            found = index.search(**query, target=target, k=k)
            compare_hits(found, [_shifted(hits, twin, values)[:2] for hits in _cut(plain, twin, values, k)])
    assert offsets.asked == {
        (side[:-1], target, c) for c in values if target in ("document", c) or c == "pair"
    }


def _shifted(hits: Hits, twin: Twin, values: dict[str, float]) -> tuple[list[Any], Any]:
    """Without their offsets, hits come as (ids, distances); with them, in the new order."""
    shift = np.array([values[twin.entries[key].coding] for key in hits.ids], np.float32)
    distances = hits.distances + shift
    order = np.lexsort((hits.numbers, distances))
    return [hits.ids[i] for i in order], distances[order]


def _cut(plain: list[Hits], twin: Twin, values: dict[str, float], k: int) -> list[Hits]:
    """Those of all hits that are among the first k once they are shifted, as they were."""
    chosen = []
    for hits in plain:
        ids = _shifted(hits, twin, values)[0][:k]
        rows = [i for i, key in enumerate(hits.ids) if key in ids]
        chosen.append(Hits([hits.ids[i] for i in rows], hits.distances[rows], hits.numbers[rows]))
    return chosen


def test_examples_ask_with_the_kind_of_their_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = sample(tmp_path / "i.cb")
    with index:
        offsets = Offsets({})
        monkeypatch.setattr(index.model, "_calibration", offsets)
        index.search(like=["p1", 1], target="image")
        assert {(query, target) for query, target, _ in offsets.asked} == {
            ("image", "image"),
            ("text", "image"),
        }


# Histories at random


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_agree_with_brute_force(tmp_path: Path, seed: int) -> None:
    """Ties, groups, filters and deletions together, over several codings and segments."""
    rng = np.random.default_rng(seed)
    model = small_model(16, "stored" if seed % 2 else "constant")
    index, twin = Index.create(tmp_path / "i.cb", model, n_jobs=1 + seed % 2), Twin(model)
    known = rng.integers(0, 256, (12, 2), dtype=np.uint8)
    with index:
        for step in range(6):
            keys = [f"{step}.{i}" for i in range(int(rng.integers(1, 90)))]
            codes = [known[rng.integers(0, 12, len(keys))] for _ in range(2)]  # few codes: many ties
            sides = [("image_codes", "text_codes"), ("image_codes",), ("text_codes",)][int(rng.integers(3))]
            values: dict[str, Any] = dict(zip(sides, codes, strict=False))
            values["payloads"] = [{"n": int(n)} if n else None for n in rng.integers(0, 5, len(keys))]
            values["groups"] = [int(n) or None for n in rng.integers(0, 9, len(keys))]
            gone = (
                rng.choice(list(twin.entries), min(7, len(twin.entries)), replace=False).tolist()
                if step
                else []
            )
            for target in (index, twin):
                target.add(keys, **values)
                target.delete(gone)
            _search_everything(index, twin, rng)
        index.compact()
        _search_everything(index, twin, rng)
        index.verify()


def _search_everything(index: Index, twin: Twin, rng: Any) -> None:
    images, texts = features(3, seed=int(rng.integers(1000)))
    for target in TARGETS:
        query = {"images": images} if rng.random() < 0.5 else {"texts": texts}
        options: dict[str, Any] = {"target": target, "k": int(rng.choice([1, 7, 100, 1000]))}
        options["distinct"] = "group" if rng.random() < 0.5 else None
        level = int(rng.integers(1, 5))
        where, keep = (
            (f"n >= {level}", lambda p, n=level: p.get("n", 0) >= n) if rng.random() < 0.6 else (None, None)
        )
        found = both((index, twin), **query, **options, where=where, keep=keep)
        if len(found[0]):
            limit = float(found[0].distances[len(found[0]) // 2])
            both((index, twin), **query, **options, where=where, keep=keep, max_distance=limit)


def test_the_sample_has_what_the_tests_think(made: tuple[Index, Twin]) -> None:
    assert len(made[0]) == 3 * COUNT - 4
    assert {entry.coding for entry in made[1].entries.values()} == {"pair", "image", "text"}
