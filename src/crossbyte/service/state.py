"""Hold what all routes share: the open gallery, its newest generation, thread pools and metrics."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from starlette.requests import Request

from crossbyte.compute.executor import Workers
from crossbyte.errors import ClusterError, CrossbyteError, IndexBusy, StaleReader, UnknownField, UnknownId
from crossbyte.gallery.gallery import Gallery, is_sharded
from crossbyte.index.hits import Hits
from crossbyte.index.index import BaseIndex
from crossbyte.service.body_budget import BodyBudget
from crossbyte.service.idempotency import RememberedWrites
from crossbyte.service.metrics import Metrics
from crossbyte.service.settings import Settings
from crossbyte.service.thread_pools import ThreadPools

T = TypeVar("T")
_TRIES = 5  # compactions that may outdate a reader within one answer


class IndexFollower:
    """Follow an index that others may be writing to, and read from its newest generation.

    Parameters
    ----------
    gallery : Gallery
    every : float or None
        Seconds between two refreshes of the file, or of all shards; None for a file's writer.
    """

    def __init__(self, gallery: Gallery, every: float | None) -> None:
        self._gallery, self._every = gallery, every
        self._refreshing, self._due = threading.Lock(), time.monotonic()

    def read(self, function: Callable[[BaseIndex], T]) -> T:
        """Call a function with a view of one generation; again, where a compaction has replaced that one."""
        self._refresh_if_due()
        for _ in range(_TRIES):
            try:
                return function(self._gallery.index.pinned())
            except StaleReader:
                self._gallery.refresh()
        return function(self._gallery.index.pinned())

    def _refresh_if_due(self) -> None:
        """Refresh the index, if it is time; a request that comes meanwhile does not wait for it."""
        if (
            self._every is None
            or time.monotonic() < self._due
            or not self._refreshing.acquire(blocking=False)
        ):
            return
        try:
            with suppress(IndexBusy):  # the generation that is open is still an answer
                self._gallery.refresh()
            self._due = time.monotonic() + self._every
        finally:
            self._refreshing.release()


_log = logging.getLogger("crossbyte.service")


class Service:
    """An open gallery and the machinery around it.

    Attributes
    ----------
    gallery : Gallery
    settings : Settings
    thread_pools : ThreadPools
    body_budget : BodyBudget
    written : RememberedWrites
    metrics : Metrics
    closing : bool
        Whether the server is stopping.
    """

    def __init__(self, gallery: Gallery, settings: Settings) -> None:
        self.gallery, self.settings, self.closing = gallery, settings, False
        self.written = RememberedWrites()
        self.body_budget = BodyBudget(settings.body_budget_bytes)
        self.thread_pools, self.metrics = ThreadPools(settings.concurrency), Metrics()
        self._file = _file_identities(gallery.index.path)
        # BLAS has one thread as long as the server runs; each search would hold it to that, and let go again.
        self._held = ExitStack()
        self._held.enter_context(Workers(1))
        # The writer of one file knows every change; that of shards does not know which are lost, or back.
        needs_no_refresh = settings.writes and gallery.index.n_shards is None
        self._follower = IndexFollower(gallery, None if needs_no_refresh else settings.follow_seconds)

    @classmethod
    def open(cls, path: str | os.PathLike[str], settings: Settings) -> Service:
        """Open an index: as its writer with a token, otherwise as a reader who follows the writer."""
        gallery = Gallery.open(
            path,
            "rw" if settings.writes else "r",
            image_encoder=settings.image_encoder,
            text_encoder=settings.text_encoder,
            cluster=settings.cluster,
        )
        service = cls(gallery, settings)
        service._warm_up()
        return service

    def _warm_up(self) -> None:
        """Load the text encoder, so that no query waits for it; or warn the operator that it cannot."""
        if "text" in self.gallery.encoders:
            try:
                self.gallery.encode_texts(["warm up"])
            except CrossbyteError as error:
                _log.warning("queries in words will be refused: %s", error)

    def read(self, function: Callable[[BaseIndex], T]) -> T:
        """Read from one generation; nothing is called unknown while a lost shard may have it.

        Raises
        ------
        ClusterError
            What is asked for is not in the shards that answer.
        """

        def read_whole(view: BaseIndex) -> T:
            try:
                return function(view)
            except (UnknownId, UnknownField) as error:
                if view.lost:
                    raise ClusterError("expected every shard to answer, but some are lost") from error
                raise

        return self._follower.read(read_whole)

    def is_partial(self, view: BaseIndex, hits: Hits | None = None) -> bool:
        """Tell whether a shard is missing from what a view has just answered, and count such answers."""
        found = bool(view.lost) or (hits is not None and hits.partial)
        if found:
            self.metrics.count_partial()
        return found

    def find_lost_shards(self) -> list[str]:
        """Read from the index, and name the shards that are lost.

        Raises
        ------
        ClusterError
            All shards are lost.
        """
        self.read(len)
        index = self.gallery.index
        lost = list(index.lost)
        if len(lost) == index.n_shards:
            raise ClusterError("expected at least one shard to answer, but all are lost")
        return lost

    def is_replaced(self) -> bool:
        """Tell whether another file, or none, has a name of the index now; the open one is still served."""
        return _file_identities(self.gallery.index.path) != self._file

    def stop(self) -> None:
        """Finish what is running, and accept nothing new; may be called again."""
        self.closing = True
        self.thread_pools.close()

    def close(self) -> None:
        """Stop, then close the files; may be called again."""
        self.stop()
        self._held.close()
        self.gallery.close()


def _file_identities(path: str) -> list[tuple[int, int] | None]:
    """Identify the file of an index, or all of its shards, whatever their names are."""
    shards = sorted(Path(path).glob("*.cb")) if is_sharded(path) else []
    return [_file_identity(each) for each in (Path(path), *shards)]


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def get_service(request: Request) -> Service:
    """Return the service that a request was sent to."""
    service: Service = request.app.state.service
    return service
