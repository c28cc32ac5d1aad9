"""Run functions over blocks of rows in the tasks of a Ray cluster; the rows are in Ray's object store.

Rows lie there one object per share. A function is sent without the rows that it reads: its task gets those of
its own share as arguments. So Ray can run it where they are, and bring them back by running their tasks again
after a loss; and rows that nobody reads any more are not kept for those that were computed from them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

import crossbyte
from crossbyte.compute import kernels, ray_session
from crossbyte.compute.executor import (
    SHARE_BLOCKS,
    Executor,
    Item,
    Result,
    Workers,
    add_parts,
    available_cores,
    empty_csr,
    iter_batches,
    row_blocks,
)
from crossbyte.compute.ray_session import LOCAL, RayCluster, ray_module, translate_ray_errors
from crossbyte.errors import ClusterError

_PASSED_VARIABLES = ("CROSSBYTE_NO_NATIVE",)


# Rows in the object store


def cut_shares(n_rows: int) -> list[list[slice]]:
    """Cut rows into the canonical blocks, share by share."""
    return list(iter_batches(row_blocks(n_rows), SHARE_BLOCKS))


class _Shares:
    """Rows in shares, each of which is fetched when it is read."""

    def __init__(
        self, bounds: NDArray[np.intp], row: tuple[int, ...], dtype: Any, references: list[Any], fetch: Any
    ) -> None:
        self._bounds, self._row, self.references, self._fetch = bounds, row, references, fetch
        self.dtype = np.dtype(dtype)

    @classmethod
    def of(
        cls,
        blocks: Sequence[list[slice]],
        row: tuple[int, ...],
        dtype: Any,
        references: list[Any],
        fetch: Callable[[Any], Any],
    ) -> Self:
        """Join the rows of one share after another; ``fetch`` gets what a reference refers to."""
        bounds = np.array([0, *(share[-1].stop for share in blocks)], dtype=np.intp)
        return cls(bounds, row, dtype, references, fetch)

    def __reduce__(self) -> tuple[Any, ...]:
        rows = _rows_left_out.get()
        if rows is None:
            return type(self), (self._bounds, self._row, self.dtype, self.references, self._fetch)
        provided = _ProvidedShares(_register_rows(self, rows))
        return type(self), (
            self._bounds,
            self._row,
            self.dtype,
            list(range(len(self.references))),
            provided.find,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of a row."""
        return (int(self._bounds[-1]), *self._row)

    @property
    def ndim(self) -> int:
        """Axes."""
        return 1 + len(self._row)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        if isinstance(rows, slice):
            return self._take_range(*rows.indices(len(self)))
        return self._take(np.asarray(rows))

    def numbers(self, start: int, stop: int) -> range:
        """Find the shares that hold these rows."""
        if start >= stop:
            return range(0)
        first, last = np.searchsorted(self._bounds, [start, stop - 1], side="right") - 1
        return range(int(first), int(last) + 1)

    def _take_range(self, start: int, stop: int, step: int) -> Any:
        if step != 1:
            return self._take(np.arange(start, stop, step))
        parts = []
        for number in self.numbers(start, stop):
            first, last = self._bounds[number : number + 2]
            parts.append(self._fetch_share(number)[max(start - first, 0) : min(stop, last) - first])
        return self._join(parts)

    def _take(self, rows: NDArray[np.intp]) -> Any:
        share = np.searchsorted(self._bounds, rows, side="right") - 1
        order = np.argsort(share, kind="stable")
        parts = [
            self._fetch_share(int(number))[rows[share == number] - self._bounds[number]]
            for number in np.unique(share)
        ]
        joined = self._join(parts)
        if (np.diff(share) >= 0).all():
            return joined
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return joined[back]

    def _fetch_share(self, number: int) -> Any:
        return self._fetch(self.references[number])

    def _join(self, parts: list[Any]) -> Any:
        raise NotImplementedError


class RayArray(_Shares):
    """Dense rows (n, …) in the object store; a :class:`~crossbyte.compute.executor.TallArray`."""

    is_sparse = False

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(np.array(self[:]), dtype=dtype)

    def _join(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, *self._row), dtype=self.dtype), *parts])


