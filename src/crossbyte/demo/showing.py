"""The demo's page in a terminal: what was asked, what was found, how good it is, and what to do next."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from crossbyte._format import of_100
from crossbyte.demo.dots import picture_lines
from crossbyte.demo.running import Answer, Results
from crossbyte.report.measurements import DIRECTIONS
from crossbyte.report.model_report import Report
from crossbyte.report.verdict import verdict
from crossbyte.search.hits import Hit

__all__ = ["WIDTH", "page", "save_picture"]

WIDTH = 100
CELL = 18  # characters that a picture and its name may take
ROWS = 6  # lines of a picture

_PERCENT = "Percent: how likely this very one is meant, among all of them; where many are right, they share."


def page(results: Results, *, pictures: bool = True) -> Iterator[RenderableType]:
    """Give everything that is printed, part by part.

    Parameters
    ----------
    results : Results
    pictures : bool
        Draw small pictures in Braille characters, for terminals that can show them.
    """
    yield _introduction(results)
    yield _heading("Type words, see pictures")
    for answer in _asked(results, "text"):
        yield _found_pictures(results, answer, pictures)
    yield _plain(_PERCENT, "dim")
    yield _heading("Show a picture, read words")
    yield _plain(
        f"These {len(_asked(results, 'picture'))} were kept away from everything above, and are not picked: "
        f"the first of {results.choice.unseen.name}. Green words are their own, which nothing here has seen."
    )
    for answer in _asked(results, "picture"):
        yield _found_texts(results, answer, pictures)
    yield _heading("How good is it? Measured on pairs that were held out")
    yield from _quality(results.report)
    yield _heading("Go on")
    yield _next_steps(results)


def save_picture(console: Console, path: Path, title: str) -> None:
    """Save what was printed as SVG, without rich's link to a font on the web."""
    picture = console.export_svg(title=title, unique_id="crossbyte")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL), encoding="utf-8")


# Words


def _heading(words: str) -> RenderableType:
    return Padding(Rule(Text(words, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _plain(words: str, style: str = "") -> Text:
    return Text(words.replace("\u00a0", " "), style=style)


def _introduction(results: Results) -> RenderableType:
    n_bytes, what = results.n_bytes, results.subject.what
    took = (
        "opened as an earlier run left it (--overwrite makes it anew)"
        if results.seconds is None
        else f"drawn, learned, measured and written in {results.seconds:.0f} s, without any download"
    )
    said = Text.assemble(
        ("crossbyte", "bold"),
        f" finds pictures by words and words by pictures. Here: {results.n_documents:,} {what} "
        f"({results.subject.source}). Of each picture and each text the index keeps ",
        (f"{n_bytes} bytes", "bold"),
        f". {results.choice.index}: {took}.",
    )
    return said


# Answers


def _asked(results: Results, how: str) -> list[Answer]:
    return [answer for answer in results.answers if getattr(answer, how) is not None]


def _found_pictures(results: Results, answer: Answer, pictures: bool) -> RenderableType:
    asked = Text.assemble(("› ", "cyan"), (str(answer.text), "bold cyan"))
    if answer.where is not None:
        asked.append(f"   only where {answer.where}", style="dim")
    table = Table.grid(padding=(0, 1))
    for _ in answer.hits:
        table.add_column(width=CELL, no_wrap=True, overflow="ellipsis")
    if pictures:
        table.add_row(*(_small(results, hit) for hit in answer.hits))
    table.add_row(*(Text(_title(results, hit)) for hit in answer.hits))
    table.add_row(*(Text(_sure(hit), style="dim") for hit in answer.hits))
    return Padding(Group(asked, table), (1, 0, 0, 0))


def _found_texts(results: Results, answer: Answer, pictures: bool) -> RenderableType:
    own = Text.assemble(
        ("its own words  ", "dim"), (str(answer.own), "dim"), no_wrap=True, overflow="ellipsis"
    )
    lines = [_text_line(place, hit, str(answer.own)) for place, hit in enumerate(answer.hits, start=1)]
    table = Table.grid(padding=(0, 1))
    if pictures and answer.picture is not None:
        with Image.open(answer.picture) as picture:
            drawn = _drawn(picture)
        table.add_column(width=CELL)
        table.add_row(drawn, Group(*lines, Text(), own))
    else:
        table.add_row(Group(*lines, own))
    return Padding(table, (1, 0, 0, 0))


def _text_line(place: int, hit: Hit, own: str) -> Text:
    """A found text; words that are the picture's own, too, in green."""
    caption = str(((hit.payload or {}).get("captions") or [hit.id])[0])
    line = Text(f"{place}  {_sure(hit):>5}  {caption}", no_wrap=True, overflow="ellipsis")
    shared = _words(own) & _words(caption)
    if shared:
        line.highlight_regex(rf"(?i)\b({'|'.join(map(re.escape, sorted(shared)))})\b", "green")
    return line


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 2}


def _title(results: Results, hit: Hit) -> str:
    return results.subject.title(hit.payload or {})


def _sure(hit: Hit) -> str:
    return "" if hit.probability is None else f"{100 * hit.probability:.0f} %"


def _small(results: Results, hit: Hit) -> Text:
    found = results.thumbnails.get(hit.id)
    if found is None:
        return Text()
    with Image.open(io.BytesIO(found)) as picture:
        return _drawn(picture)


def _drawn(picture: Image.Image) -> Text:
    return Text("\n".join(picture_lines(np.asarray(picture.convert("RGB")), ROWS)))


# Quality


def _quality(report: Report) -> Iterator[RenderableType]:
    first, *others = verdict(report)
    yield _plain(first)
    yield _curve(report)
    for words in others:
        yield _plain(words)


def _curve(report: Report) -> Table:
    """How many of 100 queries find their partner among the first ten, by bytes."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), title_justify="left", pad_edge=False)
    table.add_column("bytes per item")
    table.add_column("right picture in the first 10", justify="right")
    table.add_column("right text in the first 10", justify="right")
    for name, recall in _curve_rows(report):
        cells = (f"{of_100(recall[each])} of 100" for each in reversed(DIRECTIONS))
        table.add_row(name, *cells, style="dim" if name == "chance" else "")
    return table


def _curve_rows(report: Report) -> Iterator[tuple[str, dict[str, float]]]:
    for point in report.curve:
        yield str(point.n_bytes), {each: point.recall["crossbyte"][each].value for each in DIRECTIONS}
    for name in ("uncompressed", "chance"):
        system = report.system(name)
        size = f"{system.n_bytes} (not compressed)" if name == "uncompressed" else name
        yield size, {each: system.directions[each].recall[10].value for each in DIRECTIONS}


# What next


def _next_steps(results: Results) -> RenderableType:
    index, program = results.choice.index, _program()
    steps = [
        ("search it in the browser", f"{program} serve {index}"),
        ("ask here", f'{program} search {index} --text "{results.subject.texts[0]}"'),
        ("words for a picture", f"{program} search {index} --image {_first(results)}"),
        ("your own folder of pictures and captions", f"{program} fit PHOTOS"),
    ]
    lines = [Text.assemble((f"{command}", "bold green"), (f"   {what}", "dim")) for what, command in steps]
    return Group(*lines)


def _program() -> str:
    """What to type here: after `make demo` the program is in an environment that no shell knows of."""
    beside = Path(sys.executable).with_name("crossbyte")
    if shutil.which("crossbyte") or not beside.exists():
        return "crossbyte"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def _first(results: Results) -> Path:
    return next(answer.picture for answer in results.answers if answer.picture is not None)
