"""What commands read: documents and queries from users' files, indexes and models by their paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte.cli.values import parse_file, parse_rows
from crossbyte.errors import ForeignModelFile, InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.files.limits import Limits
    from crossbyte.data.files.opening import Opened
    from crossbyte.data.files.reading import Dataset
    from crossbyte.gallery.gallery import Gallery
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.search.ids import Id

__all__ = [
    "Given",
    "QueryOptions",
    "check_free",
    "is_index",
    "model_of",
    "read_documents",
    "read_lines",
    "read_pairs",
    "read_queries",
    "read_vocabulary",
    "resolve_ids",
]

_SQLITE_MAGIC = b"SQLite format 3\0"  # every index begins with it
_MODEL_MARK = b"{"  # the header of a model, behind the eight bytes of its length


class Given(NamedTuple):
    """The options that say where documents come from, as the user gave them."""

    data: Path | None = None
    split: str | None = None
    images: str | None = None
    texts: str | None = None
    payloads: Path | None = None
    ids: str | None = None
    groups: str | None = None


class QueryOptions(NamedTuple):
    """What a search is asked with, as :func:`read_queries` reads it from the options of a command.

    Attributes
    ----------
    keyword : {"texts", "images", "like"}
        The argument of ``Index.search`` that takes it.
    value : features, or ids
    labels : list
        A name per query.
    notes : list of str
        What is to be said of the query itself.
    by_words : bool
        Whether it was words or a picture, and no features.
    """

    keyword: str
    value: Any
    labels: list[Any]
    notes: list[str]
    by_words: bool = False


# Documents


def read_documents(given: Given, *, stored: bool = False, payloads: bool = True) -> Dataset:
    """Read documents, of one side or both, with the ids, payloads and groups that the options name.

    With ``stored``, features of a folder stay on disk; without ``payloads``, its payloads are passed over.
    """
    found = _features(given, stored, payloads or bool(given.ids or given.groups))
    if given.payloads is not None:
        from crossbyte.data.files.reading import read_rows

        found = replace(found, payloads=read_rows(given.payloads))
    if given.ids is not None:
        found = replace(found, ids=_ids(given.ids, found.payloads))
    if given.groups is not None:
        found = replace(found, groups=_column(given.groups, found.payloads, "--groups"))
    return found


def read_pairs(given: Given, *, stored: bool = False, payloads: bool = True) -> Dataset:
    """Read documents that all have both sides; parameters as of :func:`read_documents`."""
    found = read_documents(given, stored=stored, payloads=payloads)
    if found.images is None or found.texts is None:
        side = "images" if found.images is None else "texts"
        raise InvalidInput(f"expected pairs, got no {side}; give a dataset with both sides, or --{side} FILE")
    return found


def _features(given: Given, stored: bool, payloads: bool) -> Dataset:
    from crossbyte.data.files.reading import Dataset, read_dataset

    sides = given.images is not None or given.texts is not None
    if (given.data is not None) == sides:
        came = "both" if sides else "neither"
        raise InvalidInput(f"expected DATA, or --images and --texts, got {came}; give one of the two")
    if given.data is not None:
        return _stored(given, payloads) if stored else read_dataset(given.data, split=given.split)
    return Dataset(images=_side(given.images, stored), texts=_side(given.texts, stored))


def _stored(given: Given, payloads: bool) -> Dataset:
    """Open a folder of features, or read what is none."""
    from crossbyte.data.files.reading import read_dataset
    from crossbyte.data.stored.pair_folder import is_pair_folder, open_pair_folder

    assert given.data is not None
    if given.split is None and is_pair_folder(given.data):
        return open_pair_folder(given.data, payloads=payloads)
    return read_dataset(given.data, split=given.split)


def _side(text: str | None, stored: bool = False) -> Any:
    from crossbyte.data.files.reading import read_features

    if text is None:
        return None
    file = parse_file(text)
    single = file.key is None and file.path.lower().endswith(".npy")
    if stored and (single or os.path.isdir(file.path)):
        from crossbyte.data.stored.opening import open_rows

        return open_rows(file.path, key=file.key)
    return read_features(file.path, key=file.key)


def _ids(name: str, payloads: list[dict[str, Any]] | None) -> list[Any]:
    """Take ids from a column of the payloads, or from a file with an id per line."""
    if payloads and any(name in row for row in payloads):
        return _column(name, payloads, "--ids")
    if os.path.exists(name):
        return read_lines(Path(name))
    if Path(name).suffix or os.path.dirname(name):
        raise FileNotFoundError(2, "there is no such file, and no such payload column, for --ids", name)
    return _column(name, payloads, "--ids")


def _column(name: str, payloads: list[dict[str, Any]] | None, option: str) -> list[Any]:
    fields = sorted({field for row in payloads or [] for field in row})
    if name not in fields:
        there = (
            f"the columns are {', '.join(fields)}" if fields else "give --payloads FILE with such a column"
        )
        raise InvalidInput(f"{option}: expected a payload column, got {name!r}; {there}")
    return [(row or {}).get(name) for row in payloads or []]


def read_lines(path: Path) -> list[str]:
    """Read a text file with one id or word per line; ``-`` is stdin. Empty lines are left out."""
    from crossbyte.data.files import lines, opening
    from crossbyte.data.files.limits import Limits

    limits = Limits()
    with opening.naming(path), _opened(path, limits) as opened:
        return [line.strip() for line in lines.read_lines(opened, limits) if line.strip()]


@contextmanager
def _opened(path: Path, limits: Limits) -> Iterator[Opened]:
    """Open a file, or what comes on stdin, of which no more is taken than is allowed, and one byte."""
    from crossbyte.data.files.opening import Opened, open_regular

    if str(path) != "-":
        with open_regular(path) as opened:
            yield opened
        return
    data = sys.stdin.buffer.read(limits.text_bytes + 1)
    yield Opened(BufferedReader(BytesIO(data)), len(data))


def read_vocabulary(path: Path | None) -> list[str] | None:
    """Read the names of text features: a line each, or the ``vocabulary`` of a dataset."""
    if path is None:
        return None
    if path.suffix not in (".npz", ".mat", ".parquet"):
        return read_lines(path)
    from crossbyte.data.files.reading import read_dataset

    words = read_dataset(path).vocabulary
    if words is None:
        raise InvalidInput(
            f"{path}: expected names of the text features, got none; give a file with a line each"
        )
    return list(words)


# Queries


def read_queries(
    gallery: Gallery,
    *,
    text: str | None = None,
    image: Path | None = None,
    texts: str | None = None,
    images: str | None = None,
    like: list[str] | None = None,
    row: int | None = None,
    rows: str | None = None,
) -> QueryOptions:
    """Read what to ask with: words, a picture, features of one side, or ids of documents."""
    if sum(kind is not None for kind in (text, image, texts, images, like or None)) != 1:
        raise InvalidInput(
            "expected one of --text, --image, --texts, --images and --like; give exactly one of the five"
        )
    if texts is None and images is None:
        if row is not None or rows is not None:
            raise InvalidInput("--row and --rows choose rows of a file of features; leave them out here")
        return _single_queries(gallery, text, image, like or [])
    keyword = "texts" if images is None else "images"
    features = _side(texts if images is None else images)
    chosen = _chosen(features.shape[0], row, rows)
    if not chosen:
        raise InvalidInput(
            f"expected rows of the file, which has {features.shape[0]}, got none; change --rows"
        )
    return QueryOptions(keyword, features[chosen.start : chosen.stop], list(chosen), [])


def _single_queries(gallery: Gallery, text: str | None, image: Path | None, like: list[str]) -> QueryOptions:
    if text is not None:
        if not text.strip():
            raise InvalidInput('--text: expected some words, got none; say something, such as --text "a dog"')
        return QueryOptions("texts", gallery.encode_texts([text]), [text], _notes(gallery, text), True)
    if image is not None:
        features = gallery.encode_pictures([gallery.read_picture(image)])
        return QueryOptions("images", features, [str(image)], [], True)
    names = resolve_ids(gallery.index, like)
    return QueryOptions("like", names, list(names), [])


def _notes(gallery: Gallery, text: str) -> list[str]:
    """Say which words of a text were in no caption, where the encoder can tell."""
    unknown = gallery.unknown_words(text)
    if not unknown:
        return []
    return [f"no caption had {', '.join(map(repr, unknown))}: compared by parts of words only"]


def _chosen(n_rows: int, row: int | None, rows: str | None) -> range:
    if row is not None and rows is not None:
        raise InvalidInput("expected --row or --rows, got both; give one of them")
    if row is not None and row >= n_rows:
        raise InvalidInput(f"--row: expected a row below {n_rows}, got {row}; rows count from 0")
    if row is not None:
        return range(row, row + 1)
    return range(n_rows)[parse_rows(rows)] if rows is not None else range(n_rows)


def resolve_ids(index: Container[object], names: Iterable[str]) -> list[Id]:
    """Find what each id on the command line means: the text itself, or else the number it spells."""
    from crossbyte.search.ids import resolve_id

    return [resolve_id(index, name) for name in names]


# Indexes and models


def is_index(path: Path) -> bool:
    """Tell by its first bytes whether a file is an index; anything else may be a model."""
    if not path.is_file():
        if path.exists():
            raise InvalidInput(f"{path}: expected an index or a model, got no ordinary file; check the path")
        raise FileNotFoundError(2, "there is no such file", str(path))
    with path.open("rb") as stream:
        first = stream.read(len(_SQLITE_MAGIC))
    if first != _SQLITE_MAGIC and first[8:9] != _MODEL_MARK:
        message = f"{path}: expected a crossbyte index or model, but it begins like neither; check the path"
        raise ForeignModelFile(message)
    return first == _SQLITE_MAGIC


def model_of(path: Path) -> CMCQ:
    """Load the model of a model file, or the one inside an index."""
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.search.index import Index

    if not is_index(path):
        return CMCQ.load(path)
    with Index.open(path) as index:
        return index.model


def check_free(*paths: Path | None, overwrite: bool = False) -> None:
    """Refuse names that are taken, or in no folder, before any long work; None is no name."""
    from crossbyte import _fs

    for path in paths:
        if path is not None:
            _fs.check_free(path, overwrite=overwrite)
