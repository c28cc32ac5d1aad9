"""Read the inputs of commands: values of options, documents, queries, indexes and models."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte._format import plural
from crossbyte.errors import ForeignModelFile, InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.captions.raw_documents import RawDocuments, Skipped
    from crossbyte.data.dataset import Dataset
    from crossbyte.data.safe_open import Limits, OpenFile
    from crossbyte.gallery.gallery import Gallery
    from crossbyte.index.docids import Id
    from crossbyte.index.index import BaseIndex
    from crossbyte.model.estimator import CMCQ


_SQLITE_MAGIC = b"SQLite format 3\0"  # every index begins with it
_MODEL_MARK = b"{"  # a model's header, after the eight bytes of its length
_MOST_SHOWN = 5
_FEATURES = (".npz", ".mat", ".parquet")


# Values


class KeyedFile(NamedTuple):
    """A file, and the array to read from it; None for the only one."""

    path: str
    key: str | None


def parse_file(text: str) -> KeyedFile:
    """Split ``FILE:KEY``; where a file of the whole name exists, it is that file."""
    path, colon, key = text.rpartition(":")
    if not colon or os.path.exists(text) or "/" in key or "\\" in key or len(path) < 2:  # C:\ is a drive
        return KeyedFile(text, None)
    return KeyedFile(path, key)


def parse_size(text: str | None, option: str) -> int | None:
    """Parse a number of bytes such as ``200MB`` or ``1.5 GiB``, as the library does."""
    from crossbyte.compute.executor import parse_memory

    return None if text is None else parse_memory(text, option)


def parse_rows(text: str) -> slice:
    """Parse a range of rows such as ``10:20``, ``:5`` or ``100:``."""
    match = re.fullmatch(r"(\d*):(\d*)", text.strip())
    if match is None:
        raise InvalidInput(f"--rows: expected a range of rows, got {text!r}; give one such as 0:10")
    first, end = (int(part) if part else None for part in match.groups())
    return slice(first, end)


def parse_bytes(text: str) -> list[int]:
    """Parse code lengths such as ``2,4,8``; an empty text gives none."""
    if not re.fullmatch(r"\s*(\d+\s*(,\s*\d+\s*)*)?", text):
        raise InvalidInput(f"--curve: expected numbers of bytes, got {text!r}; give some such as 2,4,8")
    return [int(part) for part in text.split(",") if part.strip()]


def parse_parameters(texts: list[str]) -> dict[str, Any]:
    """Parse ``name=value`` pairs; a value that is not JSON is text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in found:
            raise InvalidInput(
                f"--param: expected name=value, each name once, got {text!r}; see docs/arrays.md"
            )
        found[name] = _parse_json_or_text(value)
    return found


def _parse_json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


# Documents as features


class InputOptions(NamedTuple):
    """The options that say where documents come from, as the user gave them."""

    data: Path | None = None
    split: str | None = None
    images: str | None = None
    texts: str | None = None
    payloads: Path | None = None
    ids: str | None = None
    groups: str | None = None


def read_documents(given: InputOptions, *, stored: bool = False, payloads: bool = True) -> Dataset:
    """Read documents, of one side or both, with the ids, payloads and groups that the options name.

    With ``stored``, features of a folder stay on disk; without ``payloads``, its payloads are not read.
    """
    found = _read_sides(given, stored, payloads or bool(given.ids or given.groups))
    if given.payloads is not None:
        from crossbyte.data.readers import read_rows

        found = replace(found, payloads=read_rows(given.payloads))
    if given.ids is not None:
        found = replace(found, ids=_read_ids(given.ids, found.payloads))
    if given.groups is not None:
        found = replace(found, groups=_read_column(given.groups, found.payloads, "--groups"))
    return found


def read_pairs(given: InputOptions, *, stored: bool = False, payloads: bool = True) -> Dataset:
    """Read documents that all have both sides; parameters as for :func:`read_documents`."""
    found = read_documents(given, stored=stored, payloads=payloads)
    if found.images is None or found.texts is None:
        side = "images" if found.images is None else "texts"
        raise InvalidInput(f"expected pairs, got no {side}; give a dataset with both sides, or --{side} FILE")
    return found


def _read_sides(given: InputOptions, stored: bool, payloads: bool) -> Dataset:
    from crossbyte.data.dataset import Dataset
    from crossbyte.data.readers import read_dataset

    sides = given.images is not None or given.texts is not None
    if (given.data is not None) == sides:
        came = "both" if sides else "neither"
        raise InvalidInput(f"expected DATA, or --images and --texts, got {came}; give one of the two")
    if given.data is not None:
        return (
            _open_or_read_dataset(given, payloads) if stored else read_dataset(given.data, split=given.split)
        )
    return Dataset(images=_read_side(given.images, stored), texts=_read_side(given.texts, stored))


