"""The examples with pictures and the tutorial, run as they stand: small, and one after another."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from crossbyte.cli import app
from crossbyte.data.scenes import write_scenes
from support.paths import ROOT

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
QUICK = [
    "--mapping",
    "cca",
    "--bits",
    "8",
    "--curve",
    "",
    "--param",
    "max_iter=1",
    "--param",
    "n_components=16",
]


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_own_photos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = example("own_photos")
    write_scenes(tmp_path / "photos", 150)
    own["main"](tmp_path / "photos", tmp_path / "photos.cb", quick=True)
    printed = capsys.readouterr().out
    assert "150 pictures with 300 captions" in printed and "the right picture is among" in printed
    blue = re.findall(r"^words, blue only → .*: (.*)$", printed, flags=re.MULTILINE)
    assert len(blue) == 3 and all("blue" in caption or "azure" in caption for caption in blue)
    assert own["found_again"](tmp_path / "photos.cb", 20) > 2.5  # by chance


def test_own_encoders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example("own_encoders")["main"](tmp_path, 200)
    printed = capsys.readouterr().out
    assert "image: own_encoders:colours_by_place, 192 numbers" in printed
    assert printed.count("→ scene-") == 3
    found, chance = re.findall(r"first 10 for (\d+) of 100|chance: (\d+)", " ".join(printed.split()))
    assert int(found[0]) > int(chance[1])


def test_serve_and_ask(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own = example("serve_and_ask")
    own["main"](own["small_index"](tmp_path))
    printed = capfd.readouterr().out
    assert "100 documents of 2 bytes a side, at http://127.0.0.1:" in printed
    assert printed.count("words → scene-") == 3 and "more like the first: scene-" in printed
    assert "colour" in printed.partition("filters:")[2]


def blocks() -> list[tuple[str, str]]:
    """Language and text of the tutorial's blocks that can be run."""
    return re.findall(r"^```(python|bash)\n(.*?)^```", TUTORIAL, flags=re.MULTILINE | re.DOTALL)


def test_the_tutorial_runs_from_its_first_block_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a reader would; fits are made quick, and only the first of them is run."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for language, text in blocks():
        if language == "python":
            exec(compile(text.replace('"photos", 300', '"photos", 120'), "tutorial.md", "exec"), namespace)
            continue
        for line in text.splitlines():
            run_line(line, capsys)
    assert (tmp_path / "photos.cb").is_file()


def run_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, command, *arguments = shlex.split(line)
    assert program == "crossbyte"
    if command == "fit" and len(arguments) > 1:  # the same once more, with options that have to exist
        assert app.run([command, "--help"]) == 0
        known = capsys.readouterr().out
        assert all(option in known for option in arguments if option.startswith("-")), line
    else:
        assert app.run([command, *arguments, *(QUICK if command == "fit" else [])]) == 0, (
            capsys.readouterr().err
        )
        assert capsys.readouterr().out, line
