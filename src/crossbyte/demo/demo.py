"""Run the demonstration: write the pictures of a subject, build a gallery, search it, and show the answers.

First the subjects, then the run, then the page that shows its results.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

import crossbyte
from crossbyte._format import of_100
from crossbyte._fs import replace_file
from crossbyte.data.captions.layout import read_raw
from crossbyte.data.scenes import write_scenes
from crossbyte.demo.icons import Icon, read_icons, write_icons
from crossbyte.errors import InvalidInput
from crossbyte.gallery.build import build_gallery
from crossbyte.gallery.companion import CompanionFiles
from crossbyte.gallery.gallery import Gallery
from crossbyte.index.hits import Hit
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.report.measurements import DIRECTIONS
from crossbyte.report.model_report import Report
from crossbyte.report.verdict import verdict

UNSEEN = 24  # pictures kept away from everything that is learned and indexed
SCENES = 1000
HITS = 5  # pictures per answer
TEXTS = 3  # texts per answer
PICTURES = 3  # pictures to ask with
SETTINGS: dict[str, Any] = {
    "n_bits": 64,
    "mapping": "cca",
    "parameters": {},
    "curve": (4, 8),
}


# Subjects


class FilteredQuery(NamedTuple):
    """A text query and a filter."""

    text: str
    where: str


class Subject(NamedTuple):
    """A collection of pictures to show.

    Attributes
    ----------
    what : str
        What the pictures are, in the plural.
    source : str
        Where they and their texts come from.
    texts : tuple of str
        Queries, in the words that people use.
    filtered : FilteredQuery
    write : callable
        Takes two folders, a number (None for all, or as many as usual) and a seed; writes the pictures to be
        indexed to the first, and those kept out of the index to the second, each with its ``captions.csv``.
    title : callable
        Names a document by its payload.
    least : int
        The fewest pictures that can be measured.
    """

    what: str
    source: str
    texts: tuple[str, ...]
    filtered: FilteredQuery
    write: Callable[[Path, Path, int | None, int], None]
    title: Callable[[Mapping[str, Any]], str]
    least: int


def _write_icons(folder: Path, unseen: Path, number: int | None, seed: int) -> None:
    """Write the icons; some are kept out of the index, in all their styles, which look alike."""
    icons = read_icons(number, seed)
    unseen_names = _choose_unseen(icons, seed)
    write_icons(folder, [icon for icon in icons if icon.name not in unseen_names])
    unseen_icons = [icon for icon in icons if icon.name in unseen_names]
    write_icons(unseen, sorted(unseen_icons, key=lambda icon: unseen_names.index(icon.name)))


def _choose_unseen(icons: list[Icon], seed: int) -> list[str]:
    """Choose among the icons with search terms: nobody could guess a brand by its name alone."""
    names = sorted({icon.name for icon in icons if icon.terms})
    rows = np.random.default_rng([seed, 1]).permutation(len(names))[:UNSEEN]
    return [names[row] for row in rows.tolist()]


def _name_icon(payload: Mapping[str, Any]) -> str:
    return str(payload["label"])


def _write_scenes(folder: Path, unseen: Path, number: int | None, seed: int) -> None:
    write_scenes(folder, number or SCENES, seed)
    write_scenes(unseen, UNSEEN, seed + 1_000_003)  # another seed: other scenes


def _name_scene(payload: Mapping[str, Any]) -> str:
    return f"{payload['count']} {payload['colour']} {payload['shape']}"


SUBJECTS = {
    "icons": Subject(
        what="icons",
        source="Font Awesome Free: drawn with its font, told by their names and search words",
        texts=("rainy weather", "hot drink", "pay with a card", "pet dog"),
        filtered=FilteredQuery("music", "style = 'brands'"),
        write=_write_icons,
        title=_name_icon,
        least=100,
    ),
    "scenes": Subject(
        what="scenes",
        source="generated: coloured shapes, told in plain words",
        texts=("three red hearts", "one big yellow star on black", "green triangles on the left"),
        filtered=FilteredQuery("small purple rings", "count = 4"),
        write=_write_scenes,
        title=_name_scene,
        least=100,
    ),
}
"""Subjects by the word that chooses them."""


# The run


@dataclass(frozen=True)
class Choice:
    """What to show, and where.

    Attributes
    ----------
    subject : str
        A key of :data:`crossbyte.demo.demo.SUBJECTS`.
    out : Path
        The folder for everything that is made.
    number : int or None
        How many pictures; None for as many as usual.
    seed : int
    overwrite : bool
        Make the index anew if there is one of other settings.
    n_jobs : int or None
        Threads; None for all cores.
    """

    subject: str
    out: Path
    number: int | None = None
    seed: int = 0
    overwrite: bool = False
    n_jobs: int | None = None

    @property
    def pictures(self) -> Path:
        """The folder of pictures and captions."""
        return self.out / self.subject

    @property
    def unseen(self) -> Path:
        """The folder of pictures that were kept away from the index."""
        return self.out / f"{self.subject}-unseen"

    @property
    def index(self) -> Path:
        """The index."""
        return self.out / f"{self.subject}.cb"

    @property
    def note(self) -> Path:
        """What the index was made from; its presence says that the demo made it."""
        return self.out / f"{self.subject}.demo.json"

    def identity(self) -> dict[str, Any]:
        """Return everything that decides what the index contains."""
        chosen = {"subject": self.subject, "number": self.number, "seed": self.seed}
        return chosen | {"version": crossbyte.__version__}


class Answer(NamedTuple):
    """One query and what was found.

    Attributes
    ----------
    text : str or None
    picture : Path or None
        The query is one of the two.
    where : str or None
        The filter.
    hits : list of Hit
        With payloads.
    own : str or None
        The caption of a query picture, which neither model nor index has seen.
    """

    text: str | None
    picture: Path | None
    where: str | None
    hits: list[Hit]
    own: str | None


@dataclass(frozen=True)
class DemoResults:
    """The results of a demonstration, to be printed.

    Attributes
    ----------
    choice : Choice
    subject : Subject
    n_documents : int
    n_bytes : int
        Bytes per item.
    report : Report
    answers : list of Answer
    thumbnails : dict of id to bytes
        The small pictures of all hits.
    seconds : float or None
        For pictures, learning, measuring and writing; None where the index was there already.
    """

    choice: Choice
    subject: Subject
    n_documents: int
    n_bytes: int
    report: Report
    answers: list[Answer]
    thumbnails: dict[Any, bytes]
    seconds: float | None


def run_demo(choice: Choice, callback: ProgressCallback = ignore_progress) -> DemoResults:
    """Build the index unless it is there, and search it.

    Raises
    ------
    InvalidInput
        Too few pictures are asked for, or there is an index that is not this demo's.
    MissingExtra
        The icons are not installed.
    """
    subject = SUBJECTS[choice.subject]
    if choice.number is not None and choice.number < subject.least:
        raise InvalidInput(f"--number: expected at least {subject.least} {subject.what}, got {choice.number}")
    seconds = None if _is_built(choice) else _make_index(choice, subject, callback)
    with Gallery.open(choice.index, n_jobs=choice.n_jobs) as gallery:
        return _search_gallery(choice, subject, gallery, seconds)


def _is_built(choice: Choice) -> bool:
    """Tell whether the index is there, as this demo would make it; refuse to touch any other."""
    if not choice.index.exists():
        return False
    try:
        note = json.loads(choice.note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InvalidInput(
            f"{choice.index}: expected the demo's own index or none, but this was not made by the demo; "
            "give another folder with --out"
        ) from None
    if note == choice.identity() and not choice.overwrite:
        return True
    if not choice.overwrite:
        raise InvalidInput(
            f"{choice.index}: expected the index of a demo with these options, but it was made with others; "
            "give --overwrite to make it anew, or another folder with --out"
        )
    return False


def _make_index(choice: Choice, subject: Subject, callback: ProgressCallback) -> float:
    """Draw the pictures, build the index, and write a note of what it was made from; returns the seconds."""
    began = time.perf_counter()
    _clear_folder(choice)
    callback(Progress("draw", subject.what, 0, 1))
    subject.write(choice.pictures, choice.unseen, choice.number, choice.seed)
    arguments: dict[str, Any] = {"seed": choice.seed, "n_jobs": choice.n_jobs, "callback": callback}
    build_gallery(read_raw(choice.pictures), choice.index, **SETTINGS, **arguments)
    replace_file(str(choice.note), json.dumps(choice.identity()).encode())
    return time.perf_counter() - began


def _clear_folder(choice: Choice) -> None:
    """Remove what an earlier run made; keep the features of an interrupted one, unless overwriting."""
    choice.out.mkdir(parents=True, exist_ok=True)
    choice.index.unlink(missing_ok=True)
    if choice.overwrite:
        shutil.rmtree(CompanionFiles.of(choice.index).folder, ignore_errors=True)
    for folder in (choice.pictures, choice.unseen):
        _check_own_folder(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _check_own_folder(folder: Path) -> None:
    """Refuse to remove a folder that has anything but what the demo writes."""
    strange = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".png", ".csv")]
    if folder.is_symlink() or strange:
        raise InvalidInput(f"{folder}: expected the demo's own pictures or nothing; give another --out")


def _search_gallery(choice: Choice, subject: Subject, gallery: Gallery, seconds: float | None) -> DemoResults:
    answers = [_search_text(gallery, text) for text in subject.texts]
    answers.append(_search_text(gallery, *subject.filtered))
    answers += [_search_picture(gallery, path, own) for path, own in _list_unseen(choice.unseen)]
    ids = {hit.id for answer in answers for hit in answer.hits}
    small = {id: found for id in ids if (found := gallery.thumbnail(id)) is not None}
    model = gallery.index.model
    return DemoResults(
        choice, subject, len(gallery), model.n_bits // 8, model.report_, answers, small, seconds
    )


def _search_text(gallery: Gallery, text: str, where: str | None = None) -> Answer:
    hits = gallery.search(text=text, k=HITS, where=where, payloads=True, distinct="group")
    return Answer(text, None, where, list(hits), None)


def _search_picture(gallery: Gallery, picture: Path, own: str) -> Answer:
    hits = gallery.search(image=picture, k=TEXTS, payloads=True, distinct="group")
    return Answer(None, picture, None, list(hits), own)


def _list_unseen(folder: Path) -> list[tuple[Path, str]]:
    """List the first unseen pictures, not picked by hand, with a caption each, and none in two styles."""
    with (folder / "captions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_picture = {row["image"]: row["caption"] for row in reversed(rows)}
    by_caption = {caption: folder / name for name, caption in reversed(by_picture.items())}
    return [(path, caption) for caption, path in list(by_caption.items())[:PICTURES]]


# The page


WIDTH = 100
CELL = 18  # characters that a picture and its name may take
ROWS = 6  # lines of a picture
_STRENGTHS = "Below each: how sure it is (strong, fair or weak), and what found it: words, picture or both."


# Bits of the dots of a character, row by row, two in each of four rows.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_FIRST = 0x2800


def make_page(results: DemoResults, *, pictures: bool = True) -> Iterator[RenderableType]:
    """Yield everything that is printed, part by part.

    Parameters
    ----------
    results : DemoResults
    pictures : bool
        Draw small pictures in Braille characters, for terminals that can show them.
    """
    yield _introduce(results)
    yield _make_heading("Type words, see pictures")
    for answer in _select_answers(results, "text"):
        yield _show_pictures(results, answer, pictures)
    yield _make_text(_STRENGTHS, "dim")
    yield _make_heading("Show a picture, read words")
    yield _make_text(
        f"These {len(_select_answers(results, 'picture'))} were kept away from everything above, and are not "
        f"picked: the first of {results.choice.unseen.name}. Green words are their own, "
        "which nothing here has seen."
    )
    for answer in _select_answers(results, "picture"):
        yield _show_texts(results, answer, pictures)
    yield _make_heading("How good is it? Measured on pairs that were held out")
    yield from _describe_quality(results.report)
    yield _make_heading("Go on")
    yield _list_next_steps(results)


def save_picture(console: Console, path: Path, title: str) -> None:
    """Save what was printed as SVG, without rich's link to a font on the web."""
    picture = console.export_svg(title=title, unique_id="crossbyte")
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL), encoding="utf-8")


