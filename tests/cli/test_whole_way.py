"""The real program, from a file of features to answers, and what it does when it is interrupted or misled."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crossbyte import CMCQ, Index
from crossbyte.cli import app
from crossbyte.data.safe_open import Limits
from crossbyte.data.synthetic import make_pairs

N_TRAIN, N_QUERY, N_WORDS = 300, 40, 60
QUICK = ("--mapping", "cca", "--bits", "16", "--curve", "", "--param", "max_iter=1", "--quiet")

# The program as it is, but that it takes Ctrl-C also as a job in the background, and reports every step.
EAGER = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "import crossbyte.cli.app, crossbyte.cli.output\n"
    "crossbyte.cli.output.SECONDS_BETWEEN_LINES = 0.0; crossbyte.cli.app.main()"
)


def write_dataset(path: Path, **sizes: int) -> None:
    """Write splits of generated pairs as one file, with ids, groups, a payload column and a vocabulary."""
    pairs = make_pairs(sum(sizes.values()), 32, N_WORDS, words_per_text=16.0, random_state=0)
    arrays: dict[str, Any] = {"vocabulary": np.array([f"word{number}" for number in range(N_WORDS)])}
    first = 0
    for split, size in sizes.items():
        rows, numbers = slice(first, first + size), np.arange(size)
        texts = pairs.texts[rows]
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"text_{split}_{part}"] = np.asarray(getattr(texts, part))
        arrays[f"image_{split}"] = pairs.images[rows]
        arrays[f"id_{split}"] = np.array([f"{split}-{number}" for number in numbers])
        arrays[f"group_{split}"], arrays[f"year_{split}"] = numbers // 2, 1990 + numbers % 30
        first += size
    np.savez(path, **arrays)


def program() -> list[str]:
    script = Path(sys.executable).with_name("crossbyte")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "crossbyte"]


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program(), *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, and what the real program made of it: a model and an index."""
    home = tmp_path_factory.mktemp("cli")
    write_dataset(home / "photos.npz", train=N_TRAIN, query=N_QUERY)
    fitted = start(home, "fit", "photos.npz", "-o", "model.cbm", "--index", "training.cb", *QUICK)
    assert fitted.returncode == 0, fitted.stderr
    assert "model.cbm: learned from 300 pairs" in fitted.stdout and "recall@10" in fitted.stdout.lower()
    added = start(home, "add", "photos.cb", "photos.npz", "--split", "query", "--model", "model.cbm")
    assert added.returncode == 0, added.stderr
    assert "photos.cb: 40 documents added" in added.stdout
    return home


