"""Open, search and write a sharded index: documents of a fitted model in many files, as one index."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Self, TypeVar, Unpack

import numpy as np

from crossbyte import errors
from crossbyte.compute.executor import Workers
from crossbyte.index import mutations
from crossbyte.index.docids import DocIds, Id, check_ids
from crossbyte.index.index import BaseIndex
from crossbyte.index.mutations import Batch, DocumentFields, check_payloads
from crossbyte.index.scan import SearchBackend
from crossbyte.index.snapshot import load_model
from crossbyte.index.storage.store import Store
from crossbyte.model.estimator import CMCQ
from crossbyte.progress import ProgressCallback
from crossbyte.sharding.manifest import NOWHERE, Manifest, create_folder, find_model_record, route_documents
from crossbyte.sharding.pool import LocalShardPool, ShardPool
from crossbyte.sharding.snapshot import ShardedSnapshot, make_build_error
from crossbyte.sharding.split import create_shards
from crossbyte.sharding.wire import ShardLost, ShardSummary
from crossbyte.validation import check_choice, check_number

Path = str | os.PathLike[str]
T = TypeVar("T")
_TIMEOUT = 10.0
_TRIES = 5  # restarts and compactions that may pass within one answer


class ShardedReader(BaseIndex):
    """What is seen of a sharded index at one moment; it has the reading methods of :class:`crossbyte.Index`.

    Parameters
    ----------
    path : str
    model : CMCQ
    holder : ShardPool
    summaries : tuple of ShardSummary
        What each shard had at that moment.
    n_threads : int
    """

    def __init__(
        self, path: str, model: CMCQ, holder: ShardPool, summaries: tuple[ShardSummary, ...], n_threads: int
    ) -> None:
        self._path, self._model, self._holder = path, model, holder
        self._summaries, self._n_threads = summaries, n_threads

    @property
    def path(self) -> str:
        """The real path of the folder."""
        return self._path

    @property
    def model(self) -> CMCQ:
        """The model inside every shard."""
        return self._model

    @property
    def generation(self) -> int:
        """The sum of the shards' generations: it grows with every commit of any shard."""
        return sum(summary.generation for summary in self._summaries)

    @property
    def n_shards(self) -> int:
        """How many files there are."""
        return len(self._summaries)

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the shards that did not answer when they were last asked."""
        return tuple(self._holder.names[shard] for shard in sorted(self._holder.lost))

    def close(self) -> None:
        """Close all shards; may be called again."""
        self._holder.close()

    def __repr__(self) -> str:
        numbers = f"{len(self)} documents in {self.n_shards} shards, generation {self.generation}"
        return f"{type(self).__name__}({self.path!r}, {numbers})"

    def __len__(self) -> int:
        return sum(summary.n_documents for summary in self._summaries)

    def snapshot(self) -> ShardedSnapshot:
        """Give all shards as they are seen now; one is made for every question."""
        return ShardedSnapshot(self._path, self._holder, self._summaries, self._n_threads)

    def _answer(self, question: Callable[[SearchBackend], T], *, payloads: bool = False) -> T:
        for _ in range(_TRIES if payloads else 0):
            try:
                return self._ask(question)
            except ShardLost:  # between finding something and telling its payload: the next answer is partial
                continue
        return self._ask(question)

    def _ask(self, question: Callable[[ShardedSnapshot], T]) -> T:
        """Ask of one moment; again, where a shard has come back with a newer one."""
        for _ in range(_TRIES):
            moment = self.snapshot()
            try:
                return question(moment)
            except errors.StaleReader:
                if not self._catch_up(moment):
                    raise
        return question(self.snapshot())

    def _catch_up(self, moment: ShardedSnapshot) -> bool:
        """Whether there is another moment to answer from."""
        return False


class ShardedIndex(ShardedReader):
    """An index of many files; made by :meth:`create`, :meth:`open`, or from one by `crossbyte.split_index`.

    It answers, bit for bit, what one index with the same documents would, wherever the shards are: in this
    process, or each in an actor of a Ray cluster. Searches may run in many threads; writes, too, one after
    another.
    """

    def __init__(
        self, manifest: Manifest, mode: str, model: CMCQ, holder: ShardPool, n_jobs: int | None = None
    ) -> None:
        known = holder.ask("summary", dict.fromkeys(range(len(manifest.shards)), ()), patient=True)
        summaries = ShardedSnapshot(manifest.folder, holder, (), 1).complete(known)
        super().__init__(manifest.folder, model, holder, tuple(summaries), Workers(n_jobs).n_jobs)
        self._manifest, self._mode = manifest, mode
        self._writing, self._looking = threading.RLock(), threading.Lock()
        self._views: weakref.WeakSet[ShardedReader | ShardedSnapshot] = weakref.WeakSet()

    # Opening

    @classmethod
    def create(
        cls, path: Path, model: CMCQ, n_shards: int, *, cluster: str | None = None, n_jobs: int | None = None
    ) -> Self:
        """Make an empty sharded index for a fitted model, and open it for writing.

        Parameters
        ----------
        path : path-like
            A folder such as ``photos.cbs``; nothing may be there yet.
        model : CMCQ
            Fitted; a copy of it becomes part of every shard.
        n_shards : int
        cluster, n_jobs
            As in :meth:`open`.

        Raises
        ------
        IndexExists, NotFitted, ReadOnlyIndex, StorageFull
        """
        if not isinstance(model, CMCQ):
            raise errors.InvalidInput(f"model: expected a fitted CMCQ, got {type(model).__name__}")
        create_shards(path, model, n_shards)
        return cls.open(path, "rw", cluster=cluster, n_jobs=n_jobs)

    @classmethod
    def open(
        cls,
        path: Path,
        mode: str = "r",
        *,
        model: CMCQ | None = None,
        cluster: str | None = None,
        n_jobs: int | None = None,
        timeout: float = _TIMEOUT,
    ) -> Self:
        """Open a sharded index for reading (``"r"``) or as its only writer (``"rw"``).

        Parameters
        ----------
        path : path-like
            The folder; with a cluster, one that all its machines see.
        mode : {"r", "rw"}
        model : CMCQ, optional
            The model that the index must have been made with.
        cluster : str, optional
            None holds all shards in this process. ``"local"`` starts Ray here, else the address of a cluster:
            every shard is held by an actor, which Ray places by its memory and restarts when it is lost.
        n_jobs : int or None
            Threads of a search. None for all cores in this process, and for one in each actor.
        timeout : float
            Seconds after which an actor that does not even say that it is there counts as lost.

        Raises
        ------
        FileNotFoundError, ForeignIndexFile, NewerIndexFile, IndexLocked
        DamagedIndexFile
            A shard is missing or damaged, or the list of shards is.
        WrongModel
            A shard, or all of them, was made with another model.
        ClusterError, MissingExtra
            There is no such cluster, or Ray is not installed.
        """
        check_choice(mode, "mode", ("r", "rw"))
        seconds = check_number(timeout, "timeout", 0.0, open_low=True)
        manifest = Manifest.read(path)
        own = _load_model(manifest, model)
        if model is None:
            own.set_params(n_jobs=n_jobs)
        holder = _open_shards(manifest, mode, own, cluster, n_jobs, seconds)
        try:
            return cls(manifest, mode, own, holder, n_jobs)
        except BaseException:
            holder.close()
            raise

    # Following

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new.

        Of a lost shard, what was known of it stays.
        """
        with self._writing:
            before = self._summaries
            self._move("refresh", self._everywhere)
            return self._summaries != before

    def pinned(self) -> ShardedReader:
        """A view that stays at this moment, whatever is written or refreshed; closed with the index.

        A compaction ends it, and so does the restart of a lost shard that was written to since:
        :class:`StaleReader`.
        """
        with self._looking:
            rest = self._path, self._model, self._holder, self._summaries, self._n_threads
            view = ShardedReader(*rest)
            self._views.add(view)
        return view

    @property
    def _everywhere(self) -> dict[int, tuple[()]]:
        """A call without arguments to every shard."""
        return dict.fromkeys(range(self.n_shards), ())

    def snapshot(self) -> ShardedSnapshot:
        """Give all shards as they are seen now, and keep what they have while somebody looks at it."""
        with self._looking:
            moment = super().snapshot()
            self._views.add(moment)
        return moment

    def _catch_up(self, moment: ShardedSnapshot) -> bool:
        """Learn what the shards have now: one may have been restarted with what was written since."""
        if self._summaries == moment.summaries:
            with self._writing:
                self._learn(self._holder.ask("summary", self._everywhere))
        return self._summaries != moment.summaries

    def _learn(self, known: Mapping[int, ShardSummary]) -> None:
        self._summaries = tuple(known.get(shard, old) for shard, old in enumerate(self._summaries))

    def _move(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> list[str]:
        """Have shards go on to their next generation; names of those that are lost."""
        with self._looking:
            views = [
                view._summaries if isinstance(view, ShardedReader) else view.summaries for view in self._views
            ]
        needed = {shard: {summaries[shard].generation for summaries in views} for shard in calls}
        moves = {shard: (*rest, needed[shard]) for shard, rest in calls.items()}
        try:
            known = self._holder.ask(method, moves, patient=method != "refresh")
        except BaseException:
            with suppress(errors.CrossbyteError):
                self._catch_up(self.snapshot())  # some may have moved before one failed
            raise
        self._learn(known)
        return [self._holder.names[shard] for shard in calls if shard not in known]

    # The files

    def verify(self) -> None:
        """Read all files and compare everything with its checksums; and that no two shards share an id.

        Raises
        ------
        DamagedIndexFile
        ClusterError
            A shard is lost.
        """
        moment = self.snapshot()
        moment.complete(self._holder.ask("verify", self._everywhere, patient=True))
        hashes = np.sort(np.concatenate(self._ask(lambda moment: moment.ask_all("hashes"))))
        if (hashes[1:] == hashes[:-1]).any() and len(set(ids := self.ids())) < len(ids):
            raise errors.DamagedIndexFile(f"{self.path}: the index is damaged: two shards have the same id")

    def backup(self, path: Path) -> None:
        """Copy all shards to another folder; nothing may be at ``path`` yet.

        By its writer, the copy is of one moment. Beside a writer elsewhere, every shard is of one of its own.
        """
        with self._writing, create_folder(path) as folder:
            calls = {shard: (os.path.join(folder, name),) for shard, name in enumerate(self._manifest.shards)}
            self.snapshot().complete(self._holder.ask("backup", calls, patient=True))
            self._manifest.write(folder)

    # Writing

    def add(
        self,
        ids: Any,
        *,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
        **documents: Unpack[DocumentFields],
    ) -> int:
        """Add documents; parameters and numbers as those of :meth:`crossbyte.Index.add`.

        Where actors hold the shards, ``cluster="local"`` codes on the cluster that they are on.

        Up to 16,384 documents go to the smallest shard, in one commit. More are spread so that all shards are
        of one size: then every shard's part is a commit of its own.

        Raises
        ------
        DuplicateId, InvalidInput, PayloadTooLarge, ReadOnlyIndex
            Before anything is written.
        ClusterError
            A shard is lost; nothing was changed, unless it was lost while writing.
        StorageFull, StorageFailed, WriteRefused
        """
        return self._add_all(ids, documents, callback, replacing=False, cluster=cluster)

    def upsert(
        self,
        ids: Any,
        *,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
        **documents: Unpack[DocumentFields],
    ) -> int:
        """Add documents, in the place of those that have the same ids; a replacement stays in its shard."""
        return self._add_all(ids, documents, callback, replacing=True, cluster=cluster)

    def update_payloads(self, ids: Any, payloads: Any) -> int:
        """Replace the payloads of documents and keep their codes and numbers; None removes a payload."""
        names = check_ids(ids)
        bodies = check_payloads(payloads, len(names))
        with self._writing:
            places = _group_by_shard(self._known(names))
            calls = {
                shard: ([names[row] for row in rows.tolist()], bodies.take(rows))
                for shard, rows in places.items()
            }
            self._write("update_payloads", calls)
        return len(names)

    def delete(self, ids: Any, *, missing_ok: bool = False) -> int:
        """Delete documents; returns how many.

        Raises
        ------
        UnknownId
            An id is not there (unless ``missing_ok``); nothing was deleted.
        ClusterError
            A shard is lost; nothing was deleted, unless it was lost while writing.
        """
        names = check_ids(ids)
        with self._writing:
            homes = self._homes(self._latest(), names) if missing_ok else self._known(names)
            calls = {
                shard: ([names[row] for row in rows.tolist()],)
                for shard, rows in _group_by_shard(homes).items()
            }
            self._write("delete", calls)
        return int((homes != NOWHERE).sum())

    def build_cells(self, **asked: Any) -> NoReturn:
        """Refuse it: cells are built in one file, and those of one that is cut are kept by its shards.

        Raises
        ------
        InvalidInput
        """
        raise make_build_error(self.path)

    def drop_cells(self) -> None:
        """Search everything again; a shard's file keeps the bytes until it is compacted."""
        with self._writing:
            self._latest()
            self._write("drop_cells", self._everywhere)

    def compact(self) -> None:
        """Forget deleted documents and old payloads in every shard, and make the files small."""
        with self._writing:
            self._latest()
            self._write("compact", self._everywhere)

    def _add_all(
        self,
        ids: Any,
        documents: DocumentFields,
        callback: ProgressCallback | None,
        *,
        replacing: bool,
        cluster: str | None,
    ) -> int:
        batches = mutations.check_batches(self.model, ids, documents)
        with mutations.keep_cluster_open(cluster, ids, self.model):
            return sum(self._add(batch, callback, replacing, cluster) for batch in batches)

    def _add(
        self, batch: Batch, callback: ProgressCallback | None, replacing: bool, cluster: str | None
    ) -> int:
        with self._writing:
            moment = self._latest()
            homes = self._homes(moment, batch.ids)
            if not replacing and (homes != NOWHERE).any():
                known = batch.ids[int(np.flatnonzero(homes != NOWHERE)[0])]
                raise errors.DuplicateId(
                    f"{self.path}: id {known!r} is there already; use upsert() to replace it"
                )
            coded = batch.coded(batch.codes(self.model, callback, cluster))
            first = max(summary.next_number for summary in self._summaries)
            places = _group_by_shard(
                route_documents(homes, [summary.n_documents for summary in self._summaries])
            )
            calls = {
                shard: (coded.take(rows), DocIds.of(first + rows.astype(np.int64)), replacing)
                for shard, rows in places.items()
            }
            self._write("add", calls)
        return len(batch.ids)

    def _latest(self) -> ShardedSnapshot:
        """What the next write builds on: all shards as they are now.

        Raises
        ------
        ReadOnlyIndex, ClusterError
        """
        if self._mode != "rw":
            raise errors.ReadOnlyIndex(f'{self.path}: opened for reading; open it with mode="rw" to write')
        lost = self._move("refresh", self._everywhere)
        if lost:
            raise self.snapshot().lost(lost)
        return self.snapshot()

    def _write(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> None:
        lost = self._move(method, calls)
        if lost:
            raise ShardLost(
                f"{self.path}: {', '.join(lost)} went away while writing; look, when it is back, whether it "
                "has what was written"
            )

    def _homes(self, moment: ShardedSnapshot, names: Sequence[Id]) -> Any:
        """The shard (n,) of every id, or `NOWHERE`."""
        homes = np.full(len(names), NOWHERE, np.intp)
        for shard, places in enumerate(moment.ask_all("find", names)):
            homes[places] = shard
        return homes

    def _known(self, names: Sequence[Id]) -> Any:
        homes = self._homes(self._latest(), names)
        if (homes == NOWHERE).any():
            name = names[int(np.flatnonzero(homes == NOWHERE)[0])]
            raise errors.UnknownId(f"{self.path}: no document has the id {name!r}; nothing was changed")
        return homes


def _group_by_shard(homes: Any) -> dict[int, Any]:
    """Rows by the shard that they go to; none of `NOWHERE`."""
    return {shard: np.flatnonzero(homes == shard) for shard in np.unique(homes[homes != NOWHERE]).tolist()}


def _load_model(manifest: Manifest, given: CMCQ | None = None) -> CMCQ:
    """Read the model, if it is the same in all shards, and the one given; no documents are read.

    Raises
    ------
    WrongModel
    """
    model: CMCQ | None = None
    for name, path in zip(manifest.shards, manifest.paths, strict=True):
        store = Store.open(path, writable=False)
        try:
            manifest.check_model(name, find_model_record(store)[1])
            model = model or load_model(store, given)
        finally:
            store.close()
    assert model is not None  # there is a shard
    return model


def _open_shards(
    manifest: Manifest, mode: str, model: CMCQ, cluster: str | None, n_jobs: int | None, timeout: float
) -> ShardPool:
    """Open all shards, in this process or in the actors of a cluster."""
    if cluster is None:
        return LocalShardPool(manifest, mode, model, n_jobs)
    from crossbyte.sharding.ray_pool import RayShardPool

    return RayShardPool(manifest, mode, cluster, n_jobs, timeout)