class RaySparse(_Shares):
    """Sparse rows (n, d) in the object store; a :class:`~crossbyte.compute.executor.TallSparse`."""

    is_sparse = True

    def _join(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        return sparse.vstack(parts, format="csr") if parts else empty_csr(self._row[0]).astype(self.dtype)


# Functions on their way to a task


_rows_left_out: ContextVar[list[_Shares] | None] = ContextVar("_left_out", default=None)
_provided: dict[tuple[int, int], Any] = {}  # by place and number; a worker process has one task at a time


@contextmanager
def pickle_without_rows() -> Iterator[list[_Shares]]:
    """Pickle, inside of this context, without rows; the list yielded has the rows, by their places."""
    rows: list[_Shares] = []
    token = _rows_left_out.set(rows)
    try:
        yield rows
    finally:
        _rows_left_out.reset(token)


@contextmanager
def provide_shares(numbers: Sequence[tuple[int, int]], shares: Sequence[Any]) -> Iterator[None]:
    """Provide, inside a task, the shares of the rows that were left out, by place and number."""
    _provided.update(zip(numbers, shares, strict=True))
    try:
        yield
    finally:
        _provided.clear()


def find_needed_shares(rows: Sequence[_Shares], item: Any, n_rows: int | None) -> list[tuple[int, int]]:
    """Find the shares that a function reads for an item, by place and number: those of its blocks, or all.

    Of rows that are not those which the blocks count, nobody knows which are needed.
    """
    blocks = [item] if isinstance(item, slice) else item
    found = []
    for place, some in enumerate(rows):
        start, stop = 0, len(some)
        if _are_blocks(blocks) and n_rows in (None, stop):
            start, stop = blocks[0].start, min(blocks[-1].stop, stop)
        found += [(place, number) for number in some.numbers(start, stop)]
    return found


def _are_blocks(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(block, slice) for block in item)


def _register_rows(rows: _Shares, known: list[_Shares]) -> int:
    for place, other in enumerate(known):
        if other is rows:
            return place
    known.append(rows)
    return len(known) - 1


class _ProvidedShares(NamedTuple):
    """The shares of rows that were left out, inside a task."""

    place: int

    def find(self, number: int) -> Any:
        if (self.place, number) not in _provided:
            raise RuntimeError("a function over blocks has read rows outside of its block: please report it")
        return _provided[self.place, number]


# The executor


class WorkerSetup(NamedTuple):
    """The versions that must be the same everywhere for results to be the same."""

    crossbyte: str
    numpy: str
    scipy: str
    kernels: str

    @classmethod
    def here(cls) -> WorkerSetup:
        """Return the versions of this process."""
        kind = "numpy" if kernels.implementation() == "numpy" else "native"
        return cls(crossbyte.__version__, np.__version__, scipy.__version__, kind)

    def check(self, other: WorkerSetup) -> None:
        """Refuse to work with other versions: the result would be another one."""
        if self != other:
            named = (
                f"{name} {mine} and {theirs}"
                for name, mine, theirs in zip(self._fields, self, other, strict=True)
                if mine != theirs
            )
            raise ClusterError(
                f"cluster: expected the same versions on every machine, got {', '.join(named)}; "
                "install the same"
            )


class RayWorkers:
    """Tasks of a Ray cluster; a context that also holds BLAS to one thread here.

    Parameters
    ----------
    cluster : str
        ``"local"`` starts Ray here (or takes the one that this process is connected to), and ends it at the
        end; else the address of a cluster.
    n_jobs : int or None
        Tasks at a time; None or -1 for all that there is room for; more than that for a cluster that grows
        when tasks wait. The results do not depend on it.

    Raises
    ------
    MissingExtra
        Ray is not installed.
    ClusterError
        On entering: there is no such cluster, or it has no CPU. In a call: it was lost.
    TaskDied
        In a call: the process of a task died, and again in every retry.
    """

    def __init__(self, cluster: str, n_jobs: int | None = None) -> None:
        asked = None if n_jobs is None or n_jobs < 0 else max(1, n_jobs)
        cores = asked or available_cores()
        self._cluster = RayCluster(cluster, cores if cluster == LOCAL else None)
        self._here = Workers(cores if cluster == LOCAL else None)
        self._n_requested, self.n_jobs = asked, cores
        self._entered = ExitStack()
        self._task: Any = None
        self._task_options: dict[str, Any] = {}

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            room = entered.enter_context(self._cluster).n_cpus
            entered.enter_context(self._here)
            self._task, self._task_options = ray_module().remote(_run_task), _task_options()
            self._entered = entered.pop_all()
        self.n_jobs = self._n_requested or room
        # Unless a number was given, some tasks wait in the queue, so that no worker waits for this process.
        self._max_tasks = 2 * room if self.n_jobs == room else self.n_jobs
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task = None
        self._entered.__exit__(kind, error, trace)

    def __reduce__(self) -> tuple[Any, ...]:
        """Become one thread inside a task: functions bring along the executor that runs them."""
        return Workers, (1,)

    @property
    def local(self) -> Executor:
        """The threads of this process."""
        return self._here

    def hold(self, rows: Any) -> Any:
        """Put rows into the object store, one share at a time; no more than a share is read at once."""
        if isinstance(rows, RayArray | RaySparse):
            return rows
        blocks = cut_shares(rows.shape[0])
        shares = [self._cluster.put(_rows_of_share(rows, share)) for share in blocks]
        kind = RaySparse if sparse.issparse(rows) or getattr(rows, "is_sparse", False) else RayArray
        return kind.of(blocks, tuple(rows.shape[1:]), rows.dtype, shares, self._cluster.get)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items; a task each, a few at a time."""
        for reference in self._submit_all(function, items, None):
            yield self._cluster.get(reference)

    def map_unordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Callable[[], Result]]]:
        """Yield every item when its task has ended, with a function that gives its result or error.

        No task waits for a longer one that was begun before it; a few are under way at a time.
        """
        submit, items = self._make_submit(function), iter(items)
        under_way = {submit(item): item for item in islice(items, self._max_tasks)}
        while under_way:
            reference = self._cluster.wait_for_first(list(under_way))
            yield under_way.pop(reference), partial(self._cluster.get, reference)
            under_way |= {submit(item): item for item in islice(items, 1)}

    def total(self, function: Callable[[slice], Any], n_rows: int) -> Any:
        """Sum ``function(block)``: over the blocks of each share, then over the shares, in order."""
        references = self._submit_all(
            lambda blocks: add_parts(map(function, blocks)), cut_shares(n_rows), n_rows
        )
        return add_parts(map(self._cluster.get, references))

    def rows(
        self,
        function: Callable[[slice], NDArray[Any]],
        n_rows: int,
        row: tuple[int, ...],
        dtype: DTypeLike,
        size: int | None = None,
    ) -> Any:
        """Compute rows share by share, and leave them in the object store."""

        def fill(blocks: list[slice]) -> tuple[None, NDArray[Any]]:
            first = blocks[0].start
            values = np.empty((blocks[-1].stop - first, *row), dtype)
            for block in blocks:
                values[block.start - first : block.stop - first] = function(block)
            return None, values

        shares = cut_shares(n_rows)
        items = shares if size is None else [_split_blocks(blocks, size) for blocks in shares]
        return RayArray.of(shares, row, dtype, self._store_results(fill, items, n_rows), self._cluster.get)

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Compute sparse rows share by share, and leave them in the object store."""

        def stack(blocks: list[slice]) -> tuple[None, Any]:
            return None, sparse.vstack([function(block) for block in blocks], format="csr")

        shares = cut_shares(n_rows)
        stored = self._store_results(stack, shares, n_rows)
        return RaySparse.of(shares, (n_columns,), np.float32, stored, self._cluster.get)

    def _store_results(self, function: Callable[[Any], Any], items: Iterable[Any], n_rows: int) -> list[Any]:
        """Run the tasks, leave their results in the object store, and return the references to them."""
        stored = []
        for done, rows in self._submit_all(function, items, n_rows, n_results=2):
            self._cluster.get(done)  # nothing, or what went wrong: the rows themselves stay where they are
            stored.append(rows)
        return stored

    def _submit_all(
        self, function: Callable[[Any], Any], items: Iterable[Any], n_rows: int | None, n_results: int = 1
    ) -> Iterator[Any]:
        """Yield the reference to each item's result, in order, with a bounded number of tasks under way."""
        submit = self._make_submit(function, n_rows, n_results)
        waiting: deque[Any] = deque()
        # What is abandoned is not cancelled: ray.cancel ends this very process at times (Ray 2.60, "Tried to
        # complete task that was not pending"). Ray ends our tasks when we leave; elsewhere these few end by
        # themselves.
        for item in items:
            waiting.append(submit(item))
            if len(waiting) >= self._max_tasks:
                yield waiting.popleft()
        yield from waiting

    def _make_submit(
        self, function: Callable[[Any], Any], n_rows: int | None = None, n_results: int = 1
    ) -> Callable[[Any], Any]:
        """Send a function once for all its tasks; return the function that begins the task of an item."""
        with pickle_without_rows() as rows:
            sent = self._cluster.put((WorkerSetup.here(), function))
        task = self._task.options(**self._task_options, num_returns=n_results)
        return lambda item: self._submit(task, sent, item, rows, n_rows)

    def _submit(self, task: Any, sent: Any, item: Any, rows: list[Any], n_rows: int | None) -> Any:
        numbers = find_needed_shares(rows, item, n_rows)
        shares = [rows[place].references[number] for place, number in numbers]
        with translate_ray_errors(self._cluster):
            return task.remote(sent, item, numbers, *shares)


def _run_task(
    sent: tuple[WorkerSetup, Callable[[Any], Any]], item: Any, numbers: list[tuple[int, int]], *shares: Any
) -> Any:
    """Run a function on an item: what a task does."""
    setup, function = sent
    setup.check(WorkerSetup.here())
    with provide_shares(numbers, shares), Workers(1):
        return function(item)


def _task_options() -> dict[str, Any]:
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": ray_session.RETRIES, "name": "crossbyte"}
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return options | ({"runtime_env": {"env_vars": passed}} if passed else {})


def _rows_of_share(rows: Any, blocks: Sequence[slice]) -> Any:
    share = rows[blocks[0].start : blocks[-1].stop]
    return share if sparse.issparse(share) else np.ascontiguousarray(share)


def _split_blocks(blocks: Sequence[slice], size: int) -> list[slice]:
    """Cut the rows of a share into blocks of another size."""
    first = blocks[0].start
    return [
        slice(first + part.start, first + part.stop) for part in row_blocks(blocks[-1].stop - first, size)
    ]
