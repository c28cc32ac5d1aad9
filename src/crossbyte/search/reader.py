"""The half of an index that only reads: one generation of a file, looked up and searched."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from crossbyte.executors.threads import available_cores
from crossbyte.gallery.searchable import T, View
from crossbyte.model.cmcq import CMCQ
from crossbyte.search.generation import Generation
from crossbyte.search.loading import check_snapshot, load_next, load_snapshot, quantizers_of
from crossbyte.search.searched import Searched
from crossbyte.search.snapshot import Snapshot
from crossbyte.search.storage.store import Store

__all__ = ["Path", "Reader"]

Path = str | os.PathLike[str]


class Reader(View):
    """What is seen of a file; :class:`crossbyte.search.index.Index` opens and writes it.

    Parameters
    ----------
    store : Store
        Closed if its newest generation cannot be read.
    model : CMCQ
        The model inside the file.
    n_jobs : int or None
    pinned : Reader, optional
        Another one of the same file, which has the generation in memory already.
    """

    def __init__(self, store: Store, model: CMCQ, n_jobs: int | None, pinned: Reader | None = None) -> None:
        self._store, self._model, self._n_jobs = store, model, n_jobs
        self._writing: Any = threading.RLock()  # held while the next generation is made
        if pinned is not None:
            self._writing, self._seen = pinned._writing, pinned.snapshot()
            return
        try:
            self._seen = load_snapshot(store, quantizers_of(model), n_jobs)
        except BaseException:
            store.close()
            raise

    @property
    def path(self) -> str:
        """The real path of the file."""
        return self._store.path

    @property
    def model(self) -> CMCQ:
        """The model inside the file."""
        return self._model

    @property
    def generation(self) -> int:
        """The commit that this handle sees."""
        return self._seen.generation

    @property
    def n_threads(self) -> int:
        """Threads of a search."""
        return available_cores() if self._n_jobs is None or self._n_jobs < 0 else max(1, self._n_jobs)

    def snapshot(self) -> Snapshot:
        """Give the generation that this handle sees, in memory.

        Raises
        ------
        StaleReader
            A compaction has passed it.
        """
        snapshot = self._seen
        self._store.check_current(snapshot.generation)
        if snapshot.unsettled:
            with self._writing:
                snapshot = self._seen = self._seen.settle()
        return snapshot

    def pinned(self) -> Reader:
        """A view that stays at this generation, whatever is written or refreshed; closed with the index.

        For several questions that must agree with each other, and with ``generation``. A compaction ends it:
        :class:`StaleReader`.
        """
        return Reader(self._store, self._model, self._n_jobs, self)

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new."""
        with self._writing:
            before, self._seen = self._seen, load_next(self._seen)
            return self._seen is not before

    def close(self) -> None:
        """Close the file; a writer gives up its place. May be called again."""
        self._store.close()

    def __repr__(self) -> str:
        return f"Index({self.path!r}, {len(self)} documents, generation {self.generation})"

    def __len__(self) -> int:
        return len(self._seen)

    def _answer(self, question: Callable[[Searched], T], *, payloads: bool = False) -> T:
        return question(Generation(self.snapshot(), self.n_threads))

    def verify(self) -> None:
        """Read the whole file and compare everything with its checksums; raises if anything is damaged."""
        self._store.verify()
        check_snapshot(load_next(self._seen).unread())

    def backup(self, path: Path) -> None:
        """Copy the index as it is in the file now, safely beside a writer; nothing may be at ``path`` yet."""
        self._store.backup(path)