def _open_or_read_dataset(given: InputOptions, payloads: bool) -> Dataset:
    """Open a folder of features, or read a file."""
    from crossbyte.data.ondisk import is_pair_folder, open_pair_folder
    from crossbyte.data.readers import read_dataset

    assert given.data is not None
    if given.split is None and is_pair_folder(given.data):
        return open_pair_folder(given.data, payloads=payloads)
    return read_dataset(given.data, split=given.split)


def _read_side(text: str | None, stored: bool = False) -> Any:
    from crossbyte.data.readers import read_features

    if text is None:
        return None
    file = parse_file(text)
    single = file.key is None and file.path.lower().endswith(".npy")
    if stored and (single or os.path.isdir(file.path)):
        from crossbyte.data.ondisk import open_rows

        return open_rows(file.path, key=file.key)
    return read_features(file.path, key=file.key)


def _read_ids(name: str, payloads: list[dict[str, Any]] | None) -> list[Any]:
    """Take ids from a column of the payloads, or from a file with an id per line."""
    if payloads and any(name in row for row in payloads):
        return _read_column(name, payloads, "--ids")
    if os.path.exists(name):
        return read_lines(Path(name))
    if Path(name).suffix or os.path.dirname(name):
        raise FileNotFoundError(2, "there is no such file, and no such payload column, for --ids", name)
    return _read_column(name, payloads, "--ids")


def _read_column(name: str, payloads: list[dict[str, Any]] | None, option: str) -> list[Any]:
    fields = sorted({field for row in payloads or [] for field in row})
    if name not in fields:
        there = (
            f"the columns are {', '.join(fields)}" if fields else "give --payloads FILE with such a column"
        )
        raise InvalidInput(f"{option}: expected a payload column, got {name!r}; {there}")
    return [(row or {}).get(name) for row in payloads or []]


def read_lines(path: Path) -> list[str]:
    """Read a text file with one id or word per line; ``-`` is stdin. Empty lines are left out."""
    from crossbyte.data import safe_open, tables
    from crossbyte.data.safe_open import Limits

    limits = Limits()
    with safe_open.file_errors(path), _open_file_or_stdin(path, limits) as opened:
        return [line.strip() for line in tables.read_lines(opened, limits) if line.strip()]


@contextmanager
def _open_file_or_stdin(path: Path, limits: Limits) -> Iterator[OpenFile]:
    """Open a file, or stdin, from which at most one byte more than the limit is read."""
    from crossbyte.data.safe_open import OpenFile, open_regular

    if str(path) != "-":
        with open_regular(path) as opened:
            yield opened
        return
    data = sys.stdin.buffer.read(limits.text_bytes + 1)
    yield OpenFile(BufferedReader(BytesIO(data)), len(data))


def read_vocabulary(path: Path | None) -> list[str] | None:
    """Read the names of text features: a line each, or the ``vocabulary`` of a dataset."""
    if path is None:
        return None
    if path.suffix not in (".npz", ".mat", ".parquet"):
        return read_lines(path)
    from crossbyte.data.readers import read_dataset

    words = read_dataset(path).vocabulary
    if words is None:
        raise InvalidInput(
            f"{path}: expected names of the text features, got none; give a file with a line each"
        )
    return list(words)


# Documents as pictures and captions


class RawInputOptions(NamedTuple):
    """The options that only pictures and captions have, as the user gave them."""

    image_column: str | None = None
    text_columns: list[str] | None = None
    id_column: str | None = None
    image_encoder: str | None = None
    text_encoder: str | None = None
    encoders: list[str] | None = None

    def specify_encoders(self) -> dict[str, str]:
        """Give the encoder of each side that the user named one for; two for one side are refused."""
        from crossbyte.encoders.registry import find_encoder_sides

        by_side = [("image", self.image_encoder), ("text", self.text_encoder)]
        named = [(side, spec) for side, spec in by_side if spec is not None]
        named += [(side, spec) for spec in self.encoders or [] for side in find_encoder_sides(spec)]
        specs: dict[str, str] = {}
        for side, spec in named:
            if side in specs:
                raise InvalidInput(
                    f"--encoder: expected one encoder of {side}s, got {specs[side]!r} and {spec!r}; leave "
                    "one out, or name each side with --image-encoder and --text-encoder"
                )
            specs[side] = spec
        return specs


