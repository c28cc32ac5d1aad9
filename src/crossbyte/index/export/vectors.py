"""Export the documents of an index as vectors with their ids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbyte._fs import Path, stage_files
from crossbyte._json import canonical_json
from crossbyte.arrays import Codes, Float32
from crossbyte.compute.executor import Workers
from crossbyte.errors import InvalidInput
from crossbyte.extras import import_extra
from crossbyte.index.docids import Id
from crossbyte.index.scan import Ranking, resolve_ids
from crossbyte.index.segment import CODINGS, scanned_sides
from crossbyte.index.snapshot import Place, Snapshot
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.validation import check_choice

if TYPE_CHECKING:
    from crossbyte.index.index import Index

_ROWS_AT_ONCE = 2**16  # bounds what is decoded, or made into Python objects, at a time


@dataclass(frozen=True, eq=False)
class DocumentList:
    """Lists documents that have a side, to export them; one code of both halves stands for either.

    Attributes
    ----------
    snapshot : Snapshot
    side : {"image", "text"}
    numbers : (n,) int64
        Ascending.
    codings : (n,) uint8
        Places in the list of all codings.
    rows : (n,) int64
        Places in the partitions.
    """

    snapshot: Snapshot
    side: str
    numbers: NDArray[np.int64]
    codings: NDArray[np.uint8]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, snapshot: Snapshot, side: str) -> DocumentList:
        """List all live documents that have the side."""
        partitions = [each for each in snapshot.partitions.values() if scanned_sides(each.coding, side)]
        rows = [partition.live_rows().astype(np.int64) for partition in partitions]
        numbers = [partition.numbers[mine] for partition, mine in zip(partitions, rows, strict=True)]
        codings = [
            np.full(len(mine), CODINGS.index(partition.coding))
            for partition, mine in zip(partitions, rows, strict=True)
        ]
        everything = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (numbers, codings, rows))
        whole = cls(snapshot, side, *everything)
        return whole._take(np.argsort(whole.numbers))

    @classmethod
    def to_export(cls, snapshot: Snapshot, side: str) -> DocumentList:
        """List them, but refuse a side that no document has where documents have the other one."""
        found = cls.of(snapshot, side)
        other = "text" if side == "image" else "image"
        if not len(found) and (there := len(cls.of(snapshot, other))):
            raise InvalidInput(
                f"the index has no {side}s to export, only {there:,} {other}s; export the {other} side"
            )
        return found

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[DocumentList]:
        """Yield the list in blocks."""
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield self._take(slice(start, start + _ROWS_AT_ONCE))

    def _take(self, places: slice | NDArray[np.intp]) -> DocumentList:
        codings = self.codings[places].astype(np.uint8)
        return DocumentList(self.snapshot, self.side, self.numbers[places], codings, self.rows[places])

    def ids(self) -> list[Id]:
        """Look up the ids."""
        unknown = np.zeros(len(self), np.float32)
        return resolve_ids(self.snapshot, Ranking(unknown, self.numbers, self.codings, self.rows))

    def coding_names(self) -> list[str]:
        """Give the coding of each document."""
        return [CODINGS[place] for place in self.codings.tolist()]

    def places(self) -> list[Place]:
        """Give the place of each document."""
        return list(map(Place, self.coding_names(), self.rows.tolist()))

    def codes(self, n_codebooks: int) -> Codes:
        """Unpack codes (n, M) uint8; with one codebook more, the byte of a stored cross term too."""
        codes = np.empty((len(self), n_codebooks), dtype=np.uint8)
        for coding, side in self._code_sides():
            mine = self.codings == CODINGS.index(coding)
            partition = self.snapshot.partitions[coding]
            codes[mine] = partition.code_rows(side, self.rows[mine], n_codebooks)
        return codes

    def points(self) -> Float32:
        """Decode the points (n, D), each coding with its own codewords."""
        quantizers = self.snapshot.quantizers
        n_codebooks, _, n_dims = quantizers[self.side].codewords.shape
        codes, points = self.codes(n_codebooks), np.empty((len(self), n_dims), dtype=np.float32)
        with Workers(self.snapshot.n_jobs) as workers:
            for coding, side in self._code_sides():
                mine = self.codings == CODINGS.index(coding)
                points[mine] = quantizers[side].decode(codes[mine], workers)
        return points

    def quantizer(self) -> Quantizer:
        """Give the quantizer of all these codes.

        Raises
        ------
        InvalidInput
            There are codes of several.
        """
        quantizers = self.snapshot.quantizers
        used = {id(quantizers[side]): quantizers[side] for _, side in self._code_sides()}
        if len(used) > 1:
            raise InvalidInput(
                f"the index has codes of {self.side}s and of whole documents, and this model codes them with "
                "different codewords; export from an index that has only one of the two, or export vectors"
            )
        return next(iter(used.values()), quantizers[self.side])

    def _code_sides(self) -> list[tuple[str, str]]:
        """List the codings that occur, and the side of each that is exported."""
        present = (CODINGS[place] for place in np.unique(self.codings).tolist())
        return [(coding, scanned_sides(coding, self.side)[0]) for coding in present]


def write_ids(listing: DocumentList, path: str) -> None:
    """Write the ids as one JSON array, block by block; strings and integers stay what they are."""
    with open(path, "x", encoding="ascii") as file:
        file.write("[")
        for number, block in enumerate(listing.blocks()):
            file.write((",\n" if number else "") + json.dumps(block.ids(), separators=(",", ":"))[1:-1])
        file.write("]\n")


_TYPES = {"float32": "<f4", "float16": "<f2"}
_FORMS = ("npy", "parquet")


def export_vectors(
    index: Index,
    path: Path,
    *,
    target: str,
    dtype: str = "float32",
    form: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write the points of the common space that one side's codes stand for, in the order of the numbers.

    With a stored cross term, squared Euclidean distances to these vectors are crossbyte's distances but for
    the rounding of that term and the offsets of codings; with a constant one, they are what it estimates.

    Parameters
    ----------
    index : Index
    path : path-like
    target : {"image", "text"}
        The side.
    dtype : {"float32", "float16"}
    form : {"npy", "parquet"}, optional
        None: by the ending of ``path``. ``.npy`` is an array (n, D), and the ids are a JSON array in
        ``path + ".ids.json"``. Parquet has the columns ``id`` (integers if all are, else strings),
        ``number``, ``coding``, ``vector`` (lists of D) and ``payload`` (JSON text, or null).
    overwrite : bool
        Whether files that are there may be replaced.

    Returns
    -------
    int
        How many vectors were written.

    Raises
    ------
    MissingExtra
        Parquet needs pyarrow.
    InvalidInput
        A file is there already; no document has the side; or a value is too large for float16.
    """
    check_choice(target, "target", ("image", "text"))
    check_choice(dtype, "dtype", _TYPES)
    chosen = _file_format(path) if form is None else check_choice(form, "form", _FORMS)
    snapshot = index.snapshot()
    listing = DocumentList.to_export(snapshot, target)
    if chosen == "npy":
        _write_npy(listing, os.fspath(path), np.dtype(_TYPES[dtype]), bool(overwrite))
    else:
        _write_parquet(snapshot, listing, path, np.dtype(_TYPES[dtype]), bool(overwrite))
    return len(listing)


