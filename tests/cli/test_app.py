"""The command line in this process: its help, its page, and its small parts."""

from __future__ import annotations

import errno
import inspect
import io
import json
import re
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import crossbyte
from crossbyte import _format, errors
from crossbyte.cli import app, exit_codes, inputs, output
from crossbyte.cli import output as progress
from crossbyte.cli.exit_codes import ExitCode
from crossbyte.progress import Progress
from support.paths import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
HEAVY = {"numpy", "scipy", "sklearn", "rich", "pyarrow", "faiss"}


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text)) - {"-h", "--help"}


def own_section(command: str) -> str:
    match = re.search(rf"^## {command}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert match, f"docs/cli.md has no section on {command}"
    return match[1]


# Help


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from crossbyte.cli.app import run; run(['--help']); run(['fit', '--help'])\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded and loaded & HEAVY == set()


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(arguments) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^  {command} +[A-Z].*\.$", text, flags=re.MULTILINE) for command in app.COMMANDS)


def test_every_verb_module_is_a_verb() -> None:
    package = import_module("crossbyte.cli.commands")
    stems = {path.stem for path in Path(inspect.getfile(package)).parent.glob("*.py")} - {"__init__"}
    assert {f"{package.__name__}.{stem}" for stem in stems} == set(app.COMMANDS.values())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"crossbyte {crossbyte.__version__}\n"


@pytest.mark.parametrize("command", app.COMMANDS)
def test_help_of_a_command_has_an_example_and_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert re.search(rf"Example:\n    crossbyte {command}\b", text)
    assert "--json" in text


@pytest.mark.parametrize("command", app.COMMANDS)
def test_examples_use_options_that_exist(command: str) -> None:
    doc = inspect.getdoc(getattr(import_module(app.COMMANDS[command]), command)) or ""
    examples = [line for line in doc.splitlines() if line.startswith(f"  crossbyte {command}")]
    assert examples
    for line in examples:
        assert options_in(line) <= options_in(own_section(command)), line


@pytest.mark.parametrize("command", app.COMMANDS)
def test_every_option_is_on_the_page_and_no_other(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    app.run([command, "--help"])
    listed = capsys.readouterr().out.partition("\nOptions:\n")[2]
    declared = [line.split("  ")[1] for line in listed.splitlines() if re.match(r"  -", line)]
    known = set().union(*map(options_in, declared))
    assert "--json" in known
    assert known == options_in(" ".join(re.findall(r"`(-[^`]*)`", own_section(command))))


def test_the_page_has_a_section_and_a_row_for_every_verb_and_no_other() -> None:
    sections = re.findall(r"^## ([a-z]+)$", PAGE, flags=re.MULTILINE)
    rows = re.findall(r"^\| \[`([a-z]+)`\]", PAGE, flags=re.MULTILINE)
    assert sections == rows == list(app.COMMANDS)


def test_the_page_has_every_exit_code_and_no_other() -> None:
    table = re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert [int(code) for code in table] == list(ExitCode)


# Failures


@pytest.mark.parametrize(
    "module", ["typer", "crossbyte.cli.output", "crossbyte.cli.commands.search", "numpy"]
)
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    """As if the key were pressed at the moment when this module is looked for."""
    program = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from crossbyte.cli.app import main\n"
        "sys.argv = ['crossbyte', 'fit', 'nothing.npz', '-o', 'nothing.cbm']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 2 and done.stderr.startswith("crossbyte: interrupted\n")


def test_ctrl_c_while_arguments_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperCommand.parse_args", stopped)
    assert app.run(["verify", "nothing.cb"]) == 130
    assert capsys.readouterr().err.startswith("crossbyte: interrupted\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("x"), 2),
        (errors.DataFileError("x"), 2),
        (errors.NotCalibrated("x"), 2),
        (errors.UnknownId("x"), 2),
        (errors.IndexExists("x"), 2),
        (errors.NotFitted("x"), 2),
        (errors.NoPlan("x"), 3),
        (errors.DamagedModelFile("x"), 5),
        (errors.ForeignIndexFile("x"), 5),
        (errors.IndexLocked("x"), 5),
        (errors.StorageFull("x"), 6),
        (errors.StorageFailed("x"), 6),
        (errors.MissingExtra("x"), 7),
        (errors.FitInterrupted("x"), 130),
        (errors.NumericalError("x"), 1),
        (FileNotFoundError(errno.ENOENT, "no such file", "x"), 2),
        (PermissionError(errno.EACCES, "no", "x"), 2),
        (OSError(errno.ENOSPC, "no space left", "x"), 6),
        (OSError(errno.EIO, "broken", "x"), 6),
        (MemoryError(), 6),
        (KeyboardInterrupt(), 130),
        (KeyError("x"), 1),
    ],
)
def test_every_error_has_its_code_and_two_lines(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.report_error(error) == code
    what, what_to_do = capsys.readouterr().err.splitlines()
    assert what.startswith("crossbyte: ") and re.match(r"  \S", what_to_do)


def test_every_error_of_the_tree_is_judged() -> None:
    """None of our own errors but the one that is a fault of ours may look like a bug."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    bugs = [kind.__name__ for kind in kinds if exit_codes.exit_code(kind("x")) is ExitCode.BUG]
    assert bugs == ["CrossbyteError", "NumericalError"]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (errors.InvalidInput("a: expected b; got c; do d"), ("a: expected b; got c", "do d")),
        (errors.DuplicateId("x: there; use upsert() to replace it"), ("x: there", "use --upsert")),
        (errors.UnknownId("x: no document; nothing was changed"), (None, "check the id")),
        (
            errors.FilterError("expected y, found z at character 3:\n  a b\n    ^"),
            ("at character 3: a b", "docs"),
        ),
        (errors.FitInterrupted("fit was interrupted; the model is as it was before"), (None, "no file was")),
        (ZeroDivisionError("x"), ("unexpected ZeroDivisionError: x", "CROSSBYTE_DEBUG=1")),
    ],
)
def test_messages_are_parted_into_what_and_what_to_do(
    error: Exception, lines: tuple[str | None, str]
) -> None:
    what, what_to_do = exit_codes.describe_error(error)
    assert (lines[0] or str(error)) in what and lines[1] in what_to_do


def test_a_traceback_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_codes.report_error(KeyError("x"))
    assert "KeyError" in (plain := capsys.readouterr().err) and plain.count("\n") == 2
    monkeypatch.setenv(exit_codes.DEBUG, "1")
    exit_codes.report_error(KeyError("x"))
    assert len(capsys.readouterr().err.splitlines()) > 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["--nothing"],
        ["fit"],
        ["fit", "x.npz"],
        ["fit", "x.npz", "-o", "m.cbm", "--bits", "many"],
        ["fit", "x.npz", "-o", "m.cbm", "--mapping", "magic"],
        ["fit", "x.npz", "-o", "nowhere/at/all/m.cbm"],
        ["fit", "x.npz", "-o", "m.cbm", "--param", "n_bits=8"],
        ["fit", "x.npz", "-o", "m.cbm", "--param", "nonsense"],
        ["fit", "x.npz", "-o", "m.cbm", "--param", "who=1"],
        ["fit", "x.npz", "-o", "m.cbm", "--min-recall", "0.5", "--no-calibrate"],
        ["fit", "-o", "m.cbm"],
        ["fit", "missing.npz", "-o", "m.cbm"],
        ["fit", "x.npz", "--images", "x.npy", "-o", "m.cbm"],
        ["add", "missing.cb", "missing.npz"],
        ["add", "missing.cb", "x.npz", "--side", "left"],
        ["delete", "missing.cb", "p1"],
        ["delete", "missing.cb"],
        ["search", "missing.cb", "--like", "p1"],
        ["search", "missing.cb", "--like", "p1", "--trec", "nowhere/at/all/run"],
        ["info", "missing.cb"],
        ["info", "."],
        ["report", "missing.cbm"],
        ["verify", "missing.cb"],
        ["compact", "missing.cb"],
        ["backup", "missing.cb", "copy.cb"],
        ["shard", "missing.cb", "-o", "copy.cbs", "--shards", "2"],
        ["shard", "missing.cb", "-o", "copy.cbs", "--shards", "0"],
        ["export", "missing.cb", "copy.xyz"],
        ["plan", "missing.npz", "--items", "10", "--max-memory", "much"],
        ["audit", "missing.npz", "--model", "missing.cbm"],
    ],
    ids=" ".join,
)
def test_wrong_command_lines_are_two_lines_and_code_2(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["encoders"], "Choose from: list, download"),
        (["fit", "x.npz", "-o", "m.cbm", "--bytes", "0"], "--bytes: expected an integer from 1 to 64, got 0"),
        (
            ["fit", "x.npz", "-o", "m.cbm", "--bytes", "65"],
            "--bytes: expected an integer from 1 to 64, got 65",
        ),
        (["fit", "index.cb"], "got an index.*crossbyte add index.cb FOLDER"),
        (["fit", "shards.cbs"], "got an index.*crossbyte add shards.cbs FOLDER"),
        (["add", "index.cb", "index.cb"], "got an index"),
        (["fit", "model.cbm"], "got a model.*crossbyte info model.cbm"),
        (["fit", "one.jpg"], "got one picture.*give the folder"),
        (["fit", "q.py"], "got a file that ends in .py.*docs/files.md"),
        (["fit", "x.npy"], "--images x.npy --texts"),
    ],
)
def test_what_is_no_data_is_named(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards.cbs").mkdir()
    for name in ("index.cb", "model.cbm", "one.jpg", "q.py", "x.npy", "x.npz"):
        (tmp_path / name).write_bytes(b"SQLite format 3\0" if name == "index.cb" else b"x")
    assert app.run(arguments) == 2
    told = capsys.readouterr().err
    assert re.search(f"(?s){said}", told) and len(told.splitlines()) == 2 and "\\n" not in told


# Output


def test_json_takes_numpy_and_what_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"a": np.float32(0.5), "b": np.arange(3), "c": [float("nan"), np.inf], 4: Path("x"), "é": None}
    output.emit(document, iter(()), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "a": 0.5,
        "b": [0, 1, 2],
        "c": [None, None],
        "4": "x",
        "é": None,
    }


def test_a_table_in_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a" * 500
    output.emit(
        {}, ["words", output.Table(("n>", "id"), [["1", long], ["10", "[b]\x1b[31m\n"]])], as_json=False
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["words", " n  id", f" 1  {long}", "10  [b]\\x1b[31m\\n"]


def test_a_table_on_a_terminal_keeps_brackets_and_obeys_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    output.emit({}, [output.Table(("n>", "id"), [["1", "[bold]x"]])], as_json=False)
    assert "[bold]x" in shown.getvalue() and "\x1b[3" not in shown.getvalue()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (12_345_678, "12.3 MB"), (2.5e12, "2.5 TB")],
)
def test_sizes_are_readable(size: float, text: str) -> None:
    assert _format.readable_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert _format.readable_seconds(seconds) == text


# Progress


def test_pace_says_how_many_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 2.0, 4.0, 5.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    pace = progress.Pace()
    assert pace(Progress("code", "pair", 1000, 4000)) == "1,000 of 4,000 rows, 500 rows/s, 6.0 s left"
    assert pace(Progress("code", "pair", 4000, 4000)) == "4,000 of 4,000 rows"
    assert pace(Progress("alternate", "C", 1, 3)) == "1 of 3 steps, 1 steps/s, 2.0 s left"


def test_progress_is_lines_in_a_log_and_nothing_when_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    for quiet in (False, True):
        with progress.show_progress("add", quiet=quiet) as callback:
            callback(Progress("code", "pair", 5, 10))
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert captured.err.startswith("crossbyte add: code (pair): 5 of 10 rows")


def test_a_log_goes_on_while_a_stage_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([False, False, True])
    over = SimpleNamespace(wait=lambda _: next(looks))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines = progress._ProgressLines("fit")
    lines(Progress("prepare", "both sides", 1, 1))
    lines._repeat_until(over)  # type: ignore[arg-type]
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("crossbyte fit: prepare (both sides); ") and "1 of 1" not in first
    assert len(others) == 2 and all("prepare (both sides) done, at work on" in line for line in others)
    before = threading.active_count()
    with progress.show_progress("fit", quiet=False):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    with progress.show_progress("add", quiet=False) as callback:
        callback(Progress("code", "[pair]", 5, 10))
    assert "add: code" in shown.getvalue()


# Small values


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("200MB", 200_000_000),
        ("1.5GiB", 1.5 * 2**30),
        ("10 kb", 10_000),
        ("1.5G", 1_500_000_000),
        ("7", 7),
        (None, None),
    ],
)
def test_sizes_are_read(text: str | None, size: float | None) -> None:
    assert inputs.parse_size(text, "--max-memory") == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "0", "1e3", "5 parsecs", "1,5MB"])
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInput, match="--max-disk: expected a number of bytes above 0"):
        inputs.parse_size(text, "--max-disk")


def test_parameters_are_json_or_text() -> None:
    texts = ["a=1", "b=0.5", "c=true", "d=null", "e=stored", 'f="x=y"', "g="]
    expected: dict[str, Any] = {"a": 1, "b": 0.5, "c": True, "d": None, "e": "stored", "f": "x=y", "g": ""}
    assert inputs.parse_parameters(texts) == expected


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a b=1"], ["a=1", "a=2"]])
def test_wrong_parameters_are_refused(texts: list[str]) -> None:
    with pytest.raises(errors.InvalidInput, match="expected name=value"):
        inputs.parse_parameters(texts)


def test_a_file_may_have_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd:name.npy").touch()
    assert inputs.parse_file("a.npz:key") == ("a.npz", "key")
    assert inputs.parse_file("a.npz") == ("a.npz", None)
    assert inputs.parse_file("odd:name.npy") == ("odd:name.npy", None)
    assert inputs.parse_file("C:\\a.npz") == ("C:\\a.npz", None)


@pytest.mark.parametrize(
    ("text", "rows"), [("2:4", [2, 3]), (":2", [0, 1]), ("3:", [3, 4]), (":", list(range(5)))]
)
def test_ranges_of_rows(text: str, rows: list[int]) -> None:
    assert list(range(5)[inputs.parse_rows(text)]) == rows


@pytest.mark.parametrize("text", ["", "3", "-2:4", "a:b", "1:2:3"])
def test_wrong_ranges_of_rows_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidInput, match="--rows: expected a range"):
        inputs.parse_rows(text)