def is_raw_data(given: InputOptions, raw: RawInputOptions) -> bool:
    """Tell whether DATA are pictures and captions, rather than features; refuse options of the other kind."""
    if given.data is None:
        found = False
    elif not given.data.exists():
        raise FileNotFoundError(2, "there is no such file or folder", str(given.data))
    else:
        from crossbyte.data.captions.layout import is_raw

        _check_is_data(given.data)
        found = is_raw(given.data)
    options = _list_feature_options(given) if found else _list_raw_options(raw)
    wrong = next((name for name, value in options.items() if value is not None), None)
    if wrong is not None:
        kinds = ("features", "pictures and captions") if found else ("pictures and captions", "features")
        raise InvalidInput(f"{wrong}: this option is for {kinds[0]}, and DATA are {kinds[1]}; leave it out")
    return found


def _check_is_data(path: Path) -> None:
    """Refuse a file that is no data at all, and say what it is and what to do with it."""
    from crossbyte.data.captions.tables import TABLES
    from crossbyte.data.images.formats import EXTENSIONS
    from crossbyte.data.safe_open import file_extension
    from crossbyte.gallery.gallery import is_sharded

    if is_sharded(path):
        raise InvalidInput(_describe_index_as_data(path))
    if not path.is_file():
        return
    with path.open("rb") as stream:
        first = stream.read(len(_SQLITE_MAGIC))
    if first == _SQLITE_MAGIC:
        raise InvalidInput(_describe_index_as_data(path))
    ending = file_extension(path)
    if ending == ".cbm":
        raise InvalidInput(
            f"{path}: expected data, got a model; give the pictures or features themselves, or see what is "
            f"in it with `crossbyte info {path}`"
        )
    if ending in EXTENSIONS:
        raise InvalidInput(
            f"{path}: expected a folder of pictures, or a table that names them, got one picture; give the "
            f"folder that it is in ({path.parent}), with captions as docs/files.md says"
        )
    if ending == ".npy":
        raise InvalidInput(
            f"{path}: expected both sides, got one array; give each side: --images {path} --texts OTHER.npy"
        )
    if ending not in (*TABLES, ".json", ".tar", *_FEATURES):
        raise InvalidInput(
            f"{path}: expected a folder of pictures with captions, a table that names pictures "
            f"({', '.join(TABLES)}, .json) or features ({', '.join(_FEATURES)}), got a file that ends in "
            f"{ending or 'nothing'}; docs/files.md says what can be read"
        )


def _describe_index_as_data(path: Path) -> str:
    return (
        f"{path}: expected data, got an index, which has been made already; ask it with `crossbyte search "
        f"{path} --text …`, or add more pictures to it with `crossbyte add {path} FOLDER`"
    )


def _list_feature_options(given: InputOptions) -> dict[str, Any]:
    named = {"--split": given.split, "--images": given.images, "--texts": given.texts}
    return named | {"--payloads": given.payloads, "--ids": given.ids, "--groups": given.groups}


def _list_raw_options(raw: RawInputOptions) -> dict[str, Any]:
    named = {"--image-column": raw.image_column, "--text-column": raw.text_columns or None}
    named |= {"--id-column": raw.id_column, "--image-encoder": raw.image_encoder}
    return named | {"--text-encoder": raw.text_encoder, "--encoder": raw.encoders or None}


def read_raw_documents(path: Path, raw: RawInputOptions) -> RawDocuments:
    """Read a folder or a table of captions; no picture is opened yet."""
    from crossbyte.data.captions.layout import read_raw

    return read_raw(
        path, image_column=raw.image_column, text_columns=raw.text_columns or None, id_column=raw.id_column
    )


def drop_unread(documents: RawDocuments, skipped: Sequence[Skipped]) -> RawDocuments:
    """Drop the documents whose pictures could not be read: what encoding has added to their own list."""
    from crossbyte.gallery.build import take_documents

    unread = {each.name for each in skipped[len(documents.skipped) :]}
    names = [payload.get("file", id) for payload, id in zip(documents.payloads, documents.ids, strict=True)]
    return take_documents(documents, [row for row, name in enumerate(names) if name not in unread])


def describe_kinds(documents: RawDocuments) -> str:
    """Say how many documents have a picture and captions, how many only one of them; "" for no document."""
    pairs, pictures, texts = documents.n_pairs, documents.n_without_text, documents.n_without_picture
    kinds = [f"{plural(pairs, 'picture')} with captions"] if pairs else []
    if pictures:
        kinds.append(f"{plural(pictures, 'picture')} without (found through their image)")
    if texts:
        kinds.append(f"{plural(texts, 'text')} without a picture")
    return ", ".join(kinds)


