"""The commands of the laboratory: evaluate and tune, on generated collections and on a user's own pairs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte.cli import app
from crossbyte.data.synthetic import make_pairs
from crossbyte.lab import runner, score_tables
from crossbyte.lab.methods import registry
from crossbyte.lab.results import read_results
from crossbyte.report.measurements import Estimate

DATA = "generated:160"
QUICK = ("--jobs", "1", "--quiet", "--no-report")

Shell = Callable[..., str]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run command lines in this process, in an empty folder; give what they print, on either stream."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        found = app.run(arguments)
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.err if code else printed.out

    return run


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods that were fitted."""
    log: list[str] = []
    original = runner.fit_system

    def counted(run: Any, trial: Any) -> Any:
        log.append(run.method)
        return original(run, trial)

    monkeypatch.setattr(runner, "fit_system", counted)
    return log


def write_pairs(path: Path, n: int = 240) -> None:
    pairs = make_pairs(n, 12, 30, words_per_text=10.0, random_state=0)
    np.savez(path, images=pairs.images, texts=pairs.texts.toarray())


def write_captioned(path: Path, n: int = 240) -> None:
    """Pairs of an image and the words of its first caption; the second has half of the words."""
    pairs = make_pairs(n, 12, 120, words_per_text=8.0, random_state=0)
    words = np.array([f"word{number}" for number in range(120)])
    said = [words[row > 0] for row in pairs.texts.toarray()]
    captions = [[" ".join(each), " ".join(each[::2])] for each in said]
    texts = (pairs.texts.toarray() > 0).astype(np.float32)
    np.savez(path, images=pairs.images, texts=texts, vocabulary=words, captions=np.array(captions))


# evaluate


def test_a_table_of_means_and_chance(shell: Shell, fits: list[str]) -> None:
    arguments = (
        "evaluate",
        DATA,
        "--methods",
        "random,cca",
        "--bits",
        "8,16",
        "--seeds",
        "2",
        "--out",
        "lab",
    )
    text = shell(*arguments, *QUICK)
    assert text.startswith("lab: 8 results made\n")
    for task in ("image to text", "text to image"):
        assert f"generated-160, protocol A, {task}: MAP@50, 2 seeds\nsystem" in text
    rows = [line.split("  ") for line in text.splitlines()]
    assert sum(row[0] == "Random codes" and "±" in row[-1] for row in rows) == 2
    assert sum(row[0] == "chance" for row in rows) == 2
    assert sorted(fits) == ["cca"] * 4 + ["random"] * 4
    again = shell(*arguments, *QUICK)
    assert again.startswith("lab: 0 results made, 8 were there\n") and len(fits) == 8
    assert again.splitlines()[1:] == text.splitlines()[1:]
    shell(*arguments, *QUICK, "--overwrite")
    assert len(fits) == 16


def test_json_has_what_the_table_has(shell: Shell) -> None:
    arguments = ("--methods", "random", "--protocol", "B,C", "--quick", "--out", "lab", "--json")
    document = json.loads(shell("evaluate", DATA, *arguments, *QUICK))
    assert document["runs"] == 4 and document["found"] == 0 and document["failed"] == []
    assert [(each["protocol"], each["task"], each["metric"]) for each in document["tables"]] == [
        ("B", "image-to-text", "recall@10"),
        ("B", "text-to-image", "recall@10"),
        ("C", "text-to-image", "recall@10"),
        ("C", "text-to-text", "recall@10"),
    ]
    assert set(document["tables"][0]["rows"]["Random codes"]) == {"16", "32"}
    assert 0 < document["tables"][0]["chance"] < 1


def test_protocol_d_has_both_codings(shell: Shell, fits: list[str]) -> None:
    arguments = (
        "--methods",
        "cca",
        "--protocol",
        "D",
        "--bits",
        "16",
        "--seeds",
        "1",
        "--out",
        "lab",
        "--json",
    )
    document = json.loads(shell("evaluate", DATA, *arguments, *QUICK))
    rows = {"CCA, uncompressed", "CCA, uncompressed, from the searched half"}
    assert set(document["tables"][0]["rows"]) == rows
    assert fits == ["cca"]


def test_parameters_of_a_file_are_used(shell: Shell, tmp_path: Path) -> None:
    chosen = {"generated-160": {"methods": {"cca": {"*": {"ridge": 3.0}}}}}
    (tmp_path / "chosen.json").write_text(json.dumps(chosen))
    arguments = ("--methods", "cca", "--bits", "16", "--seeds", "1", "--out", "lab")
    shell("evaluate", DATA, *arguments, *QUICK, "--parameters", "chosen.json")
    (result,) = read_results(tmp_path / "lab")
    assert dict(result.run.parameters) == {"ridge": 3.0} == {"ridge": result.details["parameters"]["ridge"]}


