"""A folder of embeddings, as clip-retrieval writes it: parts by number, for each side and for the payloads.

::

    img_emb/img_emb_0.npy    text_emb/text_emb_0.npy    metadata/metadata_0.parquet
    img_emb/img_emb_1.npy    text_emb/text_emb_1.npy    metadata/metadata_1.parquet

Any of the three folders may be missing, but not both sides. Payloads may be CSV or JSON lines too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.files.choosing import as_matrix
from crossbyte.data.files.csv_table import csv_columns
from crossbyte.data.files.dataset import Dataset
from crossbyte.data.files.jsonl import jsonl_rows
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.npy import read_array
from crossbyte.data.files.opening import extension, naming, open_regular
from crossbyte.data.files.parquet import parquet_contents
from crossbyte.errors import DataFileError

__all__ = [
    "EmbeddingParts",
    "Parts",
    "check_counts",
    "find_parts",
    "is_embedding_folder",
    "labels_of",
    "read_embedding_folder",
    "read_part",
]

_IMAGES = ("img_emb", "image_emb")
_TEXTS = ("text_emb",)
_PAYLOADS = ("metadata",)
_ARRAYS = (".npy",)
_TABLES = (".parquet", ".csv", ".jsonl", ".ndjson")
_NUMBER = re.compile(r"(?:^|[^0-9])([0-9]{1,18})$")
_IDS = ("id", "key", "image_path")  # the surest first
_GROUPS = ("group", "image_path")

Parts = dict[int, Path]
"""files by the number in their name, ascending"""


class EmbeddingParts(NamedTuple):
    """The files of a folder of embeddings; a kind that is not there is empty."""

    images: Parts
    texts: Parts
    tables: Parts


def is_embedding_folder(path: Path) -> bool:
    """Whether a folder holds ``img_emb`` or ``text_emb`` with arrays in it."""
    folders = (path / name for name in (*_IMAGES, *_TEXTS))
    return any(extension(file) in _ARRAYS for folder in folders for file in _files(folder))


def read_embedding_folder(path: Path, limits: Limits) -> Dataset:
    """Read all parts, one behind the other in the order of their numbers.

    Rows are called by their ``id``, ``key`` or ``image_path`` where these differ; rows of the same
    ``image_path`` are a group.

    Raises
    ------
    DataFileError
        No embeddings, parts that are missing on one side, or that differ in their number of rows.
    """
    images, texts, tables = find_parts(path)
    image_blocks, text_blocks = _arrays(images, limits), _arrays(texts, limits)
    row_blocks = [read_part(file, limits) for file in tables.values()]
    check_counts([(images, image_blocks), (texts, text_blocks), (tables, row_blocks)])
    payloads = [row for block in row_blocks for row in block]
    ids, groups = labels_of(payloads)
    return Dataset(_stacked(image_blocks), _stacked(text_blocks), ids, payloads or None, groups)


def find_parts(path: Path) -> EmbeddingParts:
    """Find the files of a folder of embeddings, the same parts of every kind that is there.

    Raises
    ------
    DataFileError
        No embeddings, or parts that are missing on one side.
    """
    images, texts = _parts(path, _IMAGES, _ARRAYS), _parts(path, _TEXTS, _ARRAYS)
    if not images and not texts:
        raise DataFileError(
            "expected a folder of embeddings (img_emb/img_emb_0.npy, text_emb/text_emb_0.npy …), got "
            f"{_listing(path)}"
        )
    found = EmbeddingParts(images, texts, _parts(path, _PAYLOADS, _TABLES))
    _check_parts(list(found))
    return found


def _parts(root: Path, folders: tuple[str, ...], endings: tuple[str, ...]) -> Parts:
    """Find the files of one kind, in the order of their numbers."""
    files = [file for folder in folders for file in _files(root / folder) if extension(file) in endings]
    found: Parts = {}
    for file in files:
        number = _NUMBER.search(file.stem)
        key = int(number[1]) if number else 0
        if key in found:
            raise DataFileError(
                f"expected one file for each part, got {found[key].name} and {file.name}; remove one of them"
            )
        found[key] = file
    return dict(sorted(found.items()))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if not file.name.startswith("."))


def _listing(root: Path) -> str:
    names = sorted(file.name for file in root.iterdir())
    return ", ".join(names[:10]) or "an empty folder"


def _check_parts(kinds: list[Parts]) -> None:
    given = [parts for parts in kinds if parts]
    numbers = set().union(*given)
    for parts in given:
        if missing := numbers - parts.keys():
            there = next(other[min(missing)] for other in given if min(missing) in other)
            folder = next(iter(parts.values())).parent.name
            raise DataFileError(
                f"expected the same parts everywhere, got {there.parent.name}/{there.name} and no part "
                f"{min(missing)} in {folder}; copy the missing file, or remove its partners"
            )


def _arrays(parts: Parts, limits: Limits) -> list[NDArray[Any]]:
    blocks: list[NDArray[Any]] = []
    left = limits.max_bytes
    for file in parts.values():
        with naming(file), open_regular(file) as opened:
            blocks.append(as_matrix(read_array(opened.file, opened.size, left)))
            if blocks[-1].shape[1] != blocks[0].shape[1]:
                raise DataFileError(
                    f"expected {blocks[0].shape[1]} columns as in the first part, got {blocks[-1].shape[1]}"
                )
        left -= blocks[-1].nbytes
    return blocks


def read_part(file: Path, limits: Limits) -> list[dict[str, Any]]:
    """Read the payloads of one part."""
    with naming(file), open_regular(file) as opened:
        if extension(file) in (".jsonl", ".ndjson"):
            return jsonl_rows(opened, limits)
        if extension(file) == ".csv":
            columns = csv_columns(opened, limits)
        else:
            contents = parquet_contents(opened, limits)
            columns = {name: contents.values(name) for name in contents.entries}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def check_counts(kinds: Sequence[tuple[Parts, Sequence[Sized]]]) -> None:
    """Compare part by part: a sum that agrees by chance would pair rows of different documents."""
    for number in next(parts for parts, _ in kinds if parts):
        counts = {
            f"{parts[number].parent.name}/{parts[number].name}": len(blocks[list(parts).index(number)])
            for parts, blocks in kinds
            if parts
        }
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} in {name}" for name, count in counts.items())
            raise DataFileError(f"expected as many rows in all files of a part, got {told}; make them anew")


def _stacked(blocks: list[NDArray[Any]]) -> NDArray[Any] | None:
    return np.concatenate(blocks) if len(blocks) > 1 else blocks[0] if blocks else None


def labels_of(payloads: list[dict[str, Any]]) -> tuple[list[Any] | None, list[Any] | None]:
    """Ids and groups: columns of payloads, where they serve."""
    return _ids(payloads), _groups(payloads)


def _ids(payloads: list[dict[str, Any]]) -> list[Any] | None:
    for name in _IDS:
        found = _labels(payloads, name)
        if found and len(set(found)) == len(found):
            return found
    return None


def _groups(payloads: list[dict[str, Any]]) -> list[Any] | None:
    for name in _GROUPS:
        found = _labels(payloads, name)
        if found and len(set(found)) < len(found):
            return found
    return None


def _labels(payloads: list[dict[str, Any]], name: str) -> list[Any] | None:
    """Return a column of strings or whole numbers without gaps, or None."""
    found = [row.get(name) for row in payloads]
    return found if all(type(label) in (str, int) and label != "" for label in found) else None
