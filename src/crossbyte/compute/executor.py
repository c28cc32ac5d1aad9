"""Cut rows into canonical blocks, compute over them in threads, and choose the executor of a call.

Rows are always cut at the same places, whatever the storage and whoever works. Sums are taken over blocks of
4,096 rows, then over shares of four blocks, in the order of the rows. That is what makes a model's bytes a
function of data and seed alone.

Everything that a fit does with items is one of three things: a sum over blocks, new rows computed block by
block, or independent pieces of work. An algorithm that asks an :class:`Executor` for one of the three runs
unchanged in the threads of this process (here), with its rows in scratch files (``scratch``), or on a Ray
cluster (``ray_workers``), and gives the same bytes.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from threadpoolctl import LibController, ThreadpoolController

from crossbyte.compute import kernels
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.compute.ray_workers import RayWorkers

BLOCK_ROWS = 4096
SHARE_BLOCKS = 4  # what is added up, kept and sent in one piece: enough work to be worth a message
SHARE_ROWS = SHARE_BLOCKS * BLOCK_ROWS
TILE_ROWS = 256  # the smallest with which whole blocks are multiplied about as fast as in one piece
SAMPLE_ROWS = 20_000  # enough for any start; the alternation itself always sees every row
_SMALL_MATRIX = 2**16  # entries; beyond, BLAS is worth its trouble

_UNITS = {
    "": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*(|[kmgt]i?)b?\s*", re.IGNORECASE)
_MEMORY_SHARE = 4  # of the machine's memory
_UNKNOWN_MACHINE = 4 * 2**30
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

Item = TypeVar("Item")
Result = TypeVar("Result")


# Blocks of rows, and what is computed over them


def row_blocks(n_rows: int, size: int | None = None) -> list[slice]:
    """Cut ``n_rows`` rows into the canonical blocks; another size only where rows are independent."""
    size = size or BLOCK_ROWS
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def covers_all_rows(rows: slice, n_rows: int) -> bool:
    """Whether a block is all the rows there are; taking a part of a sparse matrix is slow even then."""
    return rows == slice(0, n_rows)


def sample_rows(n_rows: int, rng: np.random.Generator, most: int = SAMPLE_ROWS) -> NDArray[np.intp] | None:
    """Draw ``most`` of the rows to learn from, in order; None where there are no more than that."""
    if n_rows <= most:
        return None
    return np.sort(rng.choice(n_rows, most, replace=False))


def iter_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of ``size`` items, the last one shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def add_parts(parts: Iterable[Any]) -> Any:
    """Add parts up in their order; each an array, a number, or a tuple of these."""
    parts = iter(parts)
    result = next(parts)
    for part in parts:
        result = _add(result, part)
    return result


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return tuple(_add(a, b) for a, b in zip(left, right, strict=True))
    return left + right


def empty_csr(n_columns: int) -> sparse.csr_matrix:
    """Make a sparse matrix without rows."""
    shape: Any = (0, n_columns)  # the stubs of SciPy do not know that a shape makes a matrix
    return sparse.csr_matrix(shape, dtype=np.float32)


def deterministic_product(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """Multiply rows (n, d) by a (d, k) matrix; a row's product does not depend on the rows beside it.

    BLAS chooses its kernel by the shapes, and kernels round differently: one row alone would end in other
    bits than in a batch. A small matrix has a kernel of ours. For a large one, rows are cut in tiles of
    ``TILE_ROWS``, the last one filled up with zeros to the next size that was seen to give the bits of a
    whole tile. Some kernels of single precision (OpenBLAS for Haswell and Zen) round by a row's place in the
    tile; there the product is made in double precision and rounded once.
    """
    (n, d), k = rows.shape, matrix.shape[1]
    if d * k <= _SMALL_MATRIX and matrix.dtype == np.float64 and matrix.flags.c_contiguous:
        return kernels.ordered_product(np.ascontiguousarray(rows, dtype=np.float64), matrix)
    rows = np.ascontiguousarray(rows)
    dtype = np.result_type(rows, matrix)
    if dtype == np.float32 and n and not _is_place_indifferent():
        return deterministic_product(rows.astype(np.float64), matrix.astype(np.float64)).astype(np.float32)
    product = np.empty((n, k), dtype=dtype)
    whole = n - n % TILE_ROWS
    if whole:
        tiles = product[:whole].reshape(-1, TILE_ROWS, k)
        np.matmul(rows[:whole].reshape(-1, TILE_ROWS, d), matrix, out=tiles)
    if n > whole:
        sizes = _exact_tile_sizes(d, k, product.dtype, matrix.flags.c_contiguous)
        last = np.zeros((next(size for size in sizes if size >= n - whole), d), dtype=rows.dtype)
        last[: n - whole] = rows[whole:]
        product[whole:] = (last @ matrix)[: n - whole]
    return product


@cache
def _is_place_indifferent() -> bool:
    """Whether BLAS multiplies a row of single precision to the same bits in every place of a tile."""
    rng = np.random.default_rng(0)
    rows = np.tile((rng.random(TILE_ROWS) - 0.5).astype(np.float32), (TILE_ROWS, 1))
    matrix = (rng.random((TILE_ROWS, TILE_ROWS)) - 0.5).astype(np.float32)
    return all(bool((found == found[0]).all()) for found in (rows @ matrix, rows @ matrix.T))


@cache
def _exact_tile_sizes(d: int, k: int, dtype: np.dtype[Any], by_rows: bool) -> list[int]:
    """Find the numbers of rows, up to ``TILE_ROWS``, that BLAS multiplies to the bits of a whole tile.

    Which ones depends on the BLAS and the CPU; it is tried once, on random numbers, where every other
    order of summation shows.
    """
    rng = np.random.default_rng(0)
    rows = (rng.random((TILE_ROWS, d)) - 0.5).astype(dtype)
    matrix = np.asarray((rng.random((d, k)) - 0.5).astype(dtype), order="C" if by_rows else "F")
    expected = rows @ matrix
    sizes = [8, 16, 32, 64, 128]
    return [size for size in sizes if np.array_equal(rows[:size] @ matrix, expected[:size])] + [TILE_ROWS]


# What an algorithm asks of an executor


class TallArray(Protocol):
    """One row per item, (n, …), wherever the rows are; a NumPy array is one.

    ``np.asarray`` brings all of them into memory.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of a row."""

    @property
    def dtype(self) -> Any:
        """Type of the values."""

    def __len__(self) -> int:
        """Rows."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        """Some rows, as a NumPy array."""


class TallSparse(Protocol):
    """One sparse row per item, (n, d), wherever the rows are; a CSR matrix is one."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        """Some rows, as a CSR matrix."""


class Executor(Protocol):
    """Runs functions over blocks; a context, inside of which BLAS has one thread.

    Functions get a block of rows and return its part of the result. They change nothing, because they may run
    in another process, and again after a loss. No result depends on the executor.
    """

    n_jobs: int
    """pieces of work at the same time"""

    def __enter__(self) -> Self:
        """Begin to work."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and release what was kept for the work."""

    @property
    def local(self) -> Executor:
        """An executor that works here and in memory, for what is small: a sample, a query."""

    def hold(self, rows: Any) -> Any:
        """Put rows (dense, sparse, or stored) where the functions can reach them."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items."""

    def total(self, function: Callable[[slice], Any], n_rows: int) -> Any:
        """Sum ``function(block)``: over the blocks of each share, then over the shares, in order.

        The function returns an array, a number, or a tuple of these.
        """

    def rows(
        self,
        function: Callable[[slice], NDArray[Any]],
        n_rows: int,
        row: tuple[int, ...],
        dtype: DTypeLike,
        size: int | None = None,
    ) -> Any:
        """Collect ``function(block)``, the rows of a block, into a :class:`TallArray` (n_rows, *row).

        Blocks are the canonical ones, or of another size where rows are independent of each other.
        """

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Collect the sparse rows of every canonical block into a :class:`TallSparse` (n_rows, n_columns)."""


# Threads of this process


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas_libraries() -> list[LibController]:
    # Finding the loaded BLAS takes milliseconds, so it is done once.
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneBlasThread:
    """Holds BLAS to one thread while anybody works.

    The limit belongs to the whole process, so concurrent calls share it: the first one in sets it, the
    last one out restores what was there before. The libraries are set directly: threadpoolctl's own
    context looks at all of them anew each time, which takes as long as the search of a small index.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._before: list[int | None] = []

    def acquire(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = [library.get_num_threads() for library in _blas_libraries()]
                self._set([1] * len(self._before))
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._set(self._before)

    def _set(self, threads: list[int | None]) -> None:
        for library, before, number in zip(_blas_libraries(), self._before, threads, strict=True):
            if before != 1:
                library.set_num_threads(number)


_one_blas_thread = _OneBlasThread()


class Workers:
    """Threads that work on blocks in memory; a context that also holds BLAS to one thread.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads; None or -1 for all cores of this process. The results do not depend on it.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = available_cores() if n_jobs is None or n_jobs < 0 else max(1, n_jobs)
        self._pool: ThreadPoolExecutor | None = None
        self._is_entered = False

    def __enter__(self) -> Self:
        _one_blas_thread.acquire()
        self._is_entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._pool, self._is_entered = None, False
            _one_blas_thread.release()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items, a few at a time."""
        items = iter(items)
        first = list(islice(items, 2))
        if len(first) < 2 or self.n_jobs == 1 or not self._is_entered:
            yield from map(function, chain(first, items))
            return
        pool = self._start_threads()
        # A short queue: results are used up in order, so memory stays bounded.
        waiting: deque[Future[Result]] = deque()
        for item in chain(first, items):
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * self.n_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _start_threads(self) -> ThreadPoolExecutor:
        # Only when there is work for two: starting threads takes longer than a single query.
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs, thread_name_prefix="crossbyte")
        return self._pool

    def each(self, function: Callable[[slice], object], n_rows: int, size: int | None = None) -> None:
        """Call ``function(block)`` for every canonical block of ``n_rows`` rows, or those of another size."""
        blocks = row_blocks(n_rows, size)
        if len(blocks) == 1:  # a single query, as often as not: no need for a queue
            function(blocks[0])
            return
        for _ in self.map(function, blocks):
            pass

    def total(self, function: Callable[[slice], Any], n_rows: int) -> Any:
        """Sum ``function(block)``: over the blocks of each share, then over the shares, in order."""
        parts = self.map(function, row_blocks(n_rows))
        return add_parts(map(add_parts, iter_batches(parts, SHARE_BLOCKS)))

    def rows(
        self,
        function: Callable[[slice], NDArray[Any]],
        n_rows: int,
        row: tuple[int, ...],
        dtype: DTypeLike,
        size: int | None = None,
    ) -> Any:
        """Collect the rows of every block into one array (n_rows, *row)."""
        values = np.empty((n_rows, *row), dtype)

        def fill(block: slice) -> None:
            values[block] = function(block)

        self.each(fill, n_rows, size)
        return values

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Collect the sparse rows of every canonical block into one CSR matrix."""
        parts = list(self.map(function, row_blocks(n_rows)))
        if len(parts) == 1:  # a single query, as often as not
            return parts[0]
        return sparse.vstack(parts, format="csr") if parts else empty_csr(n_columns)

    def hold(self, rows: Any) -> Any:
        """Return the rows as they are: threads reach everything."""
        return rows

    @property
    def local(self) -> Executor:
        """The same executor: everything is here."""
        return self


# Choosing an executor


def make_executor(
    n_jobs: int | None, *, cluster: str | None = None, max_memory: str | int | None = None
) -> Executor:
    """Make the executor of a call; no result depends on which one it is.

    Parameters
    ----------
    n_jobs : int or None
        Threads, or pieces of work at the same time; None for all cores.
    cluster : str or None
        None for the threads of this process; ``"local"`` starts Ray here; else the address of a Ray cluster.
    max_memory : int, str or None
        Bytes, or text like ``"1.5GB"``, beyond which rows go to scratch files; None keeps all in memory. On a
        cluster rows are in Ray's object store, which has bounds of its own.

    Returns
    -------
    Executor
        To be entered as a context.

    Raises
    ------
    InvalidInput
        The amount of memory or the address makes no sense.
    """
    n_bytes = None if max_memory is None else parse_memory(max_memory)
    if cluster is not None:
        return make_ray_executor(cluster, n_jobs)
    if n_bytes is None:
        return Workers(n_jobs)
    from crossbyte.compute.scratch import ScratchWorkers

    return ScratchWorkers(n_jobs, n_bytes)


def make_ray_executor(cluster: Any, n_jobs: int | None) -> RayWorkers:
    """Make the executor of a cluster, ``"local"`` or an address; to be entered as a context.

    Raises
    ------
    InvalidInput
        The address is no text, or empty.
    """
    if not isinstance(cluster, str) or not cluster:
        raise InvalidInput(f"cluster: expected None, 'local' or the address of a cluster, got {cluster!r}")
    from crossbyte.compute.ray_workers import RayWorkers

    return RayWorkers(cluster, n_jobs)


@contextmanager
def keep_connected(cluster: str | None, n_jobs: int | None = None) -> Iterator[None]:
    """Stay connected to a cluster through several calls that name it; without one, do nothing."""
    if not isinstance(cluster, str) or not cluster:  # what is no address, the calls themselves refuse
        yield
        return
    from crossbyte.compute.ray_session import RayCluster

    with RayCluster(cluster, None if n_jobs is None or n_jobs < 0 else max(1, n_jobs)):
        yield


def parse_memory(amount: Any, name: str = "max_memory") -> int:
    """Return bytes from a whole number of them, or from text: ``"1.5GB"`` (10^9), ``"512 MiB"`` (2^20)."""
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    n_bytes = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if n_bytes < 1:
        raise InvalidInput(
            f"{name}: expected a number of bytes above 0, or text like '1.5GB', got {amount!r}"
        )
    return n_bytes


def default_memory() -> int:
    """Return the bytes that a call takes for its rows by default: a quarter of what this process may have."""
    return min(_machine_memory(), _container_memory()) // _MEMORY_SHARE


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return _UNKNOWN_MACHINE


def _container_memory() -> int:
    """Return what a container grants (Linux): it sees its machine's memory, and is ended beyond its own."""
    try:
        return int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # no container, or one without a bound ("max")
        return sys.maxsize