class Shell:
    """Runs command lines in this process, in one folder, and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        came = app.run(arguments)
        self.out, self.err = self._capsys.readouterr()
        assert came == code, self.err
        return self.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def refused(self, *arguments: str, code: int = 2) -> str:
        """Run what must fail: nothing on stdout, two lines on stderr."""
        assert self(*arguments, code=code) == ""
        assert len(self.err.splitlines()) == 2, self.err
        return self.err


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    return Shell(capsys)


def copy_of(name: str, tmp_path: Path) -> str:
    copy = tmp_path / name
    copy.write_bytes(Path(name).read_bytes())
    return str(copy)


# The whole way


def test_the_real_program_searches_in_a_pipe(folder: Path) -> None:
    asked = (
        "search",
        "photos.cb",
        "--texts",
        "photos.npz:text_query",
        "--row",
        "3",
        "-k",
        "40",
        "--payloads",
    )
    done = start(folder, *asked)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("row 3 of the texts") and "\x1b" not in done.stdout
    found = [line.split() for line in lines[2:42]]
    assert {words[3] for words in found} == {f"query-{number}" for number in range(N_QUERY)}
    assert "query-3" in [words[3] for words in found[:10]]
    assert '{"year": 1993}' in done.stdout


def test_fit_made_a_model_a_report_and_an_index(shell: Shell) -> None:
    model = CMCQ.load("model.cbm")
    assert model.mapping_ == "cca" and model.report_.n_pairs == N_TRAIN
    assert shell("report", "model.cbm") == str(model.report_).rstrip("\n") + "\n"
    assert shell.json("report", "training.cb")["n_held_out"] == model.report_.n_held_out
    training = shell.json("info", "training.cb")
    assert training["codings"] == {"document": N_TRAIN} and training["fields"] == {"year": ["number"]}
    shell("report", "model.cbm", "--html", "report.html", "--overwrite")
    assert "<html" in Path("report.html").read_text(encoding="utf-8")


def test_info_tells_models_from_indexes(shell: Shell) -> None:
    model, index = shell.json("info", "model.cbm"), shell.json("info", "photos.cb")
    assert (model["kind"], index["kind"]) == ("model", "index")
    assert index["documents"] == N_QUERY and index["model"] == model["model"]
    assert model["model"]["training_pairs"] == N_TRAIN and model["model"]["calibrated"] is True
    assert "a crossbyte model" in shell("info", "model.cbm")
    assert "documents: 40 (40 images, 40 texts)" in shell("info", "photos.cb")


def test_search_gives_what_the_index_gives(shell: Shell) -> None:
    answer = shell.json(
        "search", "photos.cb", "--images", "photos.npz:image_query", "--rows", "2:5", "-k", "3"
    )
    with np.load("photos.npz") as arrays, Index.open("photos.cb") as index:
        expected = index.search(images=arrays["image_query"][2:5], k=3)
    assert [query["query"] for query in answer["queries"]] == [2, 3, 4]
    for query, hits in zip(answer["queries"], expected, strict=True):
        assert [hit["id"] for hit in query["hits"]] == hits.ids
        assert [hit["distance"] for hit in query["hits"]] == hits.distances.tolist()
        assert all(0 <= hit["probability"] <= 1 for hit in query["hits"])
        assert query["no_match"] == hits.no_match


def test_search_takes_examples_filters_limits_and_groups(shell: Shell) -> None:
    def ids(*options: str) -> list[str]:
        (query,) = shell.json("search", "photos.cb", "--like", "query-7", "-k", "40", *options)["queries"]
        return [hit["id"] for hit in query["hits"]]

    assert ids()[0] == "query-7" and len(ids()) == N_QUERY
    assert set(ids("--where", "year < 1992")) == {"query-0", "query-1", "query-30", "query-31"}
    assert len(ids("--distinct", "group")) == N_QUERY // 2
    assert ids("--max-distance", "-1000000") == []
    assert len(ids("--target", "document")) == N_QUERY


def test_search_knows_what_is_probable(shell: Shell) -> None:
    def found(*options: str) -> Any:
        asked = ("search", "photos.cb", "--texts", "photos.npz:text_query", "--row", "3", "-k", "40")
        return shell.json(*asked, *options)["queries"][0]

    probable = [hit["probability"] for hit in found()["hits"]]
    limit = sorted(probable)[20]
    assert len(found("--min-probability", str(limit))["hits"]) == sum(p >= limit for p in probable)
    assert found("--prior", "1e-9")["no_match"] is True
    assert found("--match-threshold", "0")["no_match"] is False


def test_nothing_found_can_be_an_exit_code(shell: Shell) -> None:
    asked = ("search", "photos.cb", "--like", "query-7", "--where", "year < 0")
    assert "nothing found" in shell(*asked)
    shell(*asked, "--fail-if-none", code=4)
    assert len(shell.err.splitlines()) == 2 and "nothing found" in shell.out


def test_search_writes_trec_runs(shell: Shell, tmp_path: Path) -> None:
    run = tmp_path / "answers.run"
    asked = ("search", "photos.cb", "--like", "query-7", "--like", "query-8", "-k", "2", "--trec", str(run))
    shell(*asked, "--run-name", "mine")
    lines = [line.split() for line in run.read_text(encoding="utf-8").splitlines()]
    assert [(line[0], line[3], line[5]) for line in lines] == [
        ("query-7", "1", "mine"),
        ("query-7", "2", "mine"),
        ("query-8", "1", "mine"),
        ("query-8", "2", "mine"),
    ]
    assert "something is there" in shell.refused(*asked)


def test_explain_adds_up(shell: Shell) -> None:
    asked = ("explain", "photos.cb", "query-4", "--texts", "photos.npz:text_query", "--row", "3")
    found = shell.json(*asked, "--vocabulary", "photos.npz")
    (query,) = shell.json(
        "search", "photos.cb", "--texts", "photos.npz:text_query", "--row", "3", "-k", "40"
    )["queries"]
    assert found["distance"] == next(hit["distance"] for hit in query["hits"] if hit["id"] == "query-4")
    assert "word" in shell(*asked, "--vocabulary", "photos.npz")
    assert "expected one query, got 40" in shell.refused(*asked[:-2])


@pytest.mark.parametrize("name", ["vectors.npy", "vectors.parquet", "index.faiss"])
def test_export_writes_for_others_and_replaces_only_when_asked(
    name: str, shell: Shell, tmp_path: Path
) -> None:
    asked = ("export", "photos.cb", str(tmp_path / name), "--side", "text")
    assert shell.json(*asked)["to"] == name.partition(".")[2]
    assert (tmp_path / name).stat().st_size > 0
    assert "something is there" in shell.refused(*asked)
    shell(*asked, "--overwrite")


def test_delete_compact_verify_and_backup(shell: Shell, tmp_path: Path) -> None:
    index, copy = copy_of("photos.cb", tmp_path), str(tmp_path / "backup.cb")
    (tmp_path / "ids.txt").write_text("query-2\n\nquery-3\n", encoding="utf-8")
    deleted = shell.json("delete", index, "query-1", "--ids-file", str(tmp_path / "ids.txt"))
    assert (deleted["deleted"], deleted["documents"]) == (3, N_QUERY - 3)
    assert "no document has the id 'query-1'" in shell.refused("delete", index, "query-5", "query-1")
    assert shell.json("delete", index, "query-1", "--missing-ok")["deleted"] == 0
    assert shell.json("info", index)["deleted"] == 3
    sizes = shell.json("compact", index)
    assert sizes["bytes_after"] <= sizes["bytes_before"] and shell.json("info", index)["deleted"] == 0
    assert shell.json("verify", index)["documents"] == N_QUERY - 3
    assert shell.json("backup", index, copy)["bytes"] == Path(copy).stat().st_size
    assert f"{N_QUERY - 3} documents" in shell("verify", copy)
    assert "free name" in shell.refused("backup", index, copy)


def test_shards_answer_as_their_index(shell: Shell, tmp_path: Path) -> None:
    index, out = copy_of("photos.cb", tmp_path), str(tmp_path / "photos.cbs")
    Path(index + ".files").mkdir()
    (Path(index + ".files") / "audit.json").write_text('{"rows": []}')
    made = shell.json("shard", index, "-o", out, "--shards", "3")
    assert made["documents"] == sum(each["documents"] for each in made["shards"]) == N_QUERY
    assert (Path(out + ".files") / "audit.json").is_file()
    asked = ("--like", "query-1", "-k", "5")
    assert shell.json("search", out, *asked)["queries"] == shell.json("search", index, *asked)["queries"]
    assert shell.json("verify", out)["documents"] == N_QUERY
    assert "free name" in shell.refused("shard", index, "-o", out, "--shards", "2")
    assert "in 2 shards" in shell("shard", index, "-o", out + "2", "--shards", "2")


def test_ids_come_from_stdin_and_bad_text_is_refused(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, latin = copy_of("photos.cb", tmp_path), tmp_path / "latin.txt"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"query-1\nquery-2\n")))
    assert "2 documents deleted; 38 left" in shell("delete", index, "--ids-file", "-")
    latin.write_bytes("café".encode("latin-1"))
    assert "line 1: expected UTF-8" in shell.refused("delete", index, "--ids-file", str(latin))


def test_lists_of_ids_are_read_within_limits(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "__new__", partial(Limits.__new__, text_bytes=10))
    names = tmp_path / "ids.txt"
    names.write_text("query-1\nquery-2\n", encoding="utf-8")
    asked = ("delete", copy_of("photos.cb", tmp_path), "--ids-file")
    assert "at most 10 bytes of text, got 16" in shell.refused(*asked, str(names))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(names.read_bytes())))
    assert "-: expected at most 10 bytes of text, got 11" in shell.refused(*asked, "-")
    assert "got a directory" in shell.refused(*asked, str(tmp_path))


def test_add_upserts_skips_and_takes_one_side(shell: Shell, tmp_path: Path) -> None:
    index = str(tmp_path / "new.cb")
    first = (
        "add",
        index,
        "photos.npz",
        "--split",
        "query",
        "--model",
        "model.cbm",
        "--batch",
        "15",
        "--quiet",
    )
    assert shell.json(*first, "--side", "image")["added"] == N_QUERY
    assert "--upsert" in shell.refused(*first)
    assert shell.json(*first, "--skip-existing")["skipped"] == N_QUERY
    assert shell.json("info", index)["codings"] == {"image": N_QUERY}
    assert shell.json(*first, "--upsert")["documents"] == N_QUERY
    assert shell.json("info", index)["codings"]["document"] == N_QUERY
    assert shell.json(*first, "--upsert", "--codes", "sides")["documents"] == N_QUERY
    assert shell.json("info", index)["codings"]["pair"] == N_QUERY
    assert "format 2: one code for a new document" in shell("info", index)


def test_fit_gives_documents_two_codes_where_asked(shell: Shell, tmp_path: Path) -> None:
    asked = ("fit", "photos.npz", "--split", "train", "--bits", "16", "--no-calibrate", "--quiet")
    output = ("-o", str(tmp_path / "m.cbm"))
    index = str(tmp_path / "i.cb")
    said = shell.refused(*asked, *output, "--codes", "sides")
    assert "--codes" in said and "--index FILE" in said
    said = shell.refused(*asked, *output, "--index", index, "--codes", "document", "--param", "scoring=unit")
    assert "two codes" in said and 'codes="sides"' in said
    assert not list(tmp_path.iterdir())
    said = shell(*asked, *output, "--index", index, "--codes", "sides")
    assert f"all {N_TRAIN} documents, each coded from its features" in said
    assert "2 bytes per item, 4 per document" in said
    assert "model: 2 bytes per document" in shell("info", index)
    told = shell.json("info", index)
    assert (told["codings"], told["format"], told["codes"]) == ({"pair": N_TRAIN}, 2, "document")
    model = CMCQ.load(tmp_path / "m.cbm")
    with np.load("photos.npz") as arrays, Index.open(index) as opened:
        parts = (arrays[f"text_train_{part}"] for part in ("data", "indices", "indptr"))
        texts = sp.csr_array(tuple(parts), shape=tuple(arrays["text_train_shape"]))
        halves = model.encode_pairs(arrays["image_train"], texts)
        for row in (0, 7, N_TRAIN - 1):
            document = opened.get(f"train-{row}")
            assert [document.image_code.tolist(), document.text_code.tolist()] == [
                half[row].tolist() for half in halves
            ]
    older = str(tmp_path / "older.cb")
    shell(
        *asked,
        "-o",
        str(tmp_path / "two.cbm"),
        "--index",
        older,
        "--param",
        "scoring=unit",
        "--sample",
        "all",
    )
    assert "format 1: two codes for a new document" in shell("info", older)
    query = ("add", older, "photos.npz", "--split", "query", "--codes", "document", "--quiet")
    assert "no codes of whole documents" in shell.refused(*query)
    assert shell.json("info", older)["documents"] == N_TRAIN


def test_a_refused_add_leaves_no_index(shell: Shell, tmp_path: Path) -> None:
    with np.load("photos.npz") as arrays:
        images = arrays["image_query"][:4]
    twice, narrow = tmp_path / "twice.txt", str(tmp_path / "narrow.npy")
    np.save(narrow, images[:, 1:])
    np.save(tmp_path / "images.npy", images)
    twice.write_text("a\nb\nb\nc\n", encoding="utf-8")
    index = tmp_path / "new.cb"
    asked = ("add", str(index), "--model", "model.cbm", "--quiet", "--images")
    before = sorted(tmp_path.iterdir())
    assert "images" in shell.refused(*asked, narrow)
    assert "'b'" in shell.refused(*asked, str(tmp_path / "images.npy"), "--ids", str(twice))
    assert sorted(tmp_path.iterdir()) == before
    shell(*asked, str(tmp_path / "images.npy"))
    shell.refused(*asked, narrow)
    assert shell.json("info", str(index))["documents"] == 4  # one that was there stays


def test_export_of_a_side_that_is_not_there_is_refused(shell: Shell, tmp_path: Path) -> None:
    index, out = str(tmp_path / "new.cb"), tmp_path / "vectors.npy"
    shell("add", index, "photos.npz", "--model", "model.cbm", "--side", "image", "--quiet")
    assert "no texts to export" in shell.refused("export", index, str(out), "--side", "text")
    assert not out.exists()


def test_second_lines_say_what_to_do_here(shell: Shell, tmp_path: Path) -> None:
    """Cases where the advice once was for somebody else."""
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.save(tmp_path / "three.npy", np.ones((3, 2)))
    np.save(tmp_path / "four.npy", np.ones((4, 2)))
    sp.save_npz(tmp_path / "coo.npz", sp.coo_matrix(np.eye(3)))
    output = ("-o", str(tmp_path / "new.cbm"))

    def advice(*arguments: str) -> str:
        return shell.refused(*arguments).splitlines()[1]

    def of_images(name: str) -> str:
        return advice(
            "fit", "--images", str(tmp_path / name), "--texts", str(tmp_path / "three.npy"), *output
        )

    taken = shell.refused("fit", "photos.npz", *output, "--index", "photos.cb", "--overwrite")
    assert "never overwritten" in taken and "--overwrite" not in taken
    assert "give --model FILE" in advice("plan", "photos.npz", "--items", "9", "--min-recall", "0.5")
    for asked in (
        ("search", "photos.cb", "--like", "nobody"),
        ("explain", "photos.cb", "nobody", "--like", "query-1"),
    ):
        assert "check the id" in advice(*asked) and "delete" not in shell.err
    assert "--missing-ok" in advice("delete", "photos.cb", "nobody")
    assert "no such file" in shell.refused("add", "photos.cb", "photos.npz", "--ids", "nobody.txt")
    three = str(tmp_path / "three.npy")
    assert "--payloads" in advice("add", "photos.cb", "--images", three, "--ids", "nobody")
    assert "equally many rows" in of_images("four.npy")
    assert "numpy.save" in of_images("objects.npy") and "CSR and CSC" in of_images("coo.npz")
    with Index.open("photos.cb", "rw"):
        locked = shell.refused("delete", "photos.cb", "query-1", code=5)
    assert "wait until" in locked and "mode" not in locked


def test_ctrl_c_in_plan_speaks_of_no_model(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("crossbyte.model.fit.fit_pairs", stopped)
    said = shell.refused("plan", "photos.npz", "--items", "9", "--quiet", code=130)
    assert said.startswith("crossbyte: interrupted\n") and "fit" not in said and "model" not in said


def test_info_says_what_is_in_use(shell: Shell) -> None:
    in_use, model = shell.json("info", "model.cbm")["model"]["in_use"], CMCQ.load("model.cbm")
    names = ("mapping", "n_components", "correlation", "cross_penalty", "cross_term", "ridge")
    assert in_use == {name: getattr(model, f"{name}_") for name in names}


def test_report_says_that_it_wrote_a_page(shell: Shell, tmp_path: Path) -> None:
    page = str(tmp_path / "report.html")
    assert f"{page}: the report as a page" in shell("report", "model.cbm", "--html", page)
    assert shell.json("report", "model.cbm", "--html", page, "--overwrite")["html"] == page


def test_top_of_an_audit_is_for_duplicates_too(shell: Shell, tmp_path: Path) -> None:
    with np.load("photos.npz") as arrays:
        np.save(tmp_path / "images.npy", np.repeat(arrays["image_query"], 2, axis=0))
    np.save(tmp_path / "texts.npy", np.random.default_rng(0).random((2 * N_QUERY, N_WORDS)))
    sides = ("--images", str(tmp_path / "images.npy"), "--texts", str(tmp_path / "texts.npy"))
    found = shell.json("audit", *sides, "--model", "model.cbm", "--quiet", "--top", "3")
    assert len(found["rows"]) == len(found["duplicates"]) == 3 and found["n_duplicates"] >= N_QUERY


def test_documents_come_from_separate_files(shell: Shell, tmp_path: Path) -> None:
    """Features of one side in .npy, payloads in CSV, ids and groups from its columns."""
    with np.load("photos.npz") as arrays:
        np.save(tmp_path / "images.npy", arrays["image_query"][:4])
    rows = ["name,kind,number", "a,x,1", "b,x,2", "c,y,3", "d,y,4"]
    (tmp_path / "rows.csv").write_text("\n".join(rows), encoding="utf-8")
    index, images = str(tmp_path / "new.cb"), str(tmp_path / "images.npy")
    given = ("--images", images, "--payloads", str(tmp_path / "rows.csv"), "--model", "model.cbm")
    assert shell.json("add", index, *given, "--ids", "name", "--groups", "kind")["added"] == 4
    (query,) = shell.json("search", index, "--like", "c", "--payloads", "--distinct", "group")["queries"]
    assert query["hits"][0]["id"] == "c" and query["hits"][0]["payload"]["number"] == 3
    assert len(query["hits"]) == 2
    assert "the columns are kind, name, number" in shell.refused("add", index, *given, "--ids", "nobody")


def test_numbers_are_ids_too(shell: Shell, tmp_path: Path) -> None:
    """Without ids the row numbers are: spelled on the command line, integers in the index."""
    with np.load("photos.npz") as arrays:
        np.save(tmp_path / "images.npy", arrays["image_query"][:4])
    index = str(tmp_path / "new.cb")
    shell("add", index, "--images", str(tmp_path / "images.npy"), "--model", "model.cbm")
    (query,) = shell.json("search", index, "--like", "2", "-k", "1")["queries"]
    assert query["hits"][0]["id"] == 2
    assert shell.json("delete", index, "2", "3")["documents"] == 2


def test_plan_says_bytes_and_refuses_what_nothing_meets(shell: Shell) -> None:
    asked = ("plan", "photos.npz", "--items", "100000", "--quiet", "--mapping", "cca")
    assert shell.json(*asked, "--bits", "32")
    assert shell(*asked, "--bits", "32")
    shell.refused(*asked, "--max-memory", "1kB", code=3)


def test_audit_lists_and_writes_csv(shell: Shell, tmp_path: Path) -> None:
    table = tmp_path / "suspicious.csv"
    asked = ("audit", "photos.npz", "--model", "model.cbm", "--top", "5", "--csv", str(table), "--quiet")
    found = shell.json(*asked)
    assert found["n_pairs"] == N_TRAIN and len(found["rows"]) == 5
    lines = table.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + N_TRAIN and found["rows"][0]["id"] in lines[1]
    assert found["rows"][0]["id"] in shell(*asked, "--overwrite")
    assert "something is there" in shell.refused(*asked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--curve", "2,999"), "--curve: expected an integer from 1 to 64, got 999"),
        (("--min-recall", "7"), "--min-recall: expected a number in [0, 1], got 7"),
        (("--groups", "few"), "at least 20 groups, got 15"),
        (("--groups", "some"), "--groups: expected a label in every row, got none in row 3"),
        (("--groups", "text"), "--groups: expected a label in every row, got none in row 3"),
        (("--ids", "few", "--index", "new.cb"), "twice"),
        (("--groups", "half", "--index", "new.cb"), "--groups: an index takes fewer kinds"),
    ],
)
def test_fit_judges_everything_before_the_fit(
    options: tuple[str, ...], message: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CMCQ, "fit", None)  # must not be called
    rows = [
        f"{row % 15},{'' if row == 3 else row},{'' if row == 3 else f't{row}'},{row / 2}"
        for row in range(N_TRAIN)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["few,some,text,half", *rows]), encoding="utf-8")
    given = ("--payloads", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "a.cbm"), "--mapping", "cca")
    assert message in shell.refused("fit", "photos.npz", *given, *options)
    assert not (tmp_path / "a.cbm").exists()


def test_a_seed_gives_the_same_file_and_quality_can_be_asked_for(shell: Shell, tmp_path: Path) -> None:
    again = str(tmp_path / "again.cbm")
    shell("fit", "photos.npz", "-o", again, "--min-recall", "0", *QUICK)
    assert Path(again).read_bytes() == Path("model.cbm").read_bytes()
    assert "something is there" in shell.refused("fit", "photos.npz", "-o", again, *QUICK)
    said = shell.json("fit", "photos.npz", "-o", again, "--overwrite", "--min-recall", "1", *QUICK, code=3)
    assert said["model"] == again and "not 1 as asked" in shell.err


def test_a_model_that_was_not_measured_says_so(shell: Shell, tmp_path: Path) -> None:
    model = str(tmp_path / "plain.cbm")
    assert "was not measured" in shell("fit", "photos.npz", "-o", model, "--no-calibrate", *QUICK)
    said = shell.refused("report", model)
    assert "at least 20 captioned pictures" in said and "without --no-calibrate" in said


# Wrong files


def test_wrong_files_have_their_codes(shell: Shell, tmp_path: Path) -> None:
    nonsense, damaged = tmp_path / "nonsense.cb", tmp_path / "damaged.cb"
    nonsense.write_bytes(b"nothing of the kind" * 100)
    contents = bytearray(Path("photos.cb").read_bytes())
    for place in range(len(contents) // 2, len(contents) // 2 + 4096):
        contents[place] ^= 0x55
    damaged.write_bytes(contents)
    for command in ("info", "verify", "report"):
        shell.refused(command, str(nonsense), code=5)
    shell.refused("search", str(nonsense), "--like", "a", code=5)
    shell.refused("verify", str(damaged), code=5)
    shell.refused("verify", "photos.npz", code=5)
    shell.refused("info", str(tmp_path))
    assert "nonsense" in shell.refused("fit", str(nonsense), "-o", str(tmp_path / "x.cbm"))
    assert "features" in shell.refused("search", "photos.cb", "--texts", "photos.npz:image_query")
    assert "image_query" in shell.refused("search", "photos.cb", "--texts", "photos.npz:nobody")
    assert not (tmp_path / "x.cbm").exists()


def test_wrong_questions_are_refused(shell: Shell) -> None:
    search = ("search", "photos.cb")
    assert "exactly one of them" in shell.refused(*search)
    assert "exactly one of them" in shell.refused(*search, "--like", "a", "--texts", "photos.npz")
    assert "nobody" in shell.refused(*search, "--like", "nobody")
    assert "below 40" in shell.refused(*search, "--texts", "photos.npz:text_query", "--row", "40")
    assert "got none" in shell.refused(*search, "--texts", "photos.npz:text_query", "--rows", "50:60")
    assert "at character" in shell.refused(*search, "--like", "query-7", "--where", "year >= AND")
    assert "year" in shell.refused(*search, "--like", "query-7", "--where", "nobody = 1")
    assert "--max-distance" in shell.refused(*search, "--like", "query-7", "--min-probability", "0.5")
    assert "give --to" in shell.refused("export", "photos.cb", "photos.xyz")


def test_a_locked_index_is_no_bug(shell: Shell, tmp_path: Path) -> None:
    path = copy_of("photos.cb", tmp_path)
    with Index.open(path, "rw"):
        assert "is writing" in shell.refused("delete", path, "query-1", code=5)


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    process = subprocess.Popen(
        [*program(), "info", "photos.cb", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # before anything was written
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), said) == (0, b"")


# Ctrl-C


def interrupt(folder: Path, after: int, arguments: Sequence[str]) -> tuple[int, str]:
    """Start the program, press Ctrl-C after some lines of progress; give its code and its last two lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", EAGER, *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as lines:
        for _ in range(after):
            assert lines.readline().startswith(f"crossbyte {arguments[0]}: ")
        process.send_signal(signal.SIGINT)
        said = lines.read()
    assert "Traceback" not in said
    return process.wait(timeout=120), "\n".join(said.splitlines()[-2:])


