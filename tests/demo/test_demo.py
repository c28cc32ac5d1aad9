"""The demo: its pictures, what it makes and keeps, and the page that it prints."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossbyte import Index
from crossbyte.cli import program
from crossbyte.cli.exit_codes import report_error as failure
from crossbyte.demo import demo as running
from crossbyte.demo import icons as icons_module
from crossbyte.demo.demo import SUBJECTS, UNSEEN, Choice, draw_braille, run_demo
from crossbyte.demo.icons import Icon, read_icons, write_icons

NUMBER = "120"


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Shorter codes and fits: what is tested is the program, not its figures."""
    quick = {"mapping": "cca", "n_bits": 8, "curve": (1,)}
    quick["parameters"] = {"max_iter": 1, "text_components": 32, "image_components": 32, "n_components": 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "SETTINGS", quick)
        patch.setenv("COLUMNS", "100")
        yield


def demo(*arguments: str | Path) -> int:
    """Run the command as the program does; returns the exit code."""
    try:
        return program.execute(
            {"demo": "crossbyte.cli.commands.demo"}, ["demo", "--quiet", *map(str, arguments)]
        )
    except Exception as error:
        return failure(error)


@pytest.fixture(scope="module")
def scenes(small: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished demo of scenes."""
    out = tmp_path_factory.mktemp("demo") / "new"
    assert demo("scenes", "--number", NUMBER, "--out", out, "--json") == 0
    return out


# Icons


@pytest.fixture(scope="module")
def all_icons() -> list[Icon]:
    return read_icons()


def test_all_icons_are_read_with_their_words(all_icons: list[Icon]) -> None:
    by_file = {icon.file: icon for icon in all_icons}
    assert len({icon.name for icon in all_icons}) >= 1885 and len(by_file) == len(all_icons) > 2000
    shrimp = by_file["solid/shrimp.png"]
    assert shrimp.label == "Shrimp" and "seafood" in shrimp.terms
    assert shrimp.caption.startswith("Shrimp: ") and "prawn" in shrimp.caption
    assert by_file["brands/rev.png"].caption == by_file["brands/rev.png"].label  # no search terms


def test_the_smallest_category_comes_first(all_icons: list[Icon]) -> None:
    (shrimp,) = (icon for icon in all_icons if icon.name == "shrimp")
    counts = {name: sum(name in icon.categories for icon in all_icons) for name in shrimp.categories}
    assert len(counts) > 1 and list(counts.values()) == sorted(counts.values())
    assert all(not name.startswith(("'", " ")) for icon in all_icons for name in icon.categories)


def test_a_number_of_icons_is_the_same_for_the_same_seed(all_icons: list[Icon]) -> None:
    some = read_icons(100, seed=3)
    assert some == read_icons(100, seed=3) != read_icons(100, seed=4)
    assert len({icon.name for icon in some}) == 100 and set(some) <= set(all_icons)


def test_drawings_are_whole_and_in_the_middle(all_icons: list[Icon], tmp_path: Path) -> None:
    chosen = all_icons[::60]
    write_icons(tmp_path, chosen)
    for icon in chosen:
        with Image.open(tmp_path / icon.file) as picture:
            ink = 255 - np.asarray(picture, dtype=float)
        assert ink.shape == (128, 128) and 0.01 < ink.mean() / 255 < 0.9, icon.file
        assert ink[:8].max() == ink[-8:].max() == ink[:, :8].max() == ink[:, -8:].max() == 0, icon.file
        rows, columns = np.nonzero(ink)
        assert abs(rows.min() + rows.max() - 127) <= 1 and abs(columns.min() + columns.max() - 127) <= 1
    with (tmp_path / "captions.csv").open(newline="", encoding="utf-8") as file:
        assert [row["image"] for row in csv.DictReader(file)] == [icon.file for icon in chosen]


def test_icons_kept_away_are_in_no_style_among_the_others(tmp_path: Path) -> None:
    SUBJECTS["icons"].write(tmp_path / "icons", tmp_path / "unseen", 150, 0)
    seen, away = ({path.stem for path in (tmp_path / name).rglob("*.png")} for name in ("icons", "unseen"))
    assert len(away) == UNSEEN and len(seen) == 150 - UNSEEN and not seen & away


def test_without_the_icons_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fontawesomefree", None)
    assert demo("--out", tmp_path / "out") == 7
    assert "pip install 'crossbyte[demo]'" in capsys.readouterr().err
    assert icons_module.FONTS and not (tmp_path / "out" / "icons.cb").exists()


def test_icons_are_searched_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo("icons", "--number", NUMBER, "--out", tmp_path) == 0
    text = capsys.readouterr().out
    assert all(query in text for query in SUBJECTS["icons"].texts)
    assert text.count("its own words") == running.PICTURES
    assert "Font Awesome Free" in text and "chance" in text


# What it makes


def test_everything_is_in_the_folder_and_the_index_is_a_plain_one(scenes: Path) -> None:
    with Index.open(scenes / "scenes.cb") as index:
        index.verify()
        assert len(index) == int(NUMBER)
    assert len(list((scenes / "scenes").glob("*.png"))) == int(NUMBER)
    assert len(list((scenes / "scenes-unseen").glob("*.png"))) == UNSEEN


def test_json_has_answers_and_the_report(scenes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo("scenes", "--number", NUMBER, "--out", scenes, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seconds"] is None  # nothing was made: the index of the first run was opened
    assert document["documents"] == int(NUMBER) and document["bytes_per_item"] == 1
    assert document["report"]["n_held_out"] > 5
    assert [answer["text"] is None for answer in document["answers"]].count(True) == running.PICTURES
    filtered = next(answer for answer in document["answers"] if answer["where"])
    assert filtered["hits"] and filtered["where"] == SUBJECTS["scenes"].filtered.where


def test_an_index_of_other_options_is_left_alone_unless_asked(
    scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (scenes / "scenes.cb").read_bytes()
    assert demo("scenes", "--number", "130", "--out", scenes) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (scenes / "scenes.cb").read_bytes() == before


def test_overwrite_makes_the_index_anew(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(scenes, tmp_path / "copy")
    assert demo("scenes", "--number", "110", "--out", tmp_path / "copy", "--overwrite") == 0
    assert "written in" in capsys.readouterr().out
    with Index.open(tmp_path / "copy" / "scenes.cb") as index:
        assert len(index) == 110
    assert len(list((tmp_path / "copy" / "scenes").glob("*.png"))) == 110


@pytest.mark.parametrize("arguments", [[], ["--overwrite"]])
def test_files_of_others_are_never_touched(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenes.cb").write_text("mine")
    assert demo("scenes", "--out", tmp_path, *arguments) == 2
    assert "not made by the demo" in capsys.readouterr().err
    (tmp_path / "scenes.cb").unlink()
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes" / "diary.txt").write_text("mine, too")
    assert demo("scenes", "--out", tmp_path, *arguments) == 2
    assert "give another --out" in capsys.readouterr().err
    assert (tmp_path / "scenes" / "diary.txt").read_text() == "mine, too"


@pytest.mark.parametrize(
    "arguments", [["--number", "5"], ["--seed", "-1"], ["--picture", "no/such/x.svg"], ["clouds"]]
)
def test_bad_options_are_refused_before_any_work(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(*arguments, "--out", tmp_path / "out") == 2
    assert capsys.readouterr().out == "" and not (tmp_path / "out").exists()


def test_ctrl_c_leaves_no_index_and_the_next_run_makes_it(tmp_path: Path) -> None:
    """A real signal in the middle."""
    choice = Choice("scenes", tmp_path, int(NUMBER))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            run_demo(
                choice, lambda step: signal.raise_signal(signal.SIGINT) if step.stage == "codebooks" else None
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert not choice.index.exists()
    assert run_demo(choice).n_documents == int(NUMBER)


# The page


@pytest.fixture(scope="module")
def printed(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a run prints, and the picture it saves."""
    import io
    from contextlib import redirect_stdout

    picture, stream = tmp_path_factory.mktemp("picture") / "demo.svg", io.StringIO()
    with redirect_stdout(stream):
        assert demo("scenes", "--number", NUMBER, "--out", scenes, "--picture", picture) == 0
    return stream.getvalue(), picture


def test_the_page_shows_answers_quality_and_what_to_do_next(printed: tuple[str, Path], scenes: Path) -> None:
    text = " ".join(printed[0].split())
    assert all(query in text for query in SUBJECTS["scenes"].texts)
    assert "opened as an earlier run left it" in text
    assert "the right picture is among the first 10 for" in text and "chance" in text
    for command in ("serve", "search", "fit"):
        assert f"crossbyte {command}" in text
    assert str(scenes / "scenes.cb") in printed[0].replace("\n", "")


def test_the_table_has_every_length_beside_no_code_and_chance(printed: tuple[str, Path]) -> None:
    rows = re.findall(
        r"^ *(1|chance|\d+ \(not compressed\)) .*?([\d.]+) of 100 +([\d.]+) of 100", printed[0], re.M
    )
    assert [name for name, *_ in rows] == ["1", "32 (not compressed)", "chance"]
    recall = {name: (float(one) + float(two)) / 2 for name, one, two in rows}
    assert recall["chance"] < recall["32 (not compressed)"] <= 100


def test_the_picture_is_whole_and_asks_for_nothing_from_the_web(printed: tuple[str, Path]) -> None:
    text = printed[1].read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "@font-face" not in text and "url(http" not in text
    assert "chance" in text


def test_pictures_become_dots_where_they_differ_from_their_ground() -> None:
    for ground, ink in ((255, 0), (0, 200)):
        pixels = np.full((80, 80, 3), ground, np.uint8)
        pixels[:, 40:] = ink
        lines = draw_braille(pixels, rows=3)
        assert lines == [chr(0x2800) * 3 + chr(0x28FF) * 3] * 3
    assert draw_braille(np.zeros((50, 90, 3), np.uint8), rows=2) == [chr(0x2800) * 4] * 2
