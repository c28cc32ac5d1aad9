"""Read a folder of embeddings as clip-retrieval writes it: numbered parts, for each side and for payloads.

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

from crossbyte.data.contents import as_matrix, columns_to_rows
from crossbyte.data.dataset import Dataset
from crossbyte.data.npz import read_array
from crossbyte.data.parquet import read_parquet
from crossbyte.data.safe_open import Limits, file_errors, file_extension, open_regular
from crossbyte.data.tables import csv_columns, jsonl_rows
from crossbyte.errors import DataFileError

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
    """Tell whether a folder holds ``img_emb`` or ``text_emb`` with arrays in it."""
    folders = (path / name for name in (*_IMAGES, *_TEXTS))
    return any(file_extension(file) in _ARRAYS for folder in folders for file in _list_files(folder))


def read_embedding_folder(path: Path, limits: Limits) -> Dataset:
    """Read all parts, one after another in the order of their numbers.

    Rows are named by their ``id``, ``key`` or ``image_path`` where these differ; rows of the same
    ``image_path`` are a group.

    Raises
    ------
    DataFileError
        No embeddings, parts that are missing on one side, or that differ in their number of rows.
    """
    images, texts, tables = find_parts(path)
    image_blocks, text_blocks = _read_arrays(images, limits), _read_arrays(texts, limits)
    row_blocks = [read_part(file, limits) for file in tables.values()]
    check_counts([(images, image_blocks), (texts, text_blocks), (tables, row_blocks)])
    payloads = [row for block in row_blocks for row in block]
    ids, groups = find_labels(payloads)
    return Dataset(_stack_blocks(image_blocks), _stack_blocks(text_blocks), ids, payloads or None, groups)


def find_parts(path: Path) -> EmbeddingParts:
    """Find the files of a folder of embeddings, the same parts of every kind that is there.

    Raises
    ------
    DataFileError
        No embeddings, or parts that are missing on one side.
    """
    images, texts = _find_numbered_files(path, _IMAGES, _ARRAYS), _find_numbered_files(path, _TEXTS, _ARRAYS)
    if not images and not texts:
        raise DataFileError(
            "expected a folder of embeddings (img_emb/img_emb_0.npy, text_emb/text_emb_0.npy …), got "
            f"{_describe_folder(path)}"
        )
    found = EmbeddingParts(images, texts, _find_numbered_files(path, _PAYLOADS, _TABLES))
    _check_parts(list(found))
    return found


def _find_numbered_files(root: Path, folders: tuple[str, ...], endings: tuple[str, ...]) -> Parts:
    """Find the files of one kind, in the order of their numbers."""
    files = [
        file for folder in folders for file in _list_files(root / folder) if file_extension(file) in endings
    ]
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


def _list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if not file.name.startswith("."))


def _describe_folder(root: Path) -> str:
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


def _read_arrays(parts: Parts, limits: Limits) -> list[NDArray[Any]]:
    blocks: list[NDArray[Any]] = []
    left = limits.max_bytes
    for file in parts.values():
        with file_errors(file), open_regular(file) as opened:
            blocks.append(as_matrix(read_array(opened.file, opened.size, left)))
            if blocks[-1].shape[1] != blocks[0].shape[1]:
                raise DataFileError(
                    f"expected {blocks[0].shape[1]} columns as in the first part, got {blocks[-1].shape[1]}"
                )
        left -= blocks[-1].nbytes
    return blocks


def read_part(file: Path, limits: Limits) -> list[dict[str, Any]]:
    """Read the payloads of one part."""
    with file_errors(file), open_regular(file) as opened:
        if file_extension(file) in (".jsonl", ".ndjson"):
            return jsonl_rows(opened, limits)
        if file_extension(file) == ".csv":
            columns = csv_columns(opened, limits)
        else:
            contents = read_parquet(opened, limits)
            columns = {name: contents.values(name) for name in contents.entries}
        return columns_to_rows(columns)


def check_counts(kinds: Sequence[tuple[Parts, Sequence[Sized]]]) -> None:
    """Check that every part has equally many rows of all kinds; equal sums could pair different documents."""
    for number in next(parts for parts, _ in kinds if parts):
        counts = {
            f"{parts[number].parent.name}/{parts[number].name}": len(blocks[list(parts).index(number)])
            for parts, blocks in kinds
            if parts
        }
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{count} in {name}" for name, count in counts.items())
            raise DataFileError(f"expected as many rows in all files of a part, got {listed}; make them anew")


def _stack_blocks(blocks: list[NDArray[Any]]) -> NDArray[Any] | None:
    return np.concatenate(blocks) if len(blocks) > 1 else blocks[0] if blocks else None


def find_labels(payloads: list[dict[str, Any]]) -> tuple[list[Any] | None, list[Any] | None]:
    """Find ids and groups among the columns of payloads."""
    return _find_ids(payloads), _find_groups(payloads)


def _find_ids(payloads: list[dict[str, Any]]) -> list[Any] | None:
    for name in _IDS:
        found = _find_label_column(payloads, name)
        if found and len(set(found)) == len(found):
            return found
    return None


def _find_groups(payloads: list[dict[str, Any]]) -> list[Any] | None:
    for name in _GROUPS:
        found = _find_label_column(payloads, name)
        if found and len(set(found)) < len(found):
            return found
    return None


def _find_label_column(payloads: list[dict[str, Any]], name: str) -> list[Any] | None:
    """Return a column of strings or whole numbers without gaps, or None."""
    found = [row.get(name) for row in payloads]
    return found if all(type(label) in (str, int) and label != "" for label in found) else None
