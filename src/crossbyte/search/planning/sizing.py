"""Bytes of an index that does not exist yet: those of a small one, part by part, each grown by its own rule.

Codes, ids and marks grow with the documents, payloads with their mean length, columns as they grew over the
last half of the payloads given, the model with its words, dimensions and training pairs. How SQLite lays
blobs out in pages is known; what it adds to a payload row is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte.model.cmcq import CMCQ
from crossbyte.model.parameters import AUTOMATIC, MAX_BITS
from crossbyte.model.persistence import contents_of
from crossbyte.search.batch import Payloads
from crossbyte.search.filters.columns import build_columns
from crossbyte.search.ids import PackedIds
from crossbyte.search.index import Index
from crossbyte.search.storage.records import MAX_PIECE_BYTES

__all__ = [
    "Contents",
    "ModelSize",
    "PerDocument",
    "Sizes",
    "index_sizes",
    "measure_documents",
    "measure_model",
]

_PAGE, _LINK = 4096, 4
_LEAST_LOCAL, _MOST_LOCAL = 489, 4061  # bytes of a row in its own page; the rest is in a chain of others
_ROW_HEAD = 8  # of a piece: length, place, and the types of its columns
_PILOT_DOCUMENTS = (1024, 8192)
_MOST_OBJECTS = 65_536
_PER_DIMENSION = {"space.image_matrix", "space.text_matrix", "space.text_basis", "space.image_map"}
_PER_DIMENSION |= {"space.image_ridge", "space.text_ridge"}
_PER_WORD = {"image.words", "text.words"}
_PER_PAIR = {"image_codes", "text_codes"}


class Contents(NamedTuple):
    """What is to be indexed.

    Attributes
    ----------
    items : int
        Documents.
    train : int
        Pairs that the model is fitted on; it keeps their codes.
    n_sides : int
        2 where every document has an image and a text, else 1.
    n_bits : int
        Per item and side.
    """

    items: int
    train: int
    n_sides: int
    n_bits: int


class Sizes(NamedTuple):
    """Bytes by part, each with a ``total``."""

    disk: dict[str, int]
    memory: dict[str, int]


@dataclass(frozen=True)
class ModelSize:
    """Bytes of a model file as a function of bits and training pairs.

    Attributes
    ----------
    fixed : float
        Whatever does not depend on them.
    per_dimension : float
        Of the common space.
    n_dims : int or None
        Its dimensions, where they are set or capped by the data; None where they are the bits.
    max_dims : int
        More the data cannot have.
    """

    fixed: float
    per_dimension: float
    n_dims: int | None
    max_dims: int

    def bytes_at(self, n_bits: int, train: int) -> int:
        """Give the bytes of a model of ``n_bits`` bits, fitted on ``train`` pairs."""
        n_dims = min(self.n_dims or n_bits, self.max_dims)
        words = 2 * (n_bits // 8) * 256 * n_dims * 4
        return round(self.fixed + self.per_dimension * n_dims + words + 2 * (n_bits // 8) * train)


class PerDocument(NamedTuple):
    """Bytes per document, but for its codes.

    Attributes
    ----------
    ids : list of float
        Of each part that ids have on disk.
    ids_in_memory : float
    columns : list of (float, float)
        Of each field: per document, and fixed.
    payloads : float or None
        Mean body; None for documents without.
    rows : float
        Payload rows: 1 where every document has one.
    row : float
        What SQLite adds to the body of a payload, but for numbers.
    cross : int
        Bytes in memory that the stored cross term takes of each code.
    fixed : float
        The empty file without its model.
    """

    ids: list[float]
    ids_in_memory: float
    columns: list[tuple[float, float]]
    payloads: float | None
    rows: float
    row: float
    cross: int
    fixed: float


def index_sizes(contents: Contents, model: ModelSize, each: PerDocument) -> Sizes:
    """Bytes of an index on disk and in memory, the model's included."""
    n, n_sides, n_bytes = contents.items, contents.n_sides, contents.n_bits // 8
    model_bytes, blocks = model.bytes_at(contents.n_bits, contents.train), -(-n // 64)
    blobs = {
        "model": [model_bytes],
        "codes": n_sides * [n * n_bytes],
        "ids": [round(n * part) for part in each.ids],
        "filters": [round(n * slope + fixed) for slope, fixed in each.columns],
    }
    if each.payloads is not None:
        blobs["filters"].append(8 * blocks)
    disk = {name: sum(sizes) for name, sizes in blobs.items()}
    pages = _pages_of([size for sizes in blobs.values() for size in sizes])
    around_payloads = n * each.row + each.rows * _number_bytes(n)
    disk["overhead"] = round(each.fixed + _PAGE * pages - sum(disk.values()) + around_payloads)
    disk["payloads"] = round(n * (each.payloads or 0))
    memory = {
        "model": model_bytes,
        "codes": 64 * blocks * n_sides * (n_bytes + each.cross),
        "ids": round(n * each.ids_in_memory),
        "marks": 2 * 8 * blocks,
    }
    return Sizes(_with_total(disk), _with_total(memory))


def _pages_of(blobs: Sequence[int]) -> int:
    """Pages of SQLite's table of pieces: leaves that hold the first bytes of rows, and chains of the rest."""
    chained, leaves, room = 0, 1, 0
    for size in (min(left, MAX_PIECE_BYTES) for blob in blobs for left in range(blob, 0, -MAX_PIECE_BYTES)):
        row = size + _ROW_HEAD
        local = row
        if row > _MOST_LOCAL:
            local = _LEAST_LOCAL + (row - _LEAST_LOCAL) % (_PAGE - _LINK)
            local = local if local <= _MOST_LOCAL else _LEAST_LOCAL
            chained += -(-(row - local) // (_PAGE - _LINK))
        leaves, room = (leaves, room - local) if local <= room else (leaves + 1, _PAGE - _ROW_HEAD - local)
    leaves -= 1  # the one that was never begun
    return chained + max(1, leaves) + (leaves > 1)


def _number_bytes(n: int) -> int:
    """Bytes that the numbers of n payload rows take: three integers and a length of variable size in each."""
    integers, lengths = (2**7, 2**15, 2**23, 2**31), (2**7, 2**14, 2**21, 2**28)
    longer = (3 * sum(max(0, n - limit) for limit in integers), sum(max(0, n - limit) for limit in lengths))
    return 4 * n + sum(longer)


def _with_total(parts: dict[str, int]) -> dict[str, int]:
    return parts | {"total": sum(parts.values())}


def measure_model(model: CMCQ, rounds: float, like: CMCQ) -> ModelSize:
    """Take a fitted pilot model apart.

    Parameters
    ----------
    rounds : float
        How many times as many records of the objective the real model will keep.
    like : CMCQ
        If it is fitted, the real model will have a document as long as its: with a quality report, perhaps.
    """
    learned = model._current()
    arrays, _ = contents_of(learned)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    n_dims = learned.settings.n_components
    scaled = sum(sizes[name] for name in sizes if name in _PER_DIMENSION)
    others = sum(sizes[name] for name in sizes if name in _PER_PAIR | _PER_WORD)
    document = max(_document_bytes(one) for one in (model, like) if one.__sklearn_is_fitted__())
    fixed = document + sum(sizes.values()) - scaled - others + (rounds - 1) * sizes["history"]
    if model.n_components is not None or model.mapping in AUTOMATIC:
        return ModelSize(fixed, scaled / n_dims, n_dims, n_dims)
    capped = n_dims < model.n_bits
    widest = min(learned.image_preparation.n_dims, learned.text_preparation.n_dims)
    unbounded = learned.settings.mapping == "sparse"  # its space may be wider than the features
    return ModelSize(fixed, scaled / n_dims, None, n_dims if capped else MAX_BITS if unbounded else widest)


def _document_bytes(model: CMCQ) -> int:
    """Bytes of a model file that are not arrays."""
    arrays, _ = contents_of(model._current())
    return len(model.to_bytes()) - sum(array.nbytes for array in arrays.values())


def measure_documents(
    model: CMCQ, ids: Sequence[Any] | None, payloads: Payloads | None, folder: Path
) -> PerDocument:
    """Build an index of ready codes and see how it grows; payloads as long as those given, with one field."""
    bodies = None if payloads is None else payloads.bodies
    with Index.create(folder / "sizes.cb", model) as index:
        empty = index.stats()["disk"]["bytes"]
        before, after = (_added(index, count, bodies) for count in _PILOT_DOCUMENTS)
        memory = index.stats()["memory"]["bytes"]["codes"]
    first, count = _PILOT_DOCUMENTS
    rows = 0.0 if bodies is None else sum(body is not None for body in bodies) / len(bodies)
    numbers = rows * (_number_bytes(first + count) - _number_bytes(first))
    grown = _beyond_pieces(after) - _beyond_pieces(before) - (after.payloads - before.payloads)
    packed = PackedIds.of([0] if not ids else list(ids))
    return PerDocument(
        ids=[len(part) / len(packed) for part in packed.to_parts().values()],
        ids_in_memory=packed.n_bytes / len(packed),
        columns=[] if payloads is None else _column_lines(payloads.objects[:_MOST_OBJECTS]),
        payloads=None if bodies is None else sum(len(body or b"") for body in bodies) / len(bodies),
        rows=rows,
        row=(grown - numbers) / count,
        cross=memory // (first + count) - len(model.image_codebooks_),
        # Table and index of the payloads end with half a page each, on average.
        fixed=empty["file"] - _PAGE * _pages_of([empty["model:model"]]) + _PAGE * (bodies is not None),
    )


class _Grown(NamedTuple):
    """An index after some adds: bytes of its file, of its payloads, and of each piece."""

    file: int
    payloads: int
    pieces: list[int]


def _added(index: Index, count: int, bodies: Sequence[bytes | None] | None) -> _Grown:
    """Add ``count`` documents, and look at what the file has then."""
    codes = np.zeros((count, len(index.model.image_codebooks_)), dtype=np.uint8)
    objects = None if bodies is None else [_as_long(body) for body in islice(cycle(bodies), count)]
    index.add(range(len(index), len(index) + count), image_codes=codes, payloads=objects)
    store = index.snapshot().store
    with store.reading():
        pieces = [part.n_bytes for record in store.records() for part in record.parts.values()]
    sizes = store.sizes()
    return _Grown(sizes["file"], sizes["payloads"], pieces)


def _as_long(body: bytes | None) -> dict[str, str] | None:
    """A payload of one field and about as many bytes: columns are measured on their own."""
    return None if body is None else {"a": "x" * max(0, len(body) - len('{"a":""}'))}


def _beyond_pieces(grown: _Grown) -> int:
    return grown.file - _PAGE * _pages_of(grown.pieces)


def _column_lines(objects: Sequence[Any]) -> list[tuple[float, float]]:
    """Bytes of each column per document, and its fixed part; repeats would hide how vocabularies grow."""
    half = len(objects) // 2
    some, whole = (
        {field: len(column.to_bytes()) for field, column in build_columns(part, len(part)).items()}
        for part in (objects[:half], objects)
    )
    slopes = {field: (size - some.get(field, 0)) / (len(objects) - half) for field, size in whole.items()}
    return [(slope, max(0.0, whole[field] - slope * len(objects))) for field, slope in slopes.items()]