def test_the_help_names_every_system(shell: Shell) -> None:
    for command in ("evaluate", "tune"):
        told = re.sub(r"-\s+", "-", shell(command, "--help").partition("--methods NAMES")[2])
        named = set(re.findall(r"[a-z0-9-]+", told))
        assert {*registry.list_keys(), *registry.GROUPS} <= named


def test_a_damaged_result_is_told_with_the_report(shell: Shell, tmp_path: Path) -> None:
    arguments = ("evaluate", DATA, "--methods", "random", "--bits", "8", "--seeds", "1", "--out", "lab")
    shell(*arguments, "--jobs", "1", "--quiet")
    (tmp_path / "lab" / "runs" / "cut.json").write_text("{")
    for text in (shell("report", "lab"), shell(*arguments, "--jobs", "1", "--quiet")):
        assert "left out of the report: cut.json: expected a result of an evaluation" in text
    assert len(json.loads(shell("report", "lab", "--json"))["notes"]) == 1


def test_the_report_is_written(shell: Shell, tmp_path: Path) -> None:
    arguments = ("--methods", "random,cca", "--quick", "--out", "lab", "--jobs", "1", "--quiet", "--json")
    document = json.loads(shell("evaluate", DATA, *arguments))
    assert document["report"] and all((tmp_path / page).exists() for page in document["report"])
    assert any(Path(page).suffix == ".svg" for page in document["report"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.npz", "--out", "x"), "there is no such file or folder"),
        ((DATA,), "expected a folder for the results"),
        ((DATA, "--out", "x", "--methods", "nobody"), "expected the key of a system"),
        ((DATA, "--out", "x", "--methods", ","), "--methods: expected names"),
        ((DATA, "--out", "x", "--bits", "16,x"), "--bits: expected numbers above 0"),
        ((DATA, "--out", "x", "--bits", "0"), "--bits: expected numbers above 0"),
        ((DATA, "--out", "x", "--bits", "12", "--methods", "cmcq"), "must be a multiple of 8"),
        ((DATA, "--out", "x", "--protocol", "Z"), "--protocol: expected A, B, C or D, got 'Z'"),
        ((DATA, "--out", "x", "--quick", "--bits", "16"), "--quick is one seed, 16 and 32 bits"),
        ((DATA, "--out", "x", "--methods", "cca", "--ablations"), "--ablations varies cmcq"),
        ((DATA, "--out", "x", "--parameters", "none.json"), "none.json"),
        ((DATA, "--out", "x", "--similarity", "both"), "Invalid value for '--similarity'"),
    ],
)
def test_wrong_input_is_refused_in_two_lines_before_any_run(
    shell: Shell, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    told = shell("evaluate", *arguments, *QUICK, code=2)
    assert said in told and len(told.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_data_without_labels_are_refused_where_labels_are_needed(shell: Shell, tmp_path: Path) -> None:
    write_pairs(tmp_path / "own.npz")
    own = partial(shell, "evaluate", "own.npz", *QUICK, "--out", "x", code=2)
    assert "SePH" in own("--methods", "seph") and "learns from labels" in own("--methods", "seph")
    assert "protocol A judges by labels" in own("--methods", "cca", "--protocol", "A")
    assert "these data have no labels" in own("--methods", "cvh", "--similarity", "labels")


def test_results_that_cannot_be_written_cost_no_run(shell: Shell, tmp_path: Path, fits: list[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    told = shell("evaluate", DATA, "--methods", "random", "--out", "taken", *QUICK, code=2)
    assert told.startswith("crossbyte: taken/runs: expected a folder to write results into, got Not a dir")
    assert told.splitlines()[1:] == ["  name another folder"] and not fits


def test_a_run_that_fails_is_told_at_the_end(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from crossbyte.lab.methods.hashing import RandomCodes

    def fit(self: Any, *_: Any) -> None:
        raise MemoryError("too much")

    monkeypatch.setattr(RandomCodes, "fit", fit)
    arguments = ("--methods", "random,cca", "--quick", "--out", "lab")
    told = shell("evaluate", DATA, *arguments, *QUICK, code=6)
    assert told.startswith("crossbyte: random, 32 bits, protocol A, seed 0: MemoryError: too much\n")
    assert "2 runs failed, 2 are done" in told


def program() -> list[str]:
    script = Path(sys.executable).with_name("crossbyte")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "crossbyte"]


def test_the_real_program_in_two_processes_gives_what_one_gives(shell: Shell, tmp_path: Path) -> None:
    arguments = [
        "evaluate",
        DATA,
        "--methods",
        "random,cca,cvh",
        "--bits",
        "16",
        "--seeds",
        "1",
        "--no-report",
    ]
    done = subprocess.run(
        [*program(), *arguments, "--out", "two", "--jobs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("two: 3 results made\n")
    shell(*arguments, "--out", "one", "--jobs", "1", "--quiet")
    one, two = read_results(tmp_path / "one"), read_results(tmp_path / "two")
    assert [each.run for each in one] == [each.run for each in two] and len(one) == 3
    for here, there in zip(one, two, strict=True):
        assert here.scores == there.scores and here.per_query == there.per_query


def test_ctrl_c_leaves_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    seeds = ["--methods", "random", "--bits", "16", "--seeds", "400", "--no-report"]
    # The program as it is, but that it takes Ctrl-C also as a job in the background.
    eager = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    eager += "from crossbyte.cli import app; app.main()"
    command = [
        sys.executable,
        "-c",
        eager,
        "evaluate",
        DATA,
        *seeds,
        "--out",
        "lab",
        "--jobs",
        "2",
        "--quiet",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list((tmp_path / "lab" / "runs").glob("*.json")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert told.startswith("crossbyte: interrupted after ") and "of 400 runs" in told
    assert told.splitlines()[1] == "  run the same command again to go on from there"
    assert read_results(tmp_path / "lab")
    assert not list((tmp_path / "lab" / "runs").glob(".*"))


# A user's own pairs


@pytest.fixture
def quick_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the choice of crossbyte, which takes many fits."""
    monkeypatch.setattr(score_tables, "CHOSEN", "cmcq-cca")


@pytest.mark.parametrize("faiss", [True, False])
def test_own_pairs_give_a_quality_table(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_choice: None, faiss: bool
) -> None:
    monkeypatch.setattr(score_tables, "is_installed", lambda module: faiss)
    write_pairs(tmp_path / "own.npz")
    text = shell("evaluate", "own.npz", "--bits", "16", *QUICK)
    assert "2 bytes per item, learned from 216 pairs, asked among 24 unseen pairs" in text
    names = ["crossbyte", "CCA, uncompressed", "CCA + RQ of the middle", "CCA + PQ", "CCA + RQ", "chance"]
    names += ["CCA + OPQ", "CCA + LSQ"] if faiss else []
    for name in names:
        assert sum(line.startswith(f"{name}  ") for line in text.splitlines()) == 3, name
    *_, verdict, note = text.splitlines()
    assert "wins" in verdict or "cannot be told apart" in verdict
    assert "keyword overlap with their own texts, are not compared: the held-out pairs have no other" in note
    assert [path.name for path in tmp_path.iterdir()] == ["own.npz"]


def test_own_pairs_as_json_and_kept(shell: Shell, tmp_path: Path, quick_choice: None) -> None:
    write_pairs(tmp_path / "own.npz")
    arguments = ("evaluate", "own.npz", "--bits", "16", *QUICK, "--out", "kept", "--json")
    document = json.loads(shell(*arguments))
    (table,) = document["tables"]
    own, uncompressed, *_, chance = table["systems"]
    assert (own["name"], own["n_bytes"], own["gain"]) == ("crossbyte", 2, None)
    assert uncompressed["n_bytes"] > 8 and chance["recall"]["image-to-text"]["10"]["value"] == 10 / 24
    for system in table["systems"][1:-1]:
        assert system["gain"]["low"] <= system["gain"]["value"] <= system["gain"]["high"]
    for value in own["recall"]["text-to-image"].values():
        assert 0 <= value["low"] <= value["value"] <= value["high"] <= 1
    assert json.loads(shell(*arguments)) == document and document["report"] == []
    text = shell("evaluate", "own.npz", "--bits", "16", "--jobs", "1", "--quiet", "--out", "kept")
    assert text.endswith("kept/report.html: the report\nkept/report.md: the report\n")
    assert (tmp_path / "kept" / "report.html").exists()
    assert len(read_results(tmp_path / "kept")) == len(table["systems"]) - 1


def test_own_pairs_with_other_texts_show_whole_documents_and_keyword_overlap(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_choice: None, fits: list[str]
) -> None:
    monkeypatch.setattr(score_tables, "is_installed", lambda module: False)
    write_captioned(tmp_path / "own.npz")
    arguments = ("evaluate", "own.npz", "--bits", "16", "--jobs", "1", "--quiet", "--out", "kept")
    text = shell(*arguments)
    one_sided, whole = text.split("2 bytes per document known from both halves, learned from 216 pairs, ")
    assert whole.startswith("24 other texts ask for 24 unseen documents; documents found of 100")
    assert "image to text" in one_sided and "image to text" not in whole
    assert "keyword overlap" not in one_sided and "CCA + RQ of the middle" in one_sided
    assert sum(line.startswith("keyword overlap  ") for line in whole.splitlines()) == 2
    assert "are not compared" not in text
    assert sorted(fits) == sorted({*fits}), "one fit serves both tables"
    wide = {result.run.method: result.run.parameters for result in read_results(tmp_path / "kept")}
    peers = {method for method, given in wide.items() if given == {"n_components": 128}}
    assert peers == {"cca", "cca-middle-rq", "own-pq", "own-rq"} and wide["keywords"] == {}
    (table,) = json.loads(shell(*arguments, "--json"))["documents"]
    systems = {system["key"]: system for system in table["systems"]}
    n_words = np.count_nonzero(np.load(tmp_path / "own.npz")["texts"]) / 240
    assert abs(systems["keywords"]["n_bytes"] - n_words) < 1.5  # a byte for each of at most 256 words
    assert systems["cca-middle-rq"]["n_bytes"] == 2 and systems["cca"]["n_bytes"] > 8
    for key in ("keywords", "cca-middle-rq"):
        assert systems[key]["recall"]["text-to-image"]["10"]["value"] > 10 / 24
        assert systems[key]["gain"]["low"] <= systems[key]["gain"]["high"]
    page = (tmp_path / "kept" / "report.md").read_text()
    assert "keyword overlap has no code: it keeps a document's words" in page


def test_captions_of_one_picture_ask_for_it(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_choice: None
) -> None:
    monkeypatch.setattr(score_tables, "is_installed", lambda module: False)
    pairs = make_pairs(240, 12, 30, words_per_text=10.0, random_state=0)
    images = np.repeat(pairs.images[:120], 2, axis=0)
    np.savez(tmp_path / "own.npz", images=images, texts=pairs.texts.toarray(), groups=np.arange(240) // 2)
    text = shell("evaluate", "own.npz", "--bits", "16", *QUICK)
    assert "12 other texts ask for 12 unseen documents" in text and "are not compared" not in text
    assert "keyword overlap" not in text  # thirty dense numbers are no words


def test_what_a_system_cannot_answer_is_a_dash(shell: Shell, tmp_path: Path) -> None:
    arguments = ("--methods", "keywords,random", "--bits", "8", "--seeds", "1", "--out", "lab", *QUICK)
    text = shell("evaluate", DATA, *arguments, "--protocol", "A,B")
    assert "keywords is left out of protocol B: it can answer none of its queries" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("keyword overlap")]
    assert rows[0] == ["keyword", "overlap", "–"] and float(rows[1][2]) > 0  # images cannot ask
    assert {result.run.protocol: set(result.scores) for result in read_results(tmp_path / "lab")
            if result.run.method == "keywords"} == {"A": {"text-to-image"}}  # fmt: skip
    told = shell("evaluate", DATA, *arguments[:1], "keywords", *arguments[2:], "--protocol", "B", code=2)
    assert told.endswith("it can answer none of its queries\n  use another protocol\n")


def test_features_that_are_no_words_have_no_keyword_overlap(shell: Shell, tmp_path: Path) -> None:
    pairs = make_pairs(60, 12, 30, random_state=0)
    np.savez(tmp_path / "own.npz", images=pairs.images, texts=pairs.texts.toarray() - 1)
    common = ("--protocol", "B", "--bits", "8", "--seeds", "1", "--out", "lab", *QUICK)
    told = shell("evaluate", "own.npz", "--methods", "keywords", *common, code=2)
    assert "keywords compares words, and these text features are not counts of words" in told


def test_too_few_own_pairs_are_refused_before_any_run(shell: Shell, tmp_path: Path, fits: list[str]) -> None:
    write_pairs(tmp_path / "own.npz", 21)
    told = shell("evaluate", "own.npz", *QUICK, code=2)
    assert told.startswith("crossbyte: expected at least 20 pairs to learn from, got 19") and not fits


def test_options_without_effect_on_own_pairs_are_refused(shell: Shell, tmp_path: Path) -> None:
    write_pairs(tmp_path / "own.npz")
    for options in (("--seeds", "3"), ("--quick",), ("--ablations",), ("--similarity", "pairs")):
        told = shell("evaluate", "own.npz", *options, *QUICK, code=2)
        assert told.startswith(f"crossbyte: {options[0]} has no effect on data without labels")
    assert "must be a multiple of 8" in shell("evaluate", "own.npz", "--bits", "12", *QUICK, code=2)


def test_ctrl_c_on_own_pairs_promises_nothing(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_choice: None
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "fit_system", stopped)
    write_pairs(tmp_path / "own.npz")
    told = shell("evaluate", "own.npz", *QUICK, code=130)
    assert told.splitlines()[0] == "crossbyte: interrupted" and "go on" not in told
    told = shell("evaluate", "own.npz", *QUICK, "--out", "kept", code=130)
    assert told.startswith("crossbyte: interrupted before the first of 7 runs was done")


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Estimate(0.02, 0.01, 0.03), "crossbyte wins: it finds 2.0 more of 100 partners"),
        (Estimate(-0.02, -0.03, -0.01), "A simpler system wins: crossbyte finds 2.0 fewer of 100 partners"),
        (Estimate(0.01, -0.01, 0.03), "cannot be told apart on these pairs: crossbyte finds 1.0 more"),
    ],
)
def test_the_verdict_is_plain(gain: Estimate, said: str) -> None:
    def system(key: str, recall: float, own_gain: Estimate | None) -> score_tables.SystemQuality:
        by_depth = {10: Estimate(recall, recall, recall)}
        tasks = dict.fromkeys(("image-to-text", "text-to-image"), by_depth)
        return score_tables.SystemQuality(key, key, 2, tasks, own_gain)

    words = Estimate(-0.3, -0.4, -0.2)
    systems = [
        system("cmcq-auto", 0.5, None),
        system("keywords", 0.8, words),
        system("cca", 0.9, Estimate(-0.4, -0.4, -0.4)),
        system("cca-pq", 0.2, Estimate(0.3, 0.3, 0.3)),
        system("cca-rq", 0.4, gain),
        system("chance", 0.1, None),
    ]
    verdict = score_tables._say_who_wins(systems)
    assert said in verdict and "cca-rq" in verdict
    assert verdict.partition("Keyword overlap, which keeps the words (2 bytes per document), finds more")[1]
    assert "Keyword" not in score_tables._say_who_wins(systems[:1] + systems[2:])


# tune


def test_tune_chooses_by_validation_and_goes_on(shell: Shell, tmp_path: Path, fits: list[str]) -> None:
    arguments = ("tune", DATA, "--methods", "cca,random", "--bits", "8,16", "--jobs", "1", "--quiet", "--out")
    text = shell(*arguments, "chosen.json")
    assert text.startswith("chosen.json: chosen parameters") and "random has nothing to choose" in text
    n_trials = 2 * (1 + 1 + 5)  # two lengths; the default, the other power, and the ridges
    assert fits == ["cca"] * n_trials
    document = json.loads((tmp_path / "chosen.json").read_text())
    entry = document["generated-160"]
    assert set(entry["methods"]) == {"cca"} and set(entry["methods"]["cca"]) == {"8", "16"}
    assert "map@50" in entry["chosen"] and "labels" in entry["chosen"]
    told = shell(*arguments, "chosen.json", code=2)
    assert "something is there already" in told
    shell(*arguments, "chosen.json", "--overwrite")
    assert len(fits) == n_trials
    shell("evaluate", DATA, "--methods", "cca", "--bits", "8", "--seeds", "1", *QUICK, "--out", "lab",
          "--parameters", "chosen.json")  # fmt: skip
    (result,) = read_results(tmp_path / "lab")
    assert dict(result.run.parameters) == entry["methods"]["cca"]["8"]


def test_tune_by_pairs_needs_no_labels(shell: Shell, tmp_path: Path) -> None:
    write_pairs(tmp_path / "own.npz")
    arguments = (
        "--methods",
        "cca",
        "--bits",
        "8",
        "--jobs",
        "1",
        "--quiet",
        "--out",
        "chosen.json",
        "--json",
    )
    document = json.loads(shell("tune", "own.npz", *arguments))
    assert "recall@10" in document["own"]["chosen"]
    assert 0 < document["own"]["scores"]["cca"]["8"] <= 1
    document = json.loads(shell("tune", "own.npz", *arguments, "--by", "classes", "--overwrite"))
    assert "map@50" in document["own"]["chosen"] and "(classes;" in document["own"]["chosen"]
    assert 0 < document["own"]["scores"]["cca"]["8"] <= 1
    told = shell("tune", "own.npz", *arguments, "--by", "labels", "--overwrite", code=2)
    assert "judges by labels" in told


def test_tune_refuses_systems_without_parameters(shell: Shell) -> None:
    told = shell("tune", DATA, "--methods", "random", "--out", "x.json", code=2)
    assert "random has nothing to choose" in told
