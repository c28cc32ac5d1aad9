"""Export to an index of FAISS that ranks as crossbyte does, with the codes as they are.

FAISS adds up inner products of a query with words of an additive quantizer. One more coordinate makes
crossbyte's distances of them: every codeword c gets -½|c|² there, and every query x' gets 1, so that

    |x'|² + ε - 2 Σ (x', 1)·(c, -½|c|²) = Σ |x' - c|² - (M - 1)|x'|² + ε.

What an item adds of its own, a stored cross term or the offset of its coding, is a codeword of one more
codebook that is zero but for that coordinate.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte._fs import Path, stage_files
from crossbyte.arrays import Codes, Float32
from crossbyte.compute.kernels import N_CODEWORDS
from crossbyte.errors import InvalidInput
from crossbyte.extras import import_extra
from crossbyte.index.export.vectors import DocumentList, write_ids
from crossbyte.index.probabilities import coding_offset
from crossbyte.index.segment import CODINGS
from crossbyte.model.estimator import CMCQ
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.validation import check_choice

if TYPE_CHECKING:
    from crossbyte.index.index import Index

_SIDES = ("image", "text")


class _Offsets(NamedTuple):
    """Offsets of the codings that occur, from calibration: one for all, or each its own."""

    common: float
    own: Float32 | None
    """(256,), by the place of the coding; None where they are all alike"""


def export_faiss(
    index: Index, path: Path, *, target: str, query: str | None = None, overwrite: bool = False
) -> int:
    """Write one side of an index as a FAISS index, with one byte per codebook.

    Three files: ``path``, for ``faiss.read_index``; ``path + ".ids.json"``, the ids in the order of FAISS's
    own; ``path + ".json"``, what :func:`faiss_distances` needs and what this is an export of.

    Parameters
    ----------
    index : Index
    path : path-like
    target : {"image", "text"}
        The side that is searched.
    query : {"image", "text"}, optional
        Kind of the queries, on which the offsets of codings depend; None for the other side.
    overwrite : bool
        Whether files that are there may be replaced.

    Returns
    -------
    int
        How many items were written.

    Raises
    ------
    MissingExtra
        FAISS is not installed.
    InvalidInput
        A file is there already, or no document has the side.
    """
    faiss = import_extra("faiss", "a FAISS index needs")
    check_choice(target, "target", _SIDES)
    kind = _SIDES[1 - _SIDES.index(target)] if query is None else check_choice(query, "query", _SIDES)
    snapshot = index.snapshot()
    listing = DocumentList.to_export(snapshot, target)
    quantizer = listing.quantizer()
    offsets = _offsets(index.model, listing, kind)
    about = _about(listing, quantizer, kind, offsets) | {"generation": snapshot.generation}
    name = os.fspath(path)
    with stage_files([f"{name}.ids.json", f"{name}.json", name], overwrite=bool(overwrite)) as temporary:
        write_ids(listing, temporary[0])
        with open(temporary[1], "x", encoding="ascii") as file:
            json.dump(about, file, indent=1, sort_keys=True)
        faiss.write_index(_build(faiss, listing, quantizer, offsets), temporary[2])
    return len(listing)


def faiss_queries(model: CMCQ, *, images: Any = None, texts: Any = None) -> Float32:
    """Map features of one kind to what an exported FAISS index is asked with.

    Parameters
    ----------
    model : CMCQ
        The model of the index.
    images : (n, d_I) features
    texts : (n, d_T) features
        One of these two.

    Returns
    -------
    (n, D + 1) float32
    """
    if (images is None) == (texts is None):
        raise InvalidInput("expected one kind of query: images= or texts=")
    points = model.transform_texts(texts) if images is None else model.transform_images(images)
    return np.column_stack([points, np.ones(len(points), np.float32)])


def faiss_distances(queries: Float32, scores: NDArray[Any], constant: float) -> Float32:
    """Turn the scores of an exported FAISS index into crossbyte's distances.

    Parameters
    ----------
    queries : (n, D + 1) float32
        From :func:`faiss_queries`.
    scores : (n, k) float32
        From FAISS; minus infinity where it has found less than k.
    constant : float
        The one of ``path + ".json"``.

    Returns
    -------
    (n, k) float32
        Infinity where nothing was found.
    """
    points = np.asarray(queries)[:, :-1].astype(np.float64)
    squares = np.einsum("nd,nd->n", points, points)[:, None]
    found = np.where(np.asarray(scores) > np.finfo(np.float32).min, scores, -np.inf).astype(np.float64)
    return (squares + constant - 2 * found).astype(np.float32)


def _offsets(model: CMCQ, listing: DocumentList, kind: str) -> _Offsets:
    offset = coding_offset(model, kind, listing.side, len(listing.snapshot))
    present = {int(place): offset(CODINGS[place]) for place in np.unique(listing.codings)}
    if len(set(present.values())) <= 1:
        return _Offsets(next(iter(present.values()), 0.0), None)
    own = np.zeros(N_CODEWORDS, dtype=np.float32)
    own[list(present)] = list(present.values())
    return _Offsets(0.0, own)


def _about(listing: DocumentList, quantizer: Quantizer, kind: str, offsets: _Offsets) -> dict[str, Any]:
    epsilon = quantizer.epsilon if quantizer.cross_levels is None else 0.0
    return {
        "format": "crossbyte FAISS export",
        "version": 1,
        "items": len(listing),
        "target": listing.side,
        "query": kind,
        "dimension": quantizer.codewords.shape[2] + 1,
        "constant": epsilon + offsets.common,
        "how": "ask with (x', 1) by inner product; distance = |x'|^2 + constant - 2 score",
    }


def _build(faiss: Any, listing: DocumentList, quantizer: Quantizer, offsets: _Offsets) -> Any:
    words = _words(quantizer, offsets)
    n_books, _, n_dims = words.shape
    lookup = faiss.AdditiveQuantizer.ST_LUT_nonorm  # tables and no norms: they are in the words
    index = faiss.IndexResidualQuantizer(n_dims, n_books, 8, faiss.METRIC_INNER_PRODUCT, lookup)
    faiss.copy_array_to_vector(words.ravel(), index.rq.codebooks)
    index.rq.is_trained = index.is_trained = True
    _fill(faiss, index, _codes(listing, quantizer, offsets))
    return index


def _words(quantizer: Quantizer, offsets: _Offsets) -> Float32:
    """Make codebooks (M', 256, D + 1): the codewords with one more coordinate, and the items' offsets."""
    exact = quantizer.codewords.astype(np.float64)
    books = [np.concatenate([exact, -0.5 * (exact**2).sum(axis=2, keepdims=True)], axis=2)]
    for added in (quantizer.cross_levels, offsets.own):
        if added is not None:
            book = np.zeros((1, N_CODEWORDS, exact.shape[2] + 1))
            book[0, :, -1] = -0.5 * added
            books.append(book)
    return np.ascontiguousarray(np.concatenate(books), dtype=np.float32)


def _codes(listing: DocumentList, quantizer: Quantizer, offsets: _Offsets) -> Codes:
    """Collect one byte per codebook of :func:`_words`, (n, M')."""
    codes = listing.codes(len(quantizer.codewords) + (quantizer.cross_levels is not None))
    return codes if offsets.own is None else np.column_stack([codes, listing.codings])


def _fill(faiss: Any, index: Any, codes: Codes) -> None:
    if not len(codes):
        return
    if hasattr(index, "add_sa_codes"):
        index.add_sa_codes(codes)
    else:  # before FAISS 1.10 indexes without lists had no such thing, and their codes were a plain vector
        faiss.copy_array_to_vector(codes.ravel(), index.codes)
        index.ntotal = len(codes)