def list_skipped(skipped: Sequence[Skipped]) -> list[dict[str, str]]:
    """List what was left out, for JSON."""
    return [each._asdict() for each in skipped]


def describe_skipped(skipped: Sequence[Skipped]) -> Iterator[str]:
    """Describe what was left out, the first few by name."""
    if not skipped:
        return
    more = " (--json lists all)" if len(skipped) > _MOST_SHOWN else ""
    yield f"{plural(len(skipped), 'thing')} left out{more}:"
    yield from (f"  {each.name}: {each.reason}" for each in skipped[:_MOST_SHOWN])


# Queries


class QueryOptions(NamedTuple):
    """The queries of a command, as :func:`read_queries` reads them from its options.

    Attributes
    ----------
    keyword : {"texts", "images", "like"}
        The argument of ``Index.search`` that takes the value.
    value : features, or ids
    labels : list
        A name per query.
    by_words : bool
        Whether the query was words or a picture, rather than features.
    """

    keyword: str
    value: Any
    labels: list[Any]
    by_words: bool = False

    @property
    def words(self) -> list[str] | None:
        """The texts themselves, one per query; None where the query is none, or its features alone."""
        return self.labels if self.by_words and self.keyword == "texts" else None


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
    mode: str | None = None,
) -> QueryOptions:
    """Read the queries: words, a picture, features of one side, or ids of documents."""
    if sum(kind is not None for kind in (text, image, texts, images, like or None)) != 1:
        raise InvalidInput(
            "expected words to search for, or one of --text, --image, --texts, --images and --like; "
            "give exactly one of them"
        )
    if texts is None and images is None:
        if row is not None or rows is not None:
            raise InvalidInput("--row and --rows choose rows of a file of features; leave them out here")
        return _read_single_query(gallery, text, image, like or [], mode)
    keyword = "texts" if images is None else "images"
    features = _read_side(texts if images is None else images)
    chosen = _choose_rows(features.shape[0], row, rows)
    if not chosen:
        raise InvalidInput(
            f"expected rows of the file, which has {features.shape[0]}, got none; change --rows"
        )
    return QueryOptions(keyword, features[chosen.start : chosen.stop], list(chosen))


def _read_single_query(
    gallery: Gallery, text: str | None, image: Path | None, like: list[str], mode: str | None
) -> QueryOptions:
    if text is not None:
        if not text.strip():
            raise InvalidInput('--text: expected some words, got none; say something, such as --text "a dog"')
        return QueryOptions("texts", gallery.encode_questions([text], mode), [text], True)
    if image is not None:
        features = gallery.encode_pictures([gallery.read_picture(image)])
        return QueryOptions("images", features, [str(image)], True)
    names = resolve_ids(gallery.index, like)
    return QueryOptions("like", names, list(names))


def _choose_rows(n_rows: int, row: int | None, rows: str | None) -> range:
    if row is not None and rows is not None:
        raise InvalidInput("expected --row or --rows, got both; give one of them")
    if row is not None and row >= n_rows:
        raise InvalidInput(f"--row: expected a row below {n_rows}, got {row}; rows count from 0")
    if row is not None:
        return range(row, row + 1)
    return range(n_rows)[parse_rows(rows)] if rows is not None else range(n_rows)


def resolve_ids(index: Container[object], names: Iterable[str]) -> list[Id]:
    """Resolve each id on the command line: the text itself, or else the number it spells."""
    from crossbyte.index.docids import resolve_id

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


def load_model(path: Path) -> CMCQ:
    """Load the model of a model file, or the one inside an index."""
    from crossbyte.index.index import Index
    from crossbyte.model.estimator import CMCQ

    if not is_index(path):
        return CMCQ.load(path)
    with Index.open(path) as index:
        return index.model


def read_word_settings(path: Path) -> dict[str, Any] | None:
    """Read how an index searches words, and what was measured of it; None where it keeps none."""
    from contextlib import closing

    from crossbyte.gallery.gallery import open_index

    with closing(open_index(path)) as index:
        return describe_word_settings(index)


def describe_word_settings(index: BaseIndex) -> dict[str, Any] | None:
    """Describe how an index searches words, for JSON; None where it keeps none."""
    settings = index.word_settings
    if settings is None:
        return None
    return {"fields": settings.fields, "weight": settings.weight, "measured": settings.measured}


def check_free(*paths: Path | None, overwrite: bool = False) -> None:
    """Refuse paths that are taken, or in no folder, before any long work; None is skipped."""
    from crossbyte import _fs

    for path in paths:
        if path is not None:
            _fs.check_free(path, overwrite=overwrite)
