"""A folder of two sides that stay on disk: embeddings as clip-retrieval writes them, or images and texts.

::

    img_emb/img_emb_0.npy …  text_emb/text_emb_0.npy …  metadata/metadata_0.parquet …
    images.npy  texts.npy        or .npz, .parquet, or folders images/ and texts/ of such shards
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossbyte.data.files.dataset import Dataset
from crossbyte.data.files.embeddings import (
    Parts,
    check_counts,
    find_parts,
    is_embedding_folder,
    labels_of,
    read_part,
)
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.opening import PathLike, extension, naming
from crossbyte.data.stored.array_file import ArrayFile
from crossbyte.data.stored.joined import JoinedFiles
from crossbyte.data.stored.opening import _DEFAULT, _ENDINGS, open_rows
from crossbyte.errors import DataFileError

__all__ = ["is_pair_folder", "open_pair_folder"]

_LABELS = ("id", "key", "image_path", "group")  # all that ids and groups are made of


def is_pair_folder(path: PathLike) -> bool:
    """Whether a folder holds embeddings, or stored images and stored texts."""
    where = Path(path)
    if not where.is_dir():
        return False
    return is_embedding_folder(where) or all(_side(where, name) for name in ("images", "texts"))


def open_pair_folder(path: PathLike, *, payloads: bool = True, limits: Limits = _DEFAULT) -> Dataset:
    """Open both sides without reading them; ids, groups and payloads of embeddings are read.

    Parameters
    ----------
    path : path of a folder for which :func:`is_pair_folder` holds
    payloads : bool
        Whether payloads are kept, or only the ids and groups in them.
    limits : Limits, optional

    Returns
    -------
    Dataset
        Its images and texts are stored rows; a side that is not there is None.

    Raises
    ------
    DataFileError, MissingExtra, StorageFull
        Parts that are missing on one side, or that differ in their number of rows or columns.
    """
    where = Path(path)
    with naming(path):
        if is_embedding_folder(where):
            return _open_embeddings(where, payloads, limits)
        sides = {name: _side(where, name) for name in ("images", "texts")}
        if not all(sides.values()):
            raise DataFileError(
                "expected embeddings (img_emb and text_emb), or images.npy and texts.npy; check the folder"
            )
        opened: dict[str, Any] = {
            name: open_rows(file, limits=limits) for name, file in sides.items() if file
        }
        return Dataset(**opened)


def _side(folder: Path, name: str) -> Path | None:
    """The file, or the folder of shards, of one side."""
    for ending in _ENDINGS:
        if (file := folder / f"{name}{ending}").is_file():
            return file
    shards = folder / name
    if shards.is_dir() and any(extension(file) in _ENDINGS for file in shards.iterdir()):
        return shards
    return None


def _open_embeddings(folder: Path, payloads: bool, limits: Limits) -> Dataset:
    images, texts, tables = find_parts(folder)
    image_files, text_files = _opened(images), _opened(texts)
    blocks = [_part(file, payloads, limits) for file in tables.values()]
    check_counts([(images, image_files), (texts, text_files), (tables, blocks)])
    rows = [row for block in blocks for row in block]
    ids, groups = labels_of(rows)
    found: dict[str, Any] = {"images": _joined(image_files), "texts": _joined(text_files)}
    return Dataset(ids=ids, payloads=rows or None if payloads else None, groups=groups, **found)


def _opened(parts: Parts) -> list[ArrayFile]:
    return [ArrayFile.open(file) for file in parts.values()]


def _joined(files: list[ArrayFile]) -> ArrayFile | JoinedFiles | None:
    if len(files) < 2:
        return files[0] if files else None
    return JoinedFiles(files)


def _part(file: Path, payloads: bool, limits: Limits) -> list[dict[str, Any]]:
    rows = read_part(file, limits)
    if payloads:
        return rows
    return [{name: row[name] for name in _LABELS if name in row} for row in rows]
