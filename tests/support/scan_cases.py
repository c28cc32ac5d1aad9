"""Adversarial cases for the scan, from a fixed seed, and what a plain sort makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from crossbyte.compute.kernels import ScanSide, pack_codes

Array = np.ndarray
BATCHES = (1, 2, 5, 15, 16, 31, 32, 47, 48, 63, 64, 65, 100, 130)
SIZES = (0, 1, 63, 64, 65, 127, 128, 200, 1000, 1023, 1024, 2047, 2048, 4096)
LARGE = 40_000
BITMAPS = ("none", "none", "all", "tenth", "half", "one", "empty", "tail")
LIMITS = ("none", "none", "exact", "below", "median")
_EXTRA = ((0.0, -0.0, 0.375, -2.5, 1e8, 1e-40), (0.0, -0.0))
CODES = ("any", "any", "few", "same", "ascending", "descending")


def _rounded(rng: Any, shape: Any) -> Array:
    return rng.integers(0, 4, shape) / 4


def _mixed_entries(rng: Any, shape: Any) -> Array:
    return rng.random(shape) * 10.0 ** rng.integers(-30, 31, shape)


def _mixed_codebooks(rng: Any, shape: Any) -> Array:
    return rng.random(shape) * 10.0 ** rng.integers(-30, 31, (*shape[:2], 1))


def _dominant(rng: Any, shape: Any) -> Array:
    tables = rng.random(shape)
    tables[:, rng.integers(shape[1])] *= 1e4
    return tables


def _steps(rng: Any, shape: Any) -> Array:
    return np.where(rng.random(shape) < 0.02, rng.random(shape) * 1e-3, 1e6 + rng.random(shape))


def _neighbours(rng: Any, shape: Any) -> Array:
    """Values that differ in their last bits."""
    return 1.0 + rng.integers(0, 5, shape) * np.finfo(np.float32).eps


def _signed_zeros(rng: Any, shape: Any) -> Array:
    return np.where(rng.random(shape) < 0.5, -0.0, 0.0)


def _smooth(rng: Any, shape: Any) -> Array:
    """As after renumbering: neighbours in the codebook are alike."""
    return np.square(np.linspace(-1, 1, 256) - rng.uniform(-1, 1, (*shape[:2], 1))) + rng.random(shape) / 50


TABLES: dict[str, Callable[[Any, Any], Array]] = {
    "any": lambda rng, shape: rng.random(shape),
    "smooth": _smooth,
    "ties": _rounded,
    "equal": lambda rng, shape: np.full(shape, 0.75),
    "zeros": lambda rng, shape: np.zeros(shape),
    "signed zeros": _signed_zeros,
    "tiny": lambda rng, shape: rng.random(shape) * 1e-30,
    "huge": lambda rng, shape: rng.random(shape) * 1e30,
    "mixed entries": _mixed_entries,
    "mixed codebooks": _mixed_codebooks,
    "denormal": lambda rng, shape: rng.integers(0, 1000, shape) * 1e-45,
    "negative": lambda rng, shape: rng.standard_normal(shape),
    "negative ties": lambda rng, shape: rng.integers(-2, 3, shape) / 2,
    "swamped": lambda rng, shape: rng.random(shape),
    "cancelling": lambda rng, shape: 100.0 + rng.random(shape),
    "dominant": _dominant,
    "steps": _steps,
    "neighbours": _neighbours,
}
KINDS = (*TABLES, "one of each")


class Case(NamedTuple):
    """What makes one scan hard; everything else follows from the seed."""

    seed: int
    kind: str
    n_items: int
    n_queries: int
    n_codebooks: tuple[int, ...]
    k: int
    codes: str = "any"
    bitmap: str = "none"
    limit: str = "none"
    extra: float = 0.0


class Job(NamedTuple):
    """The arguments of a scan, and the codes (n, M) of each side before they were packed."""

    sides: list[ScanSide]
    plain: list[Array]
    case: Case
    allowed: Array | None
    max_distance: float

    def arguments(self, queries: slice) -> tuple[list[ScanSide], int, int, dict[str, Any]]:
        sides = [ScanSide(s.codes, s.tables[queries], s.offsets[queries]) for s in self.sides]
        options = {"extra": self.case.extra, "max_distance": self.max_distance}
        words = None if self.allowed is None else _words(self.allowed)
        return sides, self.case.n_items, self.case.k, options | {"allowed": words}


def _words(bits: Array) -> Array:
    """A bit per item in words of 64, the slow way."""
    words = np.zeros(-(-len(bits) // 64), dtype=np.uint64)
    for row in np.flatnonzero(bits).tolist():
        words[row // 64] |= np.uint64(1 << row % 64)
    return words


def _draw(rng: Any, index: int, kind: str) -> Case:
    """A case whose tables and sums stay small, so that thousands take seconds."""
    n_items = SIZES[index % len(SIZES)]
    n_queries = BATCHES[int(rng.integers(len(BATCHES)))]
    if rng.random() < 0.2:
        sides: tuple[int, ...] = tuple(rng.choice([1, 2, 3, 4, 5, 9], 2).tolist())
    else:
        sides = (int(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 63, 64])),)
    while n_queries > 1 and n_queries * sum(sides) * (256 + n_items) > 120_000:
        n_queries = max(size for size in BATCHES if size < n_queries)
    return _with_options(rng, Case(0, kind, n_items, n_queries, sides, 1))


def _with_options(rng: Any, case: Case) -> Case:
    n = case.n_items
    return case._replace(
        seed=int(rng.integers(2**32)),
        k=int(rng.choice([1, 2, 10, 100, max(1, n - 1), max(1, n), n + 7])),
        codes=str(rng.choice(CODES)),
        bitmap=str(rng.choice(BITMAPS)),
        limit=str(rng.choice(LIMITS)),
        extra=float(rng.choice(_EXTRA[case.kind == "signed zeros"])),
    )


def small_cases(kind: str, count: int) -> list[Case]:
    """``count`` cases of one kind of table."""
    rng = np.random.default_rng([KINDS.index(kind), 2026])
    return [_draw(rng, index, kind) for index in range(count)]


def large_cases() -> list[Case]:
    """Many items, many codebooks, or many queries with them."""
    rng = np.random.default_rng(40)
    shapes = [(LARGE, 1, (8,)), (LARGE, 5, (4, 4)), (LARGE, 16, (2,)), (LARGE, 1, (64,)), (LARGE, 2, (16,))]
    shapes += [(127, 130, (64,)), (65, 100, (64, 64)), (4096, 5, (64, 64)), (2048, 48, (16,))]
    shapes += [(LARGE - 1, 16, (3,)), (5000, 130, (1,)), (LARGE, 31, (1,)), (LARGE, 48, (1,))]
    cases = [Case(0, kind, *shapes[i % len(shapes)], 1) for i, kind in enumerate(2 * KINDS)]
    return [_with_options(rng, case) for case in cases]


# From a case to the arguments of a scan


def make(case: Case) -> Job:
    """Everything that the case stands for."""
    rng = np.random.default_rng(case.seed)
    plain = [_codes(rng, case, m) for m in case.n_codebooks]
    sides = [ScanSide(pack_codes(codes), *_tables(rng, case, codes.shape[1])) for codes in plain]
    job = Job(sides, plain, case, _bitmap(rng, case), np.inf)
    if case.codes in ("ascending", "descending") and case.n_items:
        job = _sorted(job)
    return job._replace(max_distance=_limit(rng, job))


def _codes(rng: Any, case: Case, n_codebooks: int) -> Array:
    if case.codes == "few":
        return rng.integers(0, 256, (3, n_codebooks), dtype=np.uint8)[rng.integers(0, 3, case.n_items)]
    if case.codes == "same":
        return np.repeat(rng.integers(0, 256, (1, n_codebooks), dtype=np.uint8), case.n_items, axis=0)
    return rng.integers(0, 256, (case.n_items, n_codebooks), dtype=np.uint8)


def _tables(rng: Any, case: Case, n_codebooks: int) -> tuple[Array, Array]:
    if case.kind == "one of each":  # queries of one group are nothing like each other
        parts = [_tables(rng, case._replace(kind=k, n_queries=1), n_codebooks) for k in TABLES]
        chosen = [parts[q % len(parts)] for q in range(case.n_queries)]
        return np.concatenate([t for t, _ in chosen]), np.concatenate([o for _, o in chosen])
    shape = (case.n_queries, n_codebooks, 256)
    tables = TABLES[case.kind](rng, shape).astype(np.float32)
    offsets = rng.standard_normal(case.n_queries)
    if case.kind == "swamped":  # most of the tables' digits are lost in the sum
        offsets = rng.choice([-1e7, 1e7, 3e7], case.n_queries)
    if case.kind == "cancelling":  # as -(M - 1)|x|² does
        offsets = -100.0 * n_codebooks + rng.standard_normal(case.n_queries)
    if case.kind in ("zeros", "signed zeros", "tiny", "denormal"):
        offsets = _signed_zeros(rng, case.n_queries)
    return tables, offsets.astype(np.float32)


def _bitmap(rng: Any, case: Case) -> Array | None:
    n = case.n_items
    if case.bitmap == "none":
        return None
    if case.bitmap == "one":
        return np.arange(n) == rng.integers(max(n, 1))
    if case.bitmap == "tail":
        return np.arange(n) >= (n - 1) // 64 * 64
    return rng.random(n) < {"all": 1.0, "tenth": 0.1, "half": 0.5, "empty": 0.0}[case.bitmap]


def _sorted(job: Job) -> Job:
    """Items in the order of the first query: every one is better, or none is."""
    order = np.argsort(distances(job, slice(0, 1))[0], kind="stable")
    order = order[::-1] if job.case.codes == "descending" else order
    plain = [codes[order] for codes in job.plain]
    packed = [ScanSide(pack_codes(c), s.tables, s.offsets) for c, s in zip(plain, job.sides, strict=True)]
    return job._replace(sides=packed, plain=plain)


def _limit(rng: Any, job: Job) -> float:
    if job.case.limit == "none" or not job.case.n_items:
        return float(np.inf)
    known = distances(job, slice(0, 1))[0]
    if job.case.limit == "exact":
        return float(known[rng.integers(len(known))])
    if job.case.limit == "below":
        return float(np.nextafter(known.min(), np.float32(-np.inf)))
    return float(np.median(known.astype(np.float64)))


# The truth


def distances(job: Job, queries: slice) -> Array:
    """The canonical sum, (queries, items) float32, written out."""
    total = None
    for codes, side in zip(job.plain, job.sides, strict=True):
        tables = side.tables[queries]
        own = tables[:, 0, codes[:, 0]]
        for m in range(1, codes.shape[1]):
            own = own + tables[:, m, codes[:, m]]
        own = own + side.offsets[queries][:, None]
        total = own if total is None else total + own
    return total + np.float32(job.case.extra + 0.0)  # type: ignore[operator] # -0.0 adds what 0.0 adds


def expected(job: Job) -> list[tuple[Array, Array]]:
    """Rows and distances of every query by a full sort by (distance, row)."""
    rows = np.arange(job.case.n_items)
    found = []
    for row_distances in distances(job, slice(None)):
        order = np.lexsort((rows, row_distances))
        keep = row_distances[order] <= np.float32(job.max_distance)
        if job.allowed is not None:
            keep &= job.allowed[order]
        best = order[keep][: job.case.k]
        found.append((best.astype(np.int64), row_distances[best]))
    return found
