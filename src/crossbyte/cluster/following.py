"""How a sharded index goes from moment to moment, and what shards keep for those who look at an old one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from crossbyte.cluster.holding import Holder
from crossbyte.cluster.manifest import Manifest
from crossbyte.cluster.messages import Summary
from crossbyte.cluster.moment import Moment
from crossbyte.cluster.reading import ShardedReader
from crossbyte.errors import CrossbyteError
from crossbyte.executors.threads import Workers
from crossbyte.model.cmcq import CMCQ

__all__ = ["ShardedFollower"]


class ShardedFollower(ShardedReader):
    """What is seen of a sharded index now; views of it may stay where they are."""

    def __init__(self, manifest: Manifest, model: CMCQ, holder: Holder, n_jobs: int | None) -> None:
        known = holder.ask("summary", dict.fromkeys(range(len(manifest.shards)), ()), patient=True)
        summaries = Moment(manifest.folder, holder, (), 1).complete(known)
        super().__init__(manifest.folder, model, holder, tuple(summaries), Workers(n_jobs).n_jobs)
        self._writing, self._looking = threading.RLock(), threading.Lock()
        self._views: weakref.WeakSet[ShardedReader | Moment] = weakref.WeakSet()

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

    def _moment(self) -> Moment:
        with self._looking:
            moment = super()._moment()
            self._views.add(moment)
        return moment

    def _catch_up(self, moment: Moment) -> bool:
        """Learn what the shards have now: one may have been restarted with what was written since."""
        if self._summaries == moment.summaries:
            with self._writing:
                self._learn(self._holder.ask("summary", self._everywhere))
        return self._summaries != moment.summaries

    def _learn(self, known: Mapping[int, Summary]) -> None:
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
            with suppress(CrossbyteError):
                self._catch_up(self._moment())  # some may have moved before one failed
            raise
        self._learn(known)
        return [self._holder.names[shard] for shard in calls if shard not in known]
