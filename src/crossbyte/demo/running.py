"""Make the demo's index by the same way as anybody's folder, and ask it."""

from __future__ import annotations

import csv
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import crossbyte
from crossbyte._fs import replace_file
from crossbyte.data.folders.reading import read_raw
from crossbyte.demo.subjects import SUBJECTS, Subject
from crossbyte.errors import InvalidInput
from crossbyte.gallery.beside import Beside
from crossbyte.gallery.building import build_gallery
from crossbyte.gallery.gallery import Gallery
from crossbyte.progress import Progress, ProgressCallback, silent
from crossbyte.report.model_report import Report
from crossbyte.search.hits import Hit

__all__ = ["Answer", "Choice", "Results", "run"]

HITS = 5  # pictures per answer
TEXTS = 3  # texts per answer
PICTURES = 3  # pictures to ask with
# Given, because `mapping="auto"` would try others for minutes. Chosen by hand among about ten, on these very
# icons and with a look at the held-out pairs: many dimensions and a strong pull let the code of an indexed
# picture know its words, so that a word or two find it.
SETTINGS: dict[str, Any] = {
    "n_bits": 64,
    "mapping": "cca",
    "parameters": {
        "n_components": 128,
        "correlation": 10.0,
        "cross_term": "stored",
        "max_iter": 2,
    },
    "curve": (4, 8),
}


@dataclass(frozen=True)
class Choice:
    """What to show, and where.

    Attributes
    ----------
    subject : str
        A key of :data:`crossbyte.demo.subjects.SUBJECTS`.
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
        """Everything that decides what the index contains."""
        chosen = {"subject": self.subject, "number": self.number, "seed": self.seed}
        return chosen | {"version": crossbyte.__version__}


class Answer(NamedTuple):
    """One query and what was found.

    Attributes
    ----------
    text : str or None
    picture : Path or None
        One of the two was asked with.
    where : str or None
        The filter.
    hits : list of Hit
        With payloads.
    own : str or None
        The caption of a picture that was asked with, which nothing here has seen.
    """

    text: str | None
    picture: Path | None
    where: str | None
    hits: list[Hit]
    own: str | None


@dataclass(frozen=True)
class Results:
    """All there is to print.

    Attributes
    ----------
    choice : Choice
    subject : Subject
    n_documents : int
    n_bytes : int
        Per item.
    report : Report
    answers : list of Answer
    thumbnails : dict of id to bytes
        Of all hits.
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


def run(choice: Choice, callback: ProgressCallback = silent) -> Results:
    """Make the index unless it is there, and ask it.

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
    seconds = None if _is_made(choice) else _make(choice, subject, callback)
    with Gallery.open(choice.index, n_jobs=choice.n_jobs) as gallery:
        return _ask(choice, subject, gallery, seconds)


# Making


def _is_made(choice: Choice) -> bool:
    """Whether the index is there, as this demo would make it; refuse to touch any other."""
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


def _make(choice: Choice, subject: Subject, callback: ProgressCallback) -> float:
    """Draw the pictures, make the index, and note what it was made from; returns the seconds."""
    began = time.perf_counter()
    _clear(choice)
    callback(Progress("draw", subject.what, 0, 1))
    subject.write(choice.pictures, choice.unseen, choice.number, choice.seed)
    made: dict[str, Any] = {"seed": choice.seed, "n_jobs": choice.n_jobs, "callback": callback}
    build_gallery(read_raw(choice.pictures), choice.index, **SETTINGS, **made)
    replace_file(str(choice.note), json.dumps(choice.identity()).encode())
    return time.perf_counter() - began


def _clear(choice: Choice) -> None:
    """Remove what an earlier run made; features of one that was interrupted are kept, unless all is new."""
    choice.out.mkdir(parents=True, exist_ok=True)
    choice.index.unlink(missing_ok=True)
    if choice.overwrite:
        shutil.rmtree(Beside.of(choice.index).folder, ignore_errors=True)
    for folder in (choice.pictures, choice.unseen):
        _check_own(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _check_own(folder: Path) -> None:
    """Refuse to remove a folder that has anything but what the demo writes."""
    strange = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".png", ".csv")]
    if folder.is_symlink() or strange:
        raise InvalidInput(f"{folder}: expected the demo's own pictures or nothing; give another --out")


# Asking


def _ask(choice: Choice, subject: Subject, gallery: Gallery, seconds: float | None) -> Results:
    answers = [_by_text(gallery, text) for text in subject.texts]
    answers.append(_by_text(gallery, *subject.filtered))
    answers += [_by_picture(gallery, path, own) for path, own in _unseen(choice.unseen)]
    ids = {hit.id for answer in answers for hit in answer.hits}
    small = {id: found for id in ids if (found := gallery.thumbnail(id)) is not None}
    model = gallery.index.model
    return Results(choice, subject, len(gallery), model.n_bits // 8, model.report_, answers, small, seconds)


def _by_text(gallery: Gallery, text: str, where: str | None = None) -> Answer:
    hits = gallery.search(text=text, k=HITS, where=where, payloads=True, distinct="group")
    return Answer(text, None, where, list(hits), None)


def _by_picture(gallery: Gallery, picture: Path, own: str) -> Answer:
    hits = gallery.search(image=picture, k=TEXTS, payloads=True, distinct="group")
    return Answer(None, picture, None, list(hits), own)


def _unseen(folder: Path) -> list[tuple[Path, str]]:
    """The first pictures that were kept away, with a caption each, and none in two styles: not picked."""
    with (folder / "captions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_picture = {row["image"]: row["caption"] for row in reversed(rows)}
    by_caption = {caption: folder / name for name, caption in reversed(by_picture.items())}
    return [(path, caption) for caption, path in list(by_caption.items())[:PICTURES]]
