"""The demo, run in this process with sizes that take seconds."""

from __future__ import annotations

import io
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from rich.progress import Progress as Bars

from crossbyte import demo
from crossbyte.progress import Progress


@pytest.fixture(scope="module")
def small() -> Iterator[pytest.MonkeyPatch]:
    """Shrink the models: what is tested is the program, not its figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "N_BYTES", (2, 4))
        patch.setattr(demo, "ATOMS", 16)
        patch.setattr(demo, "ROUNDS", 1)
        patch.setenv("COLUMNS", "100")
        yield patch


@pytest.fixture(scope="module")
def output(small: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What one run prints, and the picture it saves."""
    picture = tmp_path_factory.mktemp("demo") / "demo.svg"
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        assert demo.main(["--pairs", "300", "--seed", "3", "--svg", str(picture)]) == 0
    return printed.getvalue(), picture


def table_row(text: str, name: str) -> list[str]:
    """Cells of the row of the quality table that begins with a name."""
    lines = [line.strip() for line in text[text.index("Where is the true partner") :].splitlines()]
    return next(line[len(name) :].split() for line in lines if line.startswith(name))


def test_searches_both_ways_and_shows_hits(output: tuple[str, Path]) -> None:
    text, _ = output
    assert text.count("text → image") == text.count("image → text") == demo.QUERIES
    assert text.count("its own image is at rank") == text.count("its own text is at rank") == demo.QUERIES


def test_table_has_every_length_beside_no_code_and_chance(output: tuple[str, Path]) -> None:
    text, _ = output
    assert table_row(text, "chance")[:4] == ["0.005", "0.050", "0.500", "100"]
    assert len(table_row(text, "not coded")) == 8
    assert all(len(table_row(text, f"{n} ")) == 10 for n in demo.N_BYTES)  # eight scores, and "0.1 s"


def test_codes_beat_chance_and_not_the_space_itself(output: tuple[str, Path]) -> None:
    text, _ = output
    recall_at_10 = [float(table_row(text, name)[1]) for name in ("chance", "2 ", "4 ", "not coded")]
    assert 3 * recall_at_10[0] < recall_at_10[1] < recall_at_10[3]
    assert 3 * recall_at_10[0] < recall_at_10[2] < recall_at_10[3]


def test_says_sizes_settings_and_the_papers_space(output: tuple[str, Path]) -> None:
    words = " ".join(output[0].split())
    assert "1,024 bytes of float32 features or 4 bytes of code (256 times less)" in words
    assert 'mapping="cca"' in words and 'cross_term="stored"' in words
    assert 'The paper\'s own space (mapping="sparse"' in words


def test_picture_is_whole_and_asks_for_nothing_from_the_web(output: tuple[str, Path]) -> None:
    text = output[1].read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "@font-face" not in text and "url(http" not in text
    assert "chance" in text


def test_world_is_a_function_of_its_seed() -> None:
    one, again, other = (demo.make_world(150, seed) for seed in (1, 1, 2))
    assert (one.train.images == again.train.images).all() and (one.train.texts != again.train.texts).nnz == 0
    assert (one.train.images != other.train.images).any()
    assert len(one.train.images) == 150 and len(one.held_out.images) == 200


def test_words_differ_and_can_be_pronounced() -> None:
    words = demo.make_words(demo.VOCABULARY)
    assert len(np.unique(words)) == demo.VOCABULARY
    assert all(letter in "aeiou" for word in words for letter in word[1::2])


def test_ctrl_c_is_one_line_and_130(
    small: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real signal in the middle of a fit."""

    def press_ctrl_c(bars: Bars, task: object, name: str) -> object:
        def show(step: Progress) -> None:
            if step.stage == "codebooks":
                signal.raise_signal(signal.SIGINT)

        return show

    monkeypatch.setattr(demo, "_watch", press_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        assert demo.main(["--pairs", "120"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    error = capsys.readouterr().err
    assert error.splitlines()[-1] == "crossbyte demo: interrupted; nothing was written"
    assert "Traceback" not in error


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        demo.main(["--help"])
    text = capsys.readouterr().out
    assert all(option in text for option in ("--pairs", "--seed", "--svg"))


@pytest.mark.parametrize(
    "arguments", [["--pairs", "5"], ["--pairs", "many"], ["--seed", "-1"], ["--svg", "no/such/folder/x.svg"]]
)
def test_bad_options_are_refused_before_any_work(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        demo.main(arguments)
    assert "expected a" in capsys.readouterr().err
