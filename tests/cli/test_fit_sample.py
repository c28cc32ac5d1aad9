"""``fit`` on a sample of the pairs, and from features that stay on disk."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import sparse

from crossbyte import CMCQ, Index
from crossbyte.cli import app
from crossbyte.cli.commands import fit as sampling
from crossbyte.data.ondisk import is_pair_folder, open_pair_folder
from crossbyte.data.readers import read_dataset
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import ClusterError, DataFileError, InvalidInput
from crossbyte.gallery.build import FitOptions
from crossbyte.index.plan import pilot, size_model
from crossbyte.index.plan import pilot as rule
from crossbyte.index.plan import pilot as trying
from crossbyte.index.plan.size_model import SampleSize

N = 420
QUICK = ("--mapping", "cca", "--bits", "16", "--param", "max_iter=1", "--no-calibrate", "--quiet")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pairs in two files, as shards in a folder, and in one dataset with groups of two."""
    monkeypatch.chdir(tmp_path)
    images, texts, _ = make_pairs(N, 12, 20, sparse_text=False, random_state=0)
    for name, rows in (("images", images), ("texts", texts)):
        np.save(f"{name}.npy", rows)
    for part, rows_ in enumerate((slice(0, 200), slice(200, N))):
        for side, rows in (("img_emb", images), ("text_emb", texts)):
            Path("shards", side).mkdir(parents=True, exist_ok=True)
            np.save(f"shards/{side}/{side}_{part}.npy", rows[rows_])
    np.savez("grouped.npz", images=images, texts=texts, group=np.arange(N) // 2)
    return tmp_path


def fit(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    came = app.run(["fit", *arguments, "-o", "model.cbm", "--overwrite", *QUICK, "--json"])
    out, err = capsys.readouterr()
    assert came == code, err
    return json.loads(out) if code == 0 else err


# Which rows


@pytest.mark.parametrize(("text", "found"), [(None, "auto"), ("auto", "auto"), ("all", "all"), ("70", 70)])
def test_samples_are_read(text: str | None, found: str | int) -> None:
    assert sampling.parse_sample(text) == found


@pytest.mark.parametrize("text", ["some", "1", "-5", "1e6", "", "0x10"])
def test_wrong_samples_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--sample: expected auto, all, or a number of pairs"):
        sampling.parse_sample(text)


def test_few_pairs_are_all_taken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fit(capsys, "grouped.npz")
    assert said["pairs"] == N and said["sample"] is None


def test_a_number_draws_whole_groups_with_the_seed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fit(capsys, "grouped.npz", "--sample", "101", "--seed", "3")
    assert said["pairs"] == 100
    assert said["sample"] == {"pairs": 100, "asked": 101, "of": N, "seed": 3, "why": "", "pilots": []}
    rows = rule.draw_pairs(N, 101, np.arange(N) // 2, seed=3)
    pairs = read_dataset("grouped.npz")
    again = CMCQ(16, mapping="cca", max_iter=1, random_state=3).fit(
        pairs.images[rows], pairs.texts[rows], groups=[pairs.groups[row] for row in rows]
    )
    assert Path("model.cbm").read_bytes() == again.to_bytes()


def test_a_pilot_says_how_many(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size_model, "ALWAYS_ALL", 100)
    asked: list[Any] = []

    def stub(images: Any, texts: Any, groups: Any, *, model: CMCQ, **_: Any) -> SampleSize:
        asked.append((images.shape, model.mapping, model.n_bits))
        return SampleSize(150, "gain", 0.004, [(20, 0.25), (80, 0.5)])

    monkeypatch.setattr(trying, "find_sample_size", stub)
    assert fit(capsys, "grouped.npz", "--sample", "all")["pairs"] == N and not asked
    said = fit(capsys, "grouped.npz")
    assert said["pairs"] == 150 and said["sample"]["pilots"] == [[20, 0.25], [80, 0.5]]
    assert asked == [((N, 12), "cca", 16)] and "expected to add 0.004" in said["sample"]["why"]
    first = Path("model.cbm").read_bytes()
    assert fit(capsys, "grouped.npz", "--sample", "150")["pairs"] == 150
    assert Path("model.cbm").read_bytes() == first
    app.run(["fit", "grouped.npz", "-o", "model.cbm", "--overwrite", *QUICK])
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "learned from 150 pairs" in printed
        and "These are a sample of 420 pairs, drawn with seed 0" in printed
    )
    assert "--sample 150 takes the same ones" in printed


def test_a_real_pilot_on_stored_pairs(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (size_model, rule, trying):
        monkeypatch.setattr(module, "ALWAYS_ALL", 200)
    monkeypatch.setattr(trying, "_PAIRS_TO_TRY", 100)
    monkeypatch.setattr(pilot, "_SMALL", 150)
    said = fit(capsys, "shards")
    tried = [] if said["sample"] is None else said["sample"]["pilots"]
    assert 200 <= said["pairs"] <= N and (said["pairs"] == N or [size for size, _ in tried] == [150, 378])


def test_auto_is_piloted_by_cca(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(
        trying,
        "find_sample_size",
        lambda *_, model, **__: found.append(model.mapping) or SampleSize.all_of(7),
    )
    pairs = type("Pairs", (), {"images": None, "texts": None, "groups": None})()
    for mapping in ("auto", "sparse"):
        sampling._run_pilot(pairs, FitOptions(32, mapping, {}, 0, 1, None), lambda _: None)
    assert found == ["cca", "sparse"]


# All documents are indexed


def test_the_rest_is_coded(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(capsys, "grouped.npz", "--sample", "100", "--index", "all.cb")
    with Index.open("all.cb") as index:
        assert sorted(index.ids()) == list(range(N))
        rows = rule.draw_pairs(N, 100, np.arange(N) // 2)
        assert list(index.ids())[:100] == rows.tolist()
        kinds = {index.get(int(row)).coding for row in rows[:3]}
        assert kinds == {"document"}
        pairs = read_dataset("grouped.npz")
        hits = index.search(images=pairs.images, target="text", k=10)
        found = np.mean([row in hit.ids for row, hit in enumerate(hits)])
        assert found > 3 * 10 / N


def test_an_index_that_fails_half_way_is_gone(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Index, "add", full)
    fit(capsys, "grouped.npz", "--sample", "100", "--index", "all.cb", code=6)
    assert not Path("all.cb").exists() and Path("model.cbm").exists()


# Features that stay on disk


@pytest.mark.parametrize(
    "given", [("shards",), (".",), ("--images", "images.npy", "--texts", "texts.npy")], ids=lambda one: one[0]
)
def test_stored_pairs_give_the_model_of_pairs_in_memory(
    home: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...]
) -> None:
    pairs = read_dataset("grouped.npz")
    expected = CMCQ(16, mapping="cca", max_iter=1, random_state=0).fit(pairs.images, pairs.texts).to_bytes()
    assert fit(capsys, *given)["pairs"] == N
    assert Path("model.cbm").read_bytes() == expected


@pytest.mark.parametrize("count", [100, N - 1])
@pytest.mark.parametrize("given", [("shards",), ("--images", "images.npy", "--texts", "texts.npy")])
def test_a_sample_of_stored_pairs_gives_the_model_of_memory(
    home: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], count: int
) -> None:
    rows = rule.draw_pairs(N, count)
    pairs = read_dataset("grouped.npz")
    expected = CMCQ(16, mapping="cca", max_iter=1, random_state=0).fit(pairs.images[rows], pairs.texts[rows])
    fit(capsys, *given, "--sample", str(count), "--max-memory", "20kB")
    assert Path("model.cbm").read_bytes() == expected.to_bytes()


def test_a_sample_of_stored_pairs_stays_on_disk(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it read into memory for a fit, nor once more for an index."""
    asked: list[Any] = []
    for name in ("fit", "calibrate"):
        plain = getattr(CMCQ, name)
        monkeypatch.setattr(CMCQ, name, watching(plain, asked))
    arguments = ["fit", "shards", "-o", "model.cbm", "--sample", "300", "--index", "all.cb"]
    quick = ["--mapping", "cca", "--bits", "16", "--curve", "", "--param", "max_iter=1", "--quiet"]
    assert app.run([*arguments, *quick]) == 0
    assert len(asked) == 4 and all(side.is_stored and len(side) == 300 for side in asked)
    with Index.open("all.cb") as index:
        assert sorted(index.ids()) == list(range(N))


def watching(method: Any, asked: list[Any]) -> Any:
    def watched(self: CMCQ, images: Any, texts: Any, **how: Any) -> CMCQ:
        asked.extend([images, texts])
        return method(self, images, texts, **how)

    return watched


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_parts_of_sides_in_memory_are_in_memory(home: Path, form: str) -> None:
    pairs, rows = read_dataset("grouped.npz"), np.array([2, 5, 9])
    if form == "sparse":
        pairs.texts = sparse.csr_matrix(pairs.texts)
    part = sampling.take_rows(pairs, rows)
    assert isinstance(part.images, np.ndarray) and np.array_equal(part.images, pairs.images[rows])
    assert sparse.issparse(part.texts) == (form == "sparse") and part.groups == [1, 2, 4]


def test_two_columns_of_one_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = read_dataset("grouped.npz")
    Path("pq").mkdir()
    for part, rows in enumerate((slice(0, 200), slice(200, N))):
        sides = {"image_embedding": pairs.images[rows], "text_embedding": pairs.texts[rows]}
        lists = {name: pyarrow.array(list(values)) for name, values in sides.items()}
        pyarrow.parquet.write_table(pyarrow.table(lists), f"pq/part-{part}.parquet")
    fit(capsys, "--images", "pq:image_embedding", "--texts", "pq:text_embedding")
    expected = CMCQ(16, mapping="cca", max_iter=1, random_state=0).fit(pairs.images, pairs.texts)
    assert Path("model.cbm").read_bytes() == expected.to_bytes()
    said = fit(capsys, "--images", "pq:picture", "--texts", "pq:text_embedding", code=2)
    assert "part-0.parquet: expected an array called 'picture'" in said and "text_embedding float32" in said
    said = fit(capsys, "--images", "shards/img_emb:images", "--texts", "pq:text_embedding", code=2)
    assert "expected no key" in said


# On a cluster


def test_a_missing_cluster_is_said_before_data_are_read(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: Any) -> Any:
        raise ClusterError("cluster: expected a Ray cluster, got none")

    monkeypatch.setattr("crossbyte.cli.commands.fit.connect_cluster", nobody)
    missing = ("--images", "missing.npy", "--texts", "missing.npy")
    assert "got none" in fit(capsys, *missing, "--cluster", "10.0.0.1:6379", code=8)
    assert not Path("model.cbm").exists()


def test_the_rest_is_coded_on_the_cluster(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []

    def here(command: str, method: Any) -> Any:
        def call(*arguments: Any, cluster: str | None = None, **options: Any) -> Any:
            asked.append((command, cluster))
            return method(*arguments, **options)

        return call

    monkeypatch.setattr("crossbyte.cli.commands.fit.connect_cluster", lambda *_: nullcontext())
    monkeypatch.setattr(CMCQ, "fit", here("fit", CMCQ.fit))
    monkeypatch.setattr(Index, "add", here("add", Index.add))
    fit(capsys, "shards", "--sample", "100", "--index", "there.cb", "--cluster", "10.0.0.1:6379")
    fit(capsys, "shards", "--sample", "100", "--index", "here.cb")
    assert asked == [("fit", "10.0.0.1:6379"), ("add", "10.0.0.1:6379"), ("fit", None), ("add", None)]
    assert Path("there.cb").read_bytes() == Path("here.cb").read_bytes()


def test_memory_is_passed_on_to_the_fit(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, given = CMCQ.fit, []

    def watched(self: CMCQ, images: Any, texts: Any, groups: Any = None, **how: Any) -> CMCQ:
        given.append(how)
        return plain(self, images, texts, groups)

    monkeypatch.setattr(CMCQ, "fit", watched)
    fit(capsys, "shards", "--max-memory", "1.5GB")
    fit(capsys, "shards")
    assert given == [{"max_memory": 1_500_000_000}, {}]
    assert "--max-memory: expected a number of bytes" in fit(capsys, "shards", "--max-memory", "much", code=2)


def test_little_memory_gives_the_same_model(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(capsys, "shards")
    first = Path("model.cbm").read_bytes()
    fit(capsys, "shards", "--max-memory", "20kB")
    assert Path("model.cbm").read_bytes() == first


def test_a_plan_reads_stored_pairs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "shards", "--items", "1000", "--bits", "16", "--quiet", "--json"]
    assert app.run(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["train"] == told["fit_pairs"] == N and told["enough"]["why"] == "all"


def test_quality_is_measured_within_the_sample(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--mapping", "cca", "--bits", "16", "--curve", "", "--param", "max_iter=1", "--quiet", "--json"]
    assert app.run(["fit", "shards", "-o", "model.cbm", "--sample", "100", *quick]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sample"]["pairs"] == told["report"]["n_pairs"] == 100
    assert app.run(["fit", "shards", "-o", "few.cbm", "--sample", "15", *quick]) == 2
    assert "at least 20 groups, got 15" in capsys.readouterr().err


def test_stored_documents_are_added_like_those_in_memory(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(capsys, "grouped.npz", "--sample", "100")
    for data, index in (("shards", "a.cb"), ("images-and-texts", "b.cb")):
        given = [data] if data == "shards" else ["--images", "images.npy", "--texts", "texts.npy"]
        assert app.run(["add", index, *given, "--model", "model.cbm", "--batch", "150", "--quiet"]) == 0
    pairs = read_dataset("grouped.npz")
    with Index.open("a.cb") as first, Index.open("b.cb") as second:
        assert len(first) == N
        asked = [index.search(images=pairs.images[:20], target="text", k=5) for index in (first, second)]
    assert [list(hit.ids) for hit in asked[0]] == [list(hit.ids) for hit in asked[1]]


def test_pictures_take_neither(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pictures").mkdir()
    for option in (("--sample", "all"), ("--max-memory", "1GB")):
        assert f"{option[0]}: this option is for features" in fit(capsys, "pictures", *option, code=2)


def test_folders_of_two_sides_are_known(home: Path) -> None:
    assert (
        is_pair_folder(home) and is_pair_folder(home / "shards") and not is_pair_folder(home / "grouped.npz")
    )
    found = open_pair_folder(home / "shards")
    assert found.images.is_stored and found.images.shape == (N, 12) and len(found) == N
    whole = read_dataset(home / "shards")
    assert np.array_equal(found.images[np.array([3, 199, 200, 419])], whole.images[[3, 199, 200, 419]])
    (home / "texts.npy").unlink()
    assert not is_pair_folder(home)
    with pytest.raises(DataFileError, match=r"images\.npy and texts\.npy"):
        open_pair_folder(home)


def test_folders_of_shards_by_side(home: Path) -> None:
    for name in ("images", "texts"):
        (home / "wide" / name).mkdir(parents=True)
        np.save(home / "wide" / name / "part-0.npy", np.load(home / f"{name}.npy"))
    assert is_pair_folder(home / "wide") and len(open_pair_folder(home / "wide")) == N


def test_labels_are_read_with_and_without_payloads(home: Path) -> None:
    (home / "shards" / "metadata").mkdir()
    for part, rows in enumerate((range(200), range(200, N))):
        lines = ["image_path,caption", *(f"p{row // 2}.jpg,a word {row}" for row in rows)]
        (home / "shards" / "metadata" / f"metadata_{part}.csv").write_text("\n".join(lines))
    found, bare = open_pair_folder(home / "shards"), open_pair_folder(home / "shards", payloads=False)
    assert found.groups == bare.groups == [f"p{row // 2}.jpg" for row in range(N)]
    assert found.payloads[5] == {"image_path": "p2.jpg", "caption": "a word 5"} and bare.payloads is None


def test_sides_that_disagree_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("shards/text_emb/text_emb_1.npy", np.ones((219, 20), np.float32))
    assert "220 in img_emb/img_emb_1.npy, 219 in text_emb/text_emb_1.npy" in fit(capsys, "shards", code=2)
    np.save("shards/text_emb/text_emb_1.npy", np.ones((220, 21), np.float32))
    assert "expected 20 columns" in fit(capsys, "shards", code=2)
    Path("shards/text_emb/text_emb_1.npy").unlink()
    assert "no part 1 in text_emb" in fit(capsys, "shards", code=2)
    np.save("texts.npy", np.ones((N - 1, 20), np.float32))
    assert "419" in fit(capsys, ".", code=2)