def _make_heading(words: str) -> RenderableType:
    return Padding(Rule(Text(words, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _make_text(words: str, style: str = "") -> Text:
    return Text(words.replace("\u00a0", " "), style=style)


def _introduce(results: DemoResults) -> RenderableType:
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


def _select_answers(results: DemoResults, how: str) -> list[Answer]:
    return [answer for answer in results.answers if getattr(answer, how) is not None]


def _show_pictures(results: DemoResults, answer: Answer, pictures: bool) -> RenderableType:
    query = Text.assemble(("› ", "cyan"), (str(answer.text), "bold cyan"))
    if answer.where is not None:
        query.append(f"   only where {answer.where}", style="dim")
    table = Table.grid(padding=(0, 1))
    for _ in answer.hits:
        table.add_column(width=CELL, no_wrap=True, overflow="ellipsis")
    if pictures:
        table.add_row(*(_draw_thumbnail(results, hit) for hit in answer.hits))
    table.add_row(*(Text(_name_hit(results, hit)) for hit in answer.hits))
    table.add_row(*(Text(_describe_match(hit), style="dim") for hit in answer.hits))
    return Padding(Group(query, table), (1, 0, 0, 0))


def _show_texts(results: DemoResults, answer: Answer, pictures: bool) -> RenderableType:
    own = Text.assemble(
        ("its own words  ", "dim"), (str(answer.own), "dim"), no_wrap=True, overflow="ellipsis"
    )
    lines = [_make_text_line(place, hit, str(answer.own)) for place, hit in enumerate(answer.hits, start=1)]
    table = Table.grid(padding=(0, 1))
    if pictures and answer.picture is not None:
        with Image.open(answer.picture) as picture:
            drawn = _draw_picture(picture)
        table.add_column(width=CELL)
        table.add_row(drawn, Group(*lines, Text(), own))
    else:
        table.add_row(Group(*lines, own))
    return Padding(table, (1, 0, 0, 0))


def _make_text_line(place: int, hit: Hit, own: str) -> Text:
    """Make the line of a found text, with the words of the picture's own caption in green."""
    caption = str(((hit.payload or {}).get("captions") or [hit.id])[0])
    line = Text(f"{place}  {_describe_match(hit):6}  {caption}", no_wrap=True, overflow="ellipsis")
    shared = _split_words(own) & _split_words(caption)
    if shared:
        line.highlight_regex(rf"(?i)\b({'|'.join(map(re.escape, sorted(shared)))})\b", "green")
    return line


def _split_words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 2}


def _name_hit(results: DemoResults, hit: Hit) -> str:
    return results.subject.title(hit.payload or {})


def _describe_match(hit: Hit) -> str:
    """Say how sure a hit is and what found it, as far as that is known."""
    return ", ".join(each for each in (hit.strength, hit.found_by) if each is not None)


def _draw_thumbnail(results: DemoResults, hit: Hit) -> Text:
    found = results.thumbnails.get(hit.id)
    if found is None:
        return Text()
    with Image.open(io.BytesIO(found)) as picture:
        return _draw_picture(picture)


def _draw_picture(picture: Image.Image) -> Text:
    return Text("\n".join(draw_braille(np.asarray(picture.convert("RGB")), ROWS)))


def draw_braille(pixels: NDArray[np.uint8], rows: int = 6) -> list[str]:
    """Draw what differs from the background of a picture, in Braille characters.

    Parameters
    ----------
    pixels : (height, width, 3) uint8
        RGB. The background is the colour of its upper left corner.
    rows : int
        Lines; a picture has twice as many characters in a line, and is stretched to a square.

    Returns
    -------
    list of str
        Strings of ``2 * rows`` Braille characters each.
    """
    dots = _find_foreground(pixels, 4 * rows)
    blocks = dots.reshape(rows, 4, 2 * rows, 2).transpose(0, 2, 1, 3)
    letters = _FIRST + (blocks * _BITS).sum(axis=(2, 3))
    return ["".join(map(chr, line)) for line in letters.tolist()]


def _find_foreground(pixels: NDArray[np.uint8], side: int) -> NDArray[np.bool_]:
    """Find where a picture, shrunk to side x side, differs from its background by half of the most or so."""
    height, width = pixels.shape[:2]
    inner = (width // 20, height // 20, width - width // 20, height - height // 20)  # margins are not drawn
    small = Image.fromarray(pixels).resize((side, side), Image.Resampling.BOX, box=inner)
    values = np.asarray(small, dtype=np.float64)
    difference = np.abs(values - pixels[0, 0].astype(np.float64)).max(axis=2)
    return difference > max(0.45 * difference.max(), 16.0)


def _describe_quality(report: Report) -> Iterator[RenderableType]:
    first, *others = verdict(report)
    yield _make_text(first)
    yield _make_curve_table(report)
    for words in others:
        yield _make_text(words)


def _make_curve_table(report: Report) -> Table:
    """Tabulate how many of 100 queries find their partner among the first ten, by bytes."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), title_justify="left", pad_edge=False)
    table.add_column("bytes per item")
    table.add_column("right picture in the first 10", justify="right")
    table.add_column("right text in the first 10", justify="right")
    for name, recall in _list_curve_rows(report):
        cells = (f"{of_100(recall[each])} of 100" for each in reversed(DIRECTIONS))
        table.add_row(name, *cells, style="dim" if name == "chance" else "")
    return table


def _list_curve_rows(report: Report) -> Iterator[tuple[str, dict[str, float]]]:
    for point in report.curve:
        yield str(point.n_bytes), {each: point.recall["crossbyte"][each].value for each in DIRECTIONS}
    for name in ("uncompressed", "chance"):
        system = report.system(name)
        size = f"{system.n_bytes} (not compressed)" if name == "uncompressed" else name
        yield size, {each: system.directions[each].recall[10].value for each in DIRECTIONS}


def _list_next_steps(results: DemoResults) -> RenderableType:
    index, program = results.choice.index, _find_program()
    steps = [
        ("search it in the browser", f"{program} serve {index}"),
        ("ask here", f'{program} search {index} --text "{results.subject.texts[0]}"'),
        ("words for a picture", f"{program} search {index} --image {_find_first_picture(results)}"),
        ("your own folder of pictures and captions", f"{program} fit PHOTOS"),
    ]
    lines = [Text.assemble((f"{command}", "bold green"), (f"   {what}", "dim")) for what, command in steps]
    return Group(*lines)


def _find_program() -> str:
    """Find the command to type: after `make demo` the program is in an environment not on the PATH."""
    beside = Path(sys.executable).with_name("crossbyte")
    if shutil.which("crossbyte") or not beside.exists():
        return "crossbyte"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def _find_first_picture(results: DemoResults) -> Path:
    return next(answer.picture for answer in results.answers if answer.picture is not None)