def _file_format(path: Path) -> str:
    ending = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    if ending not in _FORMS:
        raise InvalidInput(f"{os.fspath(path)}: expected a name that ends in .npy or .parquet, or form=")
    return ending


def _decode_blocks(
    listing: DocumentList, dtype: np.dtype[Any]
) -> Iterator[tuple[DocumentList, NDArray[Any]]]:
    """Yield blocks of documents and their vectors (n, D)."""
    for block in listing.blocks():
        yield block, _vectors(block, dtype)


def _vectors(block: DocumentList, dtype: np.dtype[Any]) -> NDArray[Any]:
    points = block.points()
    largest = float(np.abs(points).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise InvalidInput(f"dtype: float16 holds at most 65504, and a vector has {largest:g}; use float32")
    return np.asarray(points, dtype=dtype)


def _write_npy(listing: DocumentList, path: str, dtype: np.dtype[Any], overwrite: bool) -> None:
    n_dims = listing.snapshot.quantizers[listing.side].codewords.shape[2]
    header = {"descr": dtype.str, "fortran_order": False, "shape": (len(listing), n_dims)}
    with stage_files([f"{path}.ids.json", path], overwrite=overwrite) as temporary:
        write_ids(listing, temporary[0])
        with open(temporary[1], "xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for _, vectors in _decode_blocks(listing, dtype):
                file.write(vectors.tobytes())


def _write_parquet(
    snapshot: Snapshot, listing: DocumentList, path: Path, dtype: np.dtype[Any], overwrite: bool
) -> None:
    arrow, parquet = _import_pyarrow()
    schema = _schema(arrow, listing, dtype)
    with (
        stage_files([path], overwrite=overwrite) as temporary,
        parquet.ParquetWriter(temporary[0], schema) as writer,
    ):
        for block, vectors in _decode_blocks(listing, dtype):
            writer.write_table(_table(arrow, schema, snapshot, block, vectors))


def _import_pyarrow() -> tuple[Any, Any]:
    return import_extra("pyarrow", "Parquet files need"), import_extra(
        "pyarrow.parquet", "Parquet files need"
    )


def _schema(arrow: Any, listing: DocumentList, dtype: np.dtype[Any]) -> Any:
    integers = all(isinstance(id, int) for block in listing.blocks() for id in block.ids())
    n_dims = listing.snapshot.quantizers[listing.side].codewords.shape[2]
    columns = {
        "id": arrow.int64() if integers else arrow.string(),
        "number": arrow.int64(),
        "coding": arrow.string(),
        "vector": arrow.list_(arrow.from_numpy_dtype(dtype), n_dims),
        "payload": arrow.string(),
    }
    return arrow.schema(list(columns.items()))


def _table(arrow: Any, schema: Any, snapshot: Snapshot, block: DocumentList, vectors: NDArray[Any]) -> Any:
    payloads = snapshot.payloads(block.places())
    integers = schema.field("id").type == arrow.int64()
    columns = [
        arrow.array(block.ids() if integers else map(str, block.ids()), schema.field("id").type),
        arrow.array(block.numbers),
        arrow.array(block.coding_names()),
        arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1]),
        arrow.array([None if payload is None else canonical_json(payload) for payload in payloads]),
    ]
    typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return arrow.Table.from_arrays(typed, schema=schema)
