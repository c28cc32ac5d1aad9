"""Ray as an executor: shares of blocks are tasks, rows stay in the object store, Ray retries what is lost."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

import crossbyte
from crossbyte import kernels
from crossbyte.blocks import row_blocks
from crossbyte.errors import ClusterError
from crossbyte.executors import ray_errors
from crossbyte.executors.protocol import Executor, Item, Result
from crossbyte.executors.ray_arrays import RayArray, RaySparse, cut, leaving_rows_out, needed, shares_at_hand
from crossbyte.executors.ray_cluster import LOCAL, Cluster, ray_module, translated
from crossbyte.executors.threads import Workers, added, available_cores

__all__ = ["RayWorkers"]


_PASSED_ON = ("CROSSBYTE_NO_NATIVE",)


class Setup(NamedTuple):
    """What must be the same everywhere for results to be the same."""

    crossbyte: str
    numpy: str
    scipy: str
    kernels: str

    @classmethod
    def here(cls) -> Setup:
        """That of this process."""
        kind = "numpy" if kernels.implementation() == "numpy" else "native"
        return cls(crossbyte.__version__, np.__version__, scipy.__version__, kind)

    def check(self, other: Setup) -> None:
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
        self._cluster = Cluster(cluster, cores if cluster == LOCAL else None)
        self._here = Workers(cores if cluster == LOCAL else None)
        self._asked, self.n_jobs = asked, cores
        self._entered = ExitStack()
        self._task: Any = None
        self._options: dict[str, Any] = {}

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            room = entered.enter_context(self._cluster).n_cpus
            entered.enter_context(self._here)
            self._task, self._options = ray_module().remote(_run), _options()
            self._entered = entered.pop_all()
        self.n_jobs = self._asked or room
        # Some wait where nobody counts, so that no worker waits for us.
        self._most = 2 * room if self.n_jobs == room else self.n_jobs
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task = None
        self._entered.__exit__(kind, error, trace)

    def __reduce__(self) -> tuple[Any, ...]:
        """Inside a task there is one thread: functions bring along whoever called them."""
        return Workers, (1,)

    @property
    def local(self) -> Executor:
        """The threads of this process."""
        return self._here

    def hold(self, rows: Any) -> Any:
        """Put rows into the object store, one share at a time; a share is all that is read at once."""
        if isinstance(rows, RayArray | RaySparse):
            return rows
        blocks = cut(rows.shape[0])
        shares = [self._cluster.put(_rows_of(rows, share)) for share in blocks]
        kind = RaySparse if sparse.issparse(rows) or getattr(rows, "is_sparse", False) else RayArray
        return kind.of(blocks, tuple(rows.shape[1:]), rows.dtype, shares, self._cluster.get)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items; a task each, a few at a time."""
        for reference in self._submitted(function, items, None):
            yield self._cluster.get(reference)

    def as_they_end(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Callable[[], Result]]]:
        """Yield every item when its task has ended, with what returns the result, or raises the error.

        No task waits for a longer one that was begun before it; a few are under way at a time.
        """
        begin, items = self._beginner(function), iter(items)
        under_way = {begin(item): item for item in islice(items, self._most)}
        while under_way:
            reference = self._cluster.first_of(list(under_way))
            yield under_way.pop(reference), partial(self._cluster.get, reference)
            under_way |= {begin(item): item for item in islice(items, 1)}

    def total(self, function: Callable[[slice], Any], n_rows: int) -> Any:
        """Sum ``function(block)``: over the blocks of each share, then over the shares, in order."""
        references = self._submitted(lambda blocks: added(map(function, blocks)), cut(n_rows), n_rows)
        return added(map(self._cluster.get, references))

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

        shares = cut(n_rows)
        items = shares if size is None else [_recut(blocks, size) for blocks in shares]
        return RayArray.of(shares, row, dtype, self._stored(fill, items, n_rows), self._cluster.get)

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Compute sparse rows share by share, and leave them in the object store."""

        def stack(blocks: list[slice]) -> tuple[None, Any]:
            return None, sparse.vstack([function(block) for block in blocks], format="csr")

        shares = cut(n_rows)
        stored = self._stored(stack, shares, n_rows)
        return RaySparse.of(shares, (n_columns,), np.float32, stored, self._cluster.get)

    def _stored(self, function: Callable[[Any], Any], items: Iterable[Any], n_rows: int) -> list[Any]:
        """References to results that are all there."""
        stored = []
        for done, rows in self._submitted(function, items, n_rows, n_results=2):
            self._cluster.get(done)  # nothing, or what went wrong: the rows themselves stay where they are
            stored.append(rows)
        return stored

    def _submitted(
        self, function: Callable[[Any], Any], items: Iterable[Any], n_rows: int | None, n_results: int = 1
    ) -> Iterator[Any]:
        """Yield what refers to the result of each item, in order, with a bounded number of them under way."""
        begin = self._beginner(function, n_rows, n_results)
        waiting: deque[Any] = deque()
        # What is abandoned is not cancelled: ray.cancel ends this very process at times (Ray 2.60, "Tried to
        # complete task that was not pending"). Ray ends our tasks when we leave; elsewhere these few end by
        # themselves.
        for item in items:
            waiting.append(begin(item))
            if len(waiting) >= self._most:
                yield waiting.popleft()
        yield from waiting

    def _beginner(
        self, function: Callable[[Any], Any], n_rows: int | None = None, n_results: int = 1
    ) -> Callable[[Any], Any]:
        """Send a function once for all its tasks; return what begins the task of an item."""
        with leaving_rows_out() as rows:
            sent = self._cluster.put((Setup.here(), function))
        task = self._task.options(**self._options, num_returns=n_results)
        return lambda item: self._submit(task, sent, item, rows, n_rows)

    def _submit(self, task: Any, sent: Any, item: Any, rows: list[Any], n_rows: int | None) -> Any:
        numbers = needed(rows, item, n_rows)
        shares = [rows[place].references[number] for place, number in numbers]
        with translated(self._cluster):
            return task.remote(sent, item, numbers, *shares)


def _run(
    sent: tuple[Setup, Callable[[Any], Any]], item: Any, numbers: list[tuple[int, int]], *shares: Any
) -> Any:
    """What a task does."""
    setup, function = sent
    setup.check(Setup.here())
    with shares_at_hand(numbers, shares), Workers(1):
        return function(item)


def _options() -> dict[str, Any]:
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": ray_errors.RETRIES, "name": "crossbyte"}
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return options | ({"runtime_env": {"env_vars": passed}} if passed else {})


def _rows_of(rows: Any, blocks: Sequence[slice]) -> Any:
    share = rows[blocks[0].start : blocks[-1].stop]
    return share if sparse.issparse(share) else np.ascontiguousarray(share)


def _recut(blocks: Sequence[slice], size: int) -> list[slice]:
    """The rows of a share in blocks of another size."""
    first = blocks[0].start
    return [
        slice(first + part.start, first + part.stop) for part in row_blocks(blocks[-1].stop - first, size)
    ]