def test_ctrl_c_in_calibrate_says_that_the_fit_is_lost(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("crossbyte.calibration.measure.measure_model", stopped)
    said = shell.refused("fit", "photos.npz", "-o", str(tmp_path / "a.cbm"), *QUICK, code=130)
    assert "calibrate was interrupted" in said and "nothing was saved, not even the fitted model" in said
    assert "no file was written" in said and list(tmp_path.iterdir()) == []


def test_ctrl_c_in_fit_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    endless = (
        "--mapping",
        "sparse",
        "--param",
        "max_iter=100000",
        "--param",
        "tol=0",
        "--param",
        "n_atoms=64",
    )
    data = str(folder / "photos.npz")
    code, said = interrupt(tmp_path, 8, ("fit", data, "-o", "model.cbm", "--index", "photos.cb", *endless))
    assert code == 130 and "fit was interrupted" in said and "no file was written" in said
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_add_keeps_whole_batches_and_add_goes_on(folder: Path, tmp_path: Path) -> None:
    data = str(folder / "photos.npz")
    adding = ("add", "photos.cb", data, "--model", str(folder / "model.cbm"), "--batch", "1")
    code, said = interrupt(tmp_path, 5, adding)
    assert code == 130 and "interrupted: the batches so far are in the index" in said
    assert "--skip-existing" in said
    with Index.open(tmp_path / "photos.cb") as index:
        index.verify()
        kept = index.ids()
    assert 4 <= len(kept) < N_TRAIN
    assert kept == [f"train-{number}" for number in range(len(kept))]
    done = start(tmp_path, *adding[:-1], "1000", "--skip-existing", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["documents"] == N_TRAIN
