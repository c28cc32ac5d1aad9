"""Open, search and write a sharded index: documents of a fitted model in many files, as one index."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from crossbyte import errors
from crossbyte.compute.executor import Workers
from crossbyte.index import mutations
from crossbyte.index.docids import DocIds, Id, check_ids
from crossbyte.index.index import BaseIndex
from crossbyte.index.mutations import Batch, DocumentFields, check_fields, check_payloads, list_fields
from crossbyte.index.scan import SearchBackend
from crossbyte.index.snapshot import load_model
from crossbyte.index.storage.store import Store
from crossbyte.model.estimator import CMCQ
from crossbyte.progress import ProgressCallback
from crossbyte.sharding.manifest import (
    NOWHERE,
    Homes,
    Manifest,
    create_folder,
    find_model_record,
    route_documents,
)
from crossbyte.sharding.pool import LocalShardPool, ShardPool
from crossbyte.sharding.snapshot import ShardedSnapshot, make_build_error
from crossbyte.sharding.split import create_shards
from crossbyte.sharding.wire import ShardLost, ShardSummary
from crossbyte.validation import check_choice, check_number

Path = str | os.PathLike[str]
T = TypeVar("T")
_TIMEOUT = 10.0
_TRIES = 5  # restarts and compactions that may happen during one answer


class ShardedReader(BaseIndex):
    """One generation of every shard; :meth:`ShardedIndex.pinned` gives one that stays at its generations.

    Parameters
    ----------
    path : str
    model : CMCQ
    pool : ShardPool
    summaries : tuple of ShardSummary
        The generation of each shard, and what it has then.
    n_threads : int
    """

    def __init__(
        self, path: str, model: CMCQ, pool: ShardPool, summaries: tuple[ShardSummary, ...], n_threads: int
    ) -> None:
        super().__init__(path, model)
        self._pool, self._summaries, self._n_threads = pool, summaries, n_threads

    @property
    def generation(self) -> int:
        """The sum of the shards' generations: it grows with every commit of any shard."""
        return sum(summary.generation for summary in self._summaries)

    @property
    def format(self) -> int:
        """The lowest format of a shard: new documents may go to any."""
        return min(summary.format for summary in self._summaries)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self._summaries)

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the shards that did not answer the last question."""
        return tuple(self._pool.names[shard] for shard in sorted(self._pool.lost))

    def close(self) -> None:
        """Close all shards; may be called again."""
        self._pool.close()

    def __repr__(self) -> str:
        numbers = f"{len(self)} documents in {self.n_shards} shards, generation {self.generation}"
        return f"{type(self).__name__}({self.path!r}, {numbers})"

    def __len__(self) -> int:
        return sum(summary.n_documents for summary in self._summaries)

    def snapshot(self) -> ShardedSnapshot:
        """Give the generations of all shards that are seen, to ask them together."""
        return ShardedSnapshot(self._path, self._pool, self._summaries, self._n_threads)

    def _answer(self, question: Callable[[SearchBackend], T], *, payloads: bool = False) -> T:
        for _ in range(_TRIES if payloads else 0):
            try:
                return self._ask_snapshot(question)
            except ShardLost:  # after finding documents, before giving payloads: the next answer is partial
                continue
        return self._ask_snapshot(question)

    def _ask_snapshot(self, question: Callable[[ShardedSnapshot], T]) -> T:
        """Ask the generations that are seen; again, where a shard has come back with a newer one."""
        for _ in range(_TRIES):
            snapshot = self.snapshot()
            try:
                return question(snapshot)
            except errors.StaleReader:
                if not self._catch_up(snapshot):
                    raise
        return question(self.snapshot())

    def _catch_up(self, snapshot: ShardedSnapshot) -> bool:
        """Look for newer generations than those of a snapshot, and say whether there are any."""
        return False


class ShardedIndex(ShardedReader):
    """An index of many files; made by :meth:`create`, :meth:`open`, or from one by `crossbyte.split_index`.

    It answers, bit for bit, what one index with the same documents would, wherever the shards are: in this
    process, or each in an actor of a Ray cluster. Searches may run in many threads; writes, too, one after
    another.
    """

    def __init__(
        self, manifest: Manifest, mode: str, model: CMCQ, pool: ShardPool, n_jobs: int | None = None
    ) -> None:
        known = pool.ask("summary", dict.fromkeys(range(len(manifest.shards)), ()), patient=True)
        summaries = ShardedSnapshot(manifest.folder, pool, (), 1).complete(known)
        super().__init__(manifest.folder, model, pool, tuple(summaries), Workers(n_jobs).n_jobs)
        self._manifest, self._mode = manifest, mode
        self._writing, self._views_lock = threading.RLock(), threading.Lock()
        self._views: weakref.WeakSet[ShardedReader | ShardedSnapshot] = weakref.WeakSet()

    # Opening

    @classmethod
    def create(
        cls,
        path: Path,
        model: CMCQ,
        n_shards: int,
        *,
        format: int | None = None,
        cluster: str | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Make an empty sharded index for a fitted model, and open it for writing.

        Parameters
        ----------
        path : path-like
            A folder such as ``photos.cbs``; nothing may be there yet.
        model : CMCQ
            Fitted; a copy of it becomes part of every shard.
        n_shards : int
        format : {1, 2}, optional
            Of every shard, as in :meth:`crossbyte.Index.create`.
        cluster, n_jobs
            As in :meth:`open`.

        Raises
        ------
        IndexExists, NotFitted, ReadOnlyIndex, StorageFull
        """
        if not isinstance(model, CMCQ):
            raise errors.InvalidInput(f"model: expected a fitted CMCQ, got {type(model).__name__}")
        create_shards(path, model, n_shards, format)
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
        pool = _open_shards(manifest, mode, own, cluster, n_jobs, seconds)
        try:
            return cls(manifest, mode, own, pool, n_jobs)
        except BaseException:
            pool.close()
            raise

    # Generations

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new.

        Of a lost shard, what was known of it stays.
        """
        with self._writing:
            before = self._summaries
            self._advance("refresh", self._everywhere)
            return self._summaries != before

    def pinned(self) -> ShardedReader:
        """Give a view that stays at these generations, whatever is written or refreshed.

        It is closed with the index. A compaction ends it, and so does the restart of a lost shard that was
        written to since: :class:`StaleReader`.
        """
        with self._views_lock:
            view = ShardedReader(self._path, self._model, self._pool, self._summaries, self._n_threads)
            self._views.add(view)
        return view

    @property
    def _everywhere(self) -> dict[int, tuple[()]]:
        """Calls to every shard, without arguments."""
        return dict.fromkeys(range(self.n_shards), ())

    def snapshot(self) -> ShardedSnapshot:
        """Give the generations of all shards that are seen; shards keep them as long as it is used."""
        with self._views_lock:
            snapshot = super().snapshot()
            self._views.add(snapshot)
        return snapshot

    def _catch_up(self, snapshot: ShardedSnapshot) -> bool:
        """Learn what the shards have now: one may have been restarted with what was written since."""
        if self._summaries == snapshot.summaries:
            with self._writing:
                self._update_summaries(self._pool.ask("summary", self._everywhere))
        return self._summaries != snapshot.summaries

    def _update_summaries(self, known: Mapping[int, ShardSummary]) -> None:
        self._summaries = tuple(known.get(shard, old) for shard, old in enumerate(self._summaries))

    def _advance(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> list[str]:
        """Have shards go on to their next generation; give the names of those that are lost."""
        with self._views_lock:
            views = [
                view._summaries if isinstance(view, ShardedReader) else view.summaries for view in self._views
            ]
        needed = {shard: {summaries[shard].generation for summaries in views} for shard in calls}
        moves = {shard: (*rest, needed[shard]) for shard, rest in calls.items()}
        try:
            known = self._pool.ask(method, moves, patient=method != "refresh")
        except BaseException:
            with suppress(errors.CrossbyteError):
                self._catch_up(self.snapshot())  # some may have moved before one failed
            raise
        self._update_summaries(known)
        return [self._pool.names[shard] for shard in calls if shard not in known]

    # The files

    def verify(self) -> None:
        """Read all files, compare everything with its checksums, and check that no two shards share an id.

        Raises
        ------
        DamagedIndexFile
        ClusterError
            A shard is lost.
        """
        self.snapshot().complete(self._pool.ask("verify", self._everywhere, patient=True))
        hashes = np.sort(np.concatenate(self._ask_snapshot(lambda snapshot: snapshot.ask_all("hashes"))))
        if (hashes[1:] == hashes[:-1]).any() and len(set(ids := self.ids())) < len(ids):
            raise errors.DamagedIndexFile(f"{self.path}: the index is damaged: two shards have the same id")

    def backup(self, path: Path) -> None:
        """Copy all shards to another folder; nothing may be at ``path`` yet.

        A writer copies generations that belong together. Beside a writer elsewhere, each shard is copied as
        it is at some time during the call.
        """
        with self._writing, create_folder(path) as folder:
            calls = {shard: (os.path.join(folder, name),) for shard, name in enumerate(self._manifest.shards)}
            self.snapshot().complete(self._pool.ask("backup", calls, patient=True))
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
        DuplicateId, InvalidInput, PayloadTooLarge, TooManyFields, ReadOnlyIndex
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
            places = _group_by_shard(self._find_known_homes(names))
            check_fields(self.snapshot().fields, list_fields(bodies.objects))
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
            homes = self._find_homes(names) if missing_ok else self._find_known_homes(names)
            calls = {
                shard: ([names[row] for row in rows.tolist()],)
                for shard, rows in _group_by_shard(homes).items()
            }
            self._write("delete", calls)
        return int((homes != NOWHERE).sum())

    def build_cells(self, **options: Any) -> NoReturn:
        """Refuse it: cells are built in one file, and stay when it is cut into shards.

        Raises
        ------
        InvalidInput
        """
        raise make_build_error(self.path)

    def drop_cells(self) -> None:
        """Forget the cells, and search everything again; files keep the bytes until they are compacted."""
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
        def add(batch: Batch) -> None:
            self._add_batch(batch, callback, replacing, cluster)

        return mutations.add_batches(self.model, self.format, ids, documents, cluster, add)

    def _add_batch(
        self, batch: Batch, callback: ProgressCallback | None, replacing: bool, cluster: str | None
    ) -> None:
        """Encode documents, and add them to the shards that they belong to."""
        with self._writing:
            homes = self._find_homes(batch.ids)
            if not replacing and (homes != NOWHERE).any():
                known = batch.ids[int(np.flatnonzero(homes != NOWHERE)[0])]
                raise errors.DuplicateId(
                    f"{self.path}: id {known!r} is there already; use upsert() to replace it"
                )
            check_fields(self.snapshot().fields, list_fields(batch.payloads.objects))
            coded = batch.with_codes(batch.encode(self.model, callback, cluster))
            first = max(summary.next_number for summary in self._summaries)
            places = _group_by_shard(
                route_documents(homes, [summary.n_documents for summary in self._summaries])
            )
            calls = {
                shard: (coded.take(rows), DocIds.of(first + rows.astype(np.int64)), replacing)
                for shard, rows in places.items()
            }
            self._write("add", calls)

    def _latest(self) -> ShardedSnapshot:
        """Give what the next write builds on: the newest generations of all shards.

        Raises
        ------
        ReadOnlyIndex, ClusterError
        """
        if self._mode != "rw":
            raise errors.ReadOnlyIndex(f'{self.path}: opened for reading; open it with mode="rw" to write')
        lost = self._advance("refresh", self._everywhere)
        if lost:
            raise self.snapshot().make_lost_error(lost)
        return self.snapshot()

    def _write(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> None:
        """Have shards write, each in a commit of its own.

        Raises
        ------
        ClusterError
        """
        lost = self._advance(method, calls)
        if lost:
            raise ShardLost(
                f"{self.path}: {', '.join(lost)} went away while writing; look, when it is back, whether it "
                "has what was written"
            )

    def _find_homes(self, names: Sequence[Id]) -> Homes:
        """Find the shard (n,) of every id in the newest generations, or `NOWHERE`."""
        homes = np.full(len(names), NOWHERE, np.intp)
        for shard, places in enumerate(self._latest().ask_all("find", names)):
            homes[places] = shard
        return homes

    def _find_known_homes(self, names: Sequence[Id]) -> Homes:
        """Find the shard (n,) of every id; refuse ids that no document has."""
        homes = self._find_homes(names)
        if (homes == NOWHERE).any():
            name = names[int(np.flatnonzero(homes == NOWHERE)[0])]
            raise errors.UnknownId(f"{self.path}: no document has the id {name!r}; nothing was changed")
        return homes


def _group_by_shard(homes: Homes) -> dict[int, NDArray[np.intp]]:
    """Group rows by the shard that they go to; those of `NOWHERE` are left out."""
    return {shard: np.flatnonzero(homes == shard) for shard in np.unique(homes[homes != NOWHERE]).tolist()}


def _load_model(manifest: Manifest, given: CMCQ | None = None) -> CMCQ:
    """Read the model, which must be the same in all shards, and the one given; no documents are read.

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
