"""Decoded vectors, for systems that know nothing of codes: as ``.npy``, or as Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbyte._fs import Path, stage_files
from crossbyte.errors import InvalidInput
from crossbyte.executors.threads import Workers
from crossbyte.extras import require
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.search.exports.listing import Listing, write_ids
from crossbyte.search.snapshot import Snapshot
from crossbyte.strict_json import canonical_json
from crossbyte.validation import check_choice

if TYPE_CHECKING:
    from crossbyte.search.index import Index

__all__ = ["export_vectors"]

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
    chosen = _form_of(path) if form is None else check_choice(form, "form", _FORMS)
    snapshot = index.snapshot()
    listing = Listing.to_export(snapshot, target)
    if chosen == "npy":
        _write_npy(listing, os.fspath(path), np.dtype(_TYPES[dtype]), bool(overwrite))
    else:
        _write_parquet(snapshot, listing, path, np.dtype(_TYPES[dtype]), bool(overwrite))
    return len(listing)


def _form_of(path: Path) -> str:
    ending = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    if ending not in _FORMS:
        raise InvalidInput(f"{os.fspath(path)}: expected a name that ends in .npy or .parquet, or form=")
    return ending


def _decoded(listing: Listing, dtype: np.dtype[Any]) -> Iterator[tuple[Listing, NDArray[Any]]]:
    """Blocks of documents and their vectors (n, D)."""
    quantizer = listing.snapshot.quantizers[listing.side]
    for block in listing.blocks():
        yield block, _vectors(block, quantizer, dtype)


def _vectors(block: Listing, quantizer: Quantizer, dtype: np.dtype[Any]) -> NDArray[Any]:
    with Workers(block.snapshot.n_jobs) as workers:
        points = quantizer.decode(block.codes(len(quantizer.codewords)), workers)
    largest = float(np.abs(points).max(initial=0.0))
    if largest > float(np.finfo(dtype).max):
        raise InvalidInput(f"dtype: float16 holds at most 65504, and a vector has {largest:g}; use float32")
    return np.asarray(points, dtype=dtype)


def _write_npy(listing: Listing, path: str, dtype: np.dtype[Any], overwrite: bool) -> None:
    n_dims = listing.snapshot.quantizers[listing.side].codewords.shape[2]
    header = {"descr": dtype.str, "fortran_order": False, "shape": (len(listing), n_dims)}
    with stage_files([f"{path}.ids.json", path], overwrite=overwrite) as temporary:
        write_ids(listing, temporary[0])
        with open(temporary[1], "xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for _, vectors in _decoded(listing, dtype):
                file.write(vectors.tobytes())


def _write_parquet(
    snapshot: Snapshot, listing: Listing, path: Path, dtype: np.dtype[Any], overwrite: bool
) -> None:
    arrow, parquet = _arrow()
    schema = _schema(arrow, listing, dtype)
    with (
        stage_files([path], overwrite=overwrite) as temporary,
        parquet.ParquetWriter(temporary[0], schema) as writer,
    ):
        for block, vectors in _decoded(listing, dtype):
            writer.write_table(_table(arrow, schema, snapshot, block, vectors))


def _arrow() -> tuple[Any, Any]:
    return require("pyarrow", "Parquet files need"), require("pyarrow.parquet", "Parquet files need")


def _schema(arrow: Any, listing: Listing, dtype: np.dtype[Any]) -> Any:
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


def _table(arrow: Any, schema: Any, snapshot: Snapshot, block: Listing, vectors: NDArray[Any]) -> Any:
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
