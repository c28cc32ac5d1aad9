"""An open index file: the generation that a handle sees, and how a commit becomes the next one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Sequence
from typing import Self

from crossbyte.errors import ReadOnlyIndex
from crossbyte.executors.threads import available_cores
from crossbyte.model.cmcq import CMCQ
from crossbyte.search import loading
from crossbyte.search.details import Details
from crossbyte.search.segment import Segment
from crossbyte.search.snapshot import Snapshot
from crossbyte.search.storage.store import Change, NewRecord, Store

__all__ = ["Handle"]


class Handle:
    """What every open index has: a store, a model, and one generation in memory.

    Attributes
    ----------
    path : str
    model : CMCQ
        The model inside the file.
    store : Store
    details : Details
        The generation that this handle sees, whether a compaction has passed it or not.
    writing : RLock
        Held while the next generation is made.
    """

    def __init__(self, store: Store, model: CMCQ, n_jobs: int | None) -> None:
        self.path, self.model = store.path, model
        self.store, self.writing = store, threading.RLock()
        self._n_jobs = n_jobs
        quantizers = loading.quantizers_of(model)
        self.details = Details(loading.load_snapshot(store, quantizers, n_jobs), store)

    @classmethod
    def of(cls, store: Store, model: CMCQ, n_jobs: int | None) -> Self:
        """Read the newest generation; if that fails, close the store."""
        try:
            return cls(store, model, n_jobs)
        except BaseException:
            store.close()
            raise

    @property
    def generation(self) -> int:
        """The commit that this handle sees."""
        return self.details.snapshot.generation

    @property
    def n_threads(self) -> int:
        """Threads of a search."""
        return available_cores() if self._n_jobs is None or self._n_jobs < 0 else max(1, self._n_jobs)

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new."""
        with self.writing:
            old = self.details.snapshot
            new = loading.load_next(old, self.store)
            if new is not old:
                self.details = Details(new, self.store)
            return new is not old

    def current(self) -> Details:
        """What this handle sees, if no compaction has passed it."""
        details = self.details
        self.store.check_current(details.snapshot.generation)
        if details.snapshot.unsettled:
            with self.writing:
                details = self.details = Details(self.details.snapshot.settle(), self.store)
        return details

    def pinned(self) -> Self:
        """A handle of the same file that stays at what this one sees now."""
        details, pinned = self.current(), copy.copy(self)
        pinned.details = details
        return pinned

    def latest(self) -> Snapshot:
        """What the next write builds on; a write whose end was interrupted may not have been seen yet."""
        if not self.store.writable:
            raise ReadOnlyIndex(f'{self.path}: opened for reading; open it with mode="rw" to write')
        self.refresh()
        return self.details.snapshot

    def commit(
        self,
        records: Sequence[NewRecord],
        segments: Sequence[Segment] = (),
        payloads: Iterable[tuple[int, int, bytes]] = (),
        next_number: int | None = None,
    ) -> None:
        """Write records, segments and payloads as one commit, and see it."""
        snapshot = self.details.snapshot
        written = [*records, *(segment.to_record() for segment in segments)]
        number = snapshot.catalogue.next_number if next_number is None else next_number
        catalogue = self.store.commit(Change(written, payloads, number))
        with self.store.reading():
            known = self.store.records(after=snapshot.last_record)
            following = snapshot.next(catalogue, known, segments, self.store)
        self.details = Details(following, self.store)
