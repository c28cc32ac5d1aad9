"""Run the kernels in NumPy: the definition of what is right, and what runs where no compiler was at hand.

The arithmetic is that of the C++ kernels, operation by operation, only for all rows at once; codes and
tables therefore agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Codes, Float32, Float64

if TYPE_CHECKING:
    from crossbyte.compute.kernels import (
        AskedPart,
        CellPoints,
        CodewordTables,
        CrossPenalty,
        FoundDocuments,
        ScanResult,
        ScanSide,
        Searcher,
    )

_MAX_SWEEPS = 10000
_PENALTY_FLOOR = 1e-3
_ROWS_AT_ONCE = 512  # bounds the temporary arrays of the code kernels


def lasso(
    gram: Float32, products: Float32, penalty: Float32, start: sparse.csr_matrix, tolerance: float
) -> sparse.csr_matrix:
    """Cyclic coordinate descent, one atom at a time for all rows; see :func:`.kernels.lasso`."""
    G, S, z = gram.astype(np.float64), start.toarray().astype(np.float64), penalty.astype(np.float64)
    C = products - S @ G  # what the atoms in use leave unexplained
    scale = np.maximum(z, _PENALTY_FLOOR * np.abs(products).max(axis=1, initial=0.0))
    todo = np.arange(len(S))
    for _ in range(_MAX_SWEEPS):
        if not len(todo):
            break
        largest = _lasso_sweep(G, S, C, z, todo)
        todo = todo[largest > 0.5 * tolerance * scale[todo]]
    return sparse.csr_matrix(S.astype(np.float32))


def _lasso_sweep(G: Float64, S: Float64, C: Float64, z: Float64, rows: NDArray[np.intp]) -> Float64:
    weights, left, bound = S[rows], C[rows], z[rows]
    largest = np.zeros(len(rows))
    for j in np.flatnonzero(np.diag(G) > 0):
        target = left[:, j] + G[j, j] * weights[:, j]
        updated = np.sign(target) * np.maximum(np.abs(target) - bound, 0.0) / G[j, j]
        step = updated - weights[:, j]
        weights[:, j] = updated
        left -= step[:, None] * G[j]
        np.maximum(largest, np.abs(step) * G[j, j], out=largest)
    S[rows], C[rows] = weights, left
    return largest


def _codeword_products(tables: CodewordTables, targets: Float32) -> Float32:
    """Compute <t, codeword> as (n, M, K), summed over the dimensions in order."""
    by_dim = tables.codewords_by_dim
    products = np.zeros((len(targets), by_dim.shape[0], by_dim.shape[2]), dtype=np.float32)
    for j in range(by_dim.shape[1]):
        products += targets[:, j, None, None] * by_dim[None, :, j, :]
    return products


def _overlaps(gram: NDArray[np.float32], codes: NDArray[Any], m: int, until: int) -> Float32:
    """Sum <their codeword, this one (m, k)> over the other codebooks: (..., K)."""
    overlaps = np.zeros((*codes.shape[:-1], gram.shape[-1]), dtype=np.float32)
    for j in range(until):
        if j != m:
            overlaps += gram[m, j, codes[..., j]]
    return overlaps


def _cross_terms(gram: NDArray[np.float32], codes: NDArray[Any]) -> Float32:
    total = np.zeros(codes.shape[:-1], dtype=np.float32)
    for i in range(codes.shape[-1]):
        for j in range(i):
            total += gram[j, i, codes[..., i], codes[..., j]]
    return np.float32(2.0) * total


def codeword_norms(gram: NDArray[np.float32]) -> Float32:
    """Look up the squared lengths (M, K) of codewords among their inner products (M, M, K, K)."""
    return np.ascontiguousarray(np.diagonal(np.einsum("mmck->mck", gram), axis1=1, axis2=2))


def _exact_objective(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, codes: NDArray[Any]
) -> Float64:
    chosen = tables.codewords[np.arange(codes.shape[1]), codes]  # (n, M, d)
    sums = chosen.sum(axis=1)
    cross = (sums**2).sum(axis=1) - (chosen**2).sum(axis=(1, 2))
    error = ((targets - sums) ** 2).sum(axis=1)
    result: Float64 = error + penalty.weight * (cross - penalty.epsilon) ** 2
    return result


def icm(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, codes: Codes, max_sweeps: int
) -> Codes:
    """See :func:`crossbyte.compute.kernels.icm`."""
    better = codes.copy()
    for start in range(0, len(codes), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        better[rows] = _icm_rows(tables, targets[rows], penalty, codes[rows], max_sweeps)
    return better


def _icm_rows(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, codes: Codes, max_sweeps: int
) -> Codes:
    gram, norms = tables.gram, codeword_norms(tables.gram)
    products = _codeword_products(tables, targets)
    new = codes.astype(np.intp)
    cross = _cross_terms(gram, new)
    for _ in range(max_sweeps):
        before = new.copy()
        for m in range(codes.shape[1]):
            _improve_one(gram, norms[m], products[:, m], penalty, m, cross, new)
        if (new == before).all():
            break
    old_value = _exact_objective(tables, targets, penalty, codes)
    new_value = _exact_objective(tables, targets, penalty, new)
    return np.where((new_value < old_value)[:, None], new, codes).astype(np.uint8)


def _improve_one(
    gram: NDArray[np.float32],
    norms: Float32,
    products: Float32,
    penalty: CrossPenalty,
    m: int,
    cross: Float32,
    codes: NDArray[np.intp],
) -> None:
    rows, two = np.arange(len(codes)), np.float32(2.0)
    mu, epsilon = np.float32(penalty.weight), np.float32(penalty.epsilon)
    overlaps = _overlaps(gram, codes, m, codes.shape[1])
    rest = cross - two * overlaps[rows, codes[:, m]]
    gap = rest[:, None] + two * overlaps - epsilon
    scores = norms - two * products + two * overlaps + mu * gap * gap
    best = _numbers(scores).argmin(axis=1)
    changed = scores[rows, best] < scores[rows, codes[:, m]]
    codes[changed, m] = best[changed]
    cross[changed] = (rest + two * overlaps[rows, best])[changed]


def beam_search(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, width: int, max_sweeps: int = 0
) -> Codes:
    """See :func:`crossbyte.compute.kernels.beam_search`."""
    codes = np.empty((len(targets), len(tables.codewords)), dtype=np.uint8)
    for start in range(0, len(targets), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        codes[rows] = _beam_rows(tables, targets[rows], penalty, width)
    return icm(tables, targets, penalty, codes, max_sweeps) if max_sweeps else codes


def _beam_rows(tables: CodewordTables, targets: Float32, penalty: CrossPenalty, width: int) -> Codes:
    gram, norms = tables.gram, codeword_norms(tables.gram)
    products = _codeword_products(tables, targets)
    n, M, K = products.shape
    beams = np.zeros((n, 1, M), dtype=np.intp)  # (n, width, M)
    errors = np.zeros((n, 1), dtype=np.float32)
    for m in range(M):
        scores = (
            norms[m] - np.float32(2.0) * products[:, None, m] + np.float32(2.0) * _overlaps(gram, beams, m, m)
        )
        candidates = (errors[:, :, None] + scores).reshape(n, -1)
        errors, chosen = _smallest(_numbers(candidates), min(width, candidates.shape[1]))
        beams = np.take_along_axis(beams, (chosen // K)[:, :, None], axis=1)
        beams[:, :, m] = chosen % K
    gap = _cross_terms(gram, beams).astype(np.float64) - penalty.epsilon
    finished = _numbers(errors + penalty.weight * gap * gap)
    best = finished.argmin(axis=1)
    kept = finished[np.arange(n), best] < np.inf
    return np.where(kept[:, None], beams[np.arange(n), best], 0).astype(np.uint8)


def _numbers(scores: NDArray[Any]) -> NDArray[Any]:
    """Put infinity for NaN, which argmin would take for the smallest: sums that overflowed never win."""
    return np.where(np.isnan(scores), scores.dtype.type(np.inf), scores)


def _smallest(values: Float32, count: int) -> tuple[Float32, NDArray[np.intp]]:
    """Find the ``count`` smallest of each row, ties in the order of the columns (as a stable sort)."""
    rows, values = np.arange(len(values)), values.copy()
    chosen = np.empty((len(values), count), dtype=np.intp)
    smallest = np.empty((len(values), count), dtype=np.float32)
    for i in range(count):
        chosen[:, i] = values.argmin(axis=1)
        smallest[:, i] = values[rows, chosen[:, i]]
        values[rows, chosen[:, i]] = np.inf
    return smallest, chosen


def codebook_value_gradient(
    codewords: Float64, codes: Codes, targets: Float32, penalty: CrossPenalty
) -> tuple[float, Float64]:
    """See :func:`crossbyte.compute.kernels.codebook_value_gradient`."""
    books = np.arange(codes.shape[1])
    chosen = codewords[books, codes]  # (n, M, d)
    sums = chosen.sum(axis=1)
    error = sums - targets
    gap = (sums**2).sum(axis=1) - (chosen**2).sum(axis=(1, 2)) - penalty.epsilon
    value = float((error**2).sum() + penalty.weight * (gap**2).sum())
    push = (4.0 * penalty.weight * gap)[:, None, None]
    pull = 2.0 * error[:, None, :] + push * (sums[:, None, :] - chosen)
    gradient = np.zeros_like(codewords)
    np.add.at(gradient, (books[None, :], codes), pull)
    return value, gradient


def distance_tables(points: Float32, codewords_by_dim: Float32) -> Float32:
    """See :func:`crossbyte.compute.kernels.distance_tables`."""
    n_codebooks, n_dims, n_codewords = codewords_by_dim.shape
    tables = np.zeros((len(points), n_codebooks, n_codewords), dtype=np.float32)
    for j in range(n_dims):
        difference = points[:, j, None, None] - codewords_by_dim[None, :, j, :]
        tables += difference * difference
    return tables


def ordered_product(rows: Float64, matrix: Float64) -> Float64:
    """See :func:`crossbyte.compute.kernels.ordered_product`."""
    product = np.zeros((len(rows), matrix.shape[1]))
    for column, line in zip(rows.T, matrix, strict=True):
        product += column[:, None] * line
    return product


def scan(
    sides: Sequence[ScanSide],
    n_items: int,
    k: int,
    extra: float,
    allowed: NDArray[np.uint64] | None,
    max_distance: float,
) -> ScanResult:
    """Sort everything; see :func:`crossbyte.compute.kernels.scan`."""
    bits = np.ones(n_items, dtype=bool) if allowed is None else _unpack_bits(allowed, n_items)
    rows = np.flatnonzero(bits)
    found = [
        _nearest_of_query(sides, query, rows, k, extra, max_distance) for query in range(len(sides[0].tables))
    ]
    return _join_results(found)


def scan_cells(
    side: ScanSide,
    rows: NDArray[np.uint32],
    starts: NDArray[np.int64],
    cells: NDArray[np.int64],
    k: int,
    extra: float,
    allowed: NDArray[np.uint64] | None,
    max_distance: float,
) -> ScanResult:
    """Sort everything in the visited cells; see :func:`crossbyte.compute.kernels.scan_cells`."""
    bits = None if allowed is None else _unpack_bits(allowed, 64 * len(allowed))
    found = []
    for query, visited in enumerate(cells):
        parts = [np.arange(starts[cell], starts[cell + 1]) for cell in visited]
        places = np.concatenate([np.empty(0, dtype=np.int64), *parts])
        if bits is not None:
            places = places[bits[rows[places]]]
        places = places[np.argsort(rows[places], kind="stable")]
        distances, near = _nearest_of_query([side], query, places, k, extra, max_distance)
        found.append((distances, rows[near].astype(np.int64)))
    return _join_results(found)


def _join_results(found: Sequence[tuple[Float32, NDArray[np.int64]]]) -> ScanResult:
    from crossbyte.compute.kernels import ScanResult

    counts = np.array([len(distances) for distances, _ in found], dtype=np.int64)
    distances = [part for part, _ in found] or [np.empty(0, dtype=np.float32)]
    numbers = [part for _, part in found] or [np.empty(0, dtype=np.int64)]
    return ScanResult(counts, np.concatenate(distances), np.concatenate(numbers))


def _unpack_bits(words: NDArray[np.uint64], n_items: int) -> NDArray[np.bool_]:
    octets = words.astype("<u8").view(np.uint8)
    return np.unpackbits(octets, count=n_items, bitorder="little").astype(bool)


def _nearest_of_query(
    sides: Sequence[ScanSide], query: int, rows: NDArray[np.intp], k: int, extra: float, max_distance: float
) -> tuple[Float32, NDArray[np.int64]]:
    total: Float32 | None = None
    for side in sides:
        distances = _canonical_sum(side, query)[rows]
        total = distances if total is None else total + distances
    assert total is not None
    total = total + np.float32(extra)
    near = np.flatnonzero(total <= np.float32(max_distance))
    order = near[np.argsort(total[near], kind="stable")[:k]]
    return total[order], rows[order].astype(np.int64)


def _canonical_sum(side: ScanSide, query: int) -> Float32:
    """Sum the distances to all items of the blocks, padding included."""
    table = side.tables[query]
    total = table[0, side.codes[:, 0]]
    for m in range(1, len(table)):
        total = total + table[m, side.codes[:, m]]
    flat: Float32 = (total + side.offsets[query]).reshape(-1)
    return flat


_SCORED_AT_ONCE = 64  # queries; bounds the memory of the scores


def choose_cells(cells: CellPoints, queries: Float32, count: int) -> NDArray[np.int64]:
    """Sort the cells by their scores; see :meth:`crossbyte.compute.kernels.CellPoints.choose`."""
    chosen = np.empty((len(queries), count), dtype=np.int64)
    for start in range(0, len(queries), _SCORED_AT_ONCE):
        rows = slice(start, start + _SCORED_AT_ONCE)
        chosen[rows] = np.argsort(cells.scores(queries[rows]), axis=1, kind="stable")[:, :count]
    return chosen


def search(
    searcher: Searcher, points: Float32, asked: Sequence[AskedPart], k: int, max_distance: float
) -> FoundDocuments:
    """Scan part after part, and sort all; see :meth:`crossbyte.compute.kernels.Searcher.search`."""
    from crossbyte.compute.kernels import FoundDocuments, ScanSide

    wanted = {quantizer for part in asked for quantizer, _ in searcher.parts[part.part].sides}
    tables = {quantizer: searcher.sources[quantizer].make_tables(points) for quantizer in wanted}
    queries, numbers, rows, distances, codings = (
        [np.empty(0, dtype)] for dtype in (np.int64, np.int64, np.int64, np.float32, np.uint8)
    )
    for place, extra, allowed, n_probe in asked:
        part = searcher.parts[place]
        if n_probe:
            assert part.cells is not None
            cells, quantizer = choose_cells(part.cells, points, n_probe), part.sides[0][0]
            found = [
                scan_cells(
                    ScanSide(run.codes, *tables[quantizer]),
                    run.rows, run.starts, cells, k, extra + 0.0, allowed, max_distance,
                )
                for run in part.runs
            ]  # fmt: skip
        else:
            sides = [ScanSide(codes, *tables[quantizer]) for quantizer, codes in part.sides]
            found = [scan(sides, part.n_items, k, extra + 0.0, allowed, max_distance)]
        for result in found:
            queries.append(np.repeat(np.arange(len(points)), result.counts))
            steps = result.rows if part.steps is None else part.steps[result.rows].astype(np.int64)
            numbers.append(part.first + steps)
            rows.append(result.rows)
            distances.append(result.distances)
            codings.append(np.full(len(result.rows), part.coding, dtype=np.uint8))
    query, number, distance = np.concatenate(queries), np.concatenate(numbers), np.concatenate(distances)
    order = np.lexsort((number, distance, query))
    counts = np.bincount(query, minlength=len(points))
    ends = np.cumsum(counts)
    ranks = np.arange(len(order)) - np.repeat(ends - counts, counts)
    kept = order[ranks < k]
    return FoundDocuments(
        np.minimum(counts, k),
        number[kept],
        np.concatenate(rows)[kept],
        distance[kept],
        np.concatenate(codings)[kept],
    )


def take_texts(text: bytes, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> list[str]:
    """See :func:`crossbyte.compute.kernels.take_texts`."""
    starts = np.where(rows > 0, ends[rows - 1], 0)
    return [text[start:end].decode() for start, end in zip(starts.tolist(), ends[rows].tolist(), strict=True)]
