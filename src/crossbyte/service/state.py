"""What all routes of one server share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request

from crossbyte.errors import ClusterError, CrossbyteError, UnknownField, UnknownId
from crossbyte.gallery.gallery import Gallery
from crossbyte.gallery.opening import is_sharded
from crossbyte.gallery.searchable import View
from crossbyte.search.hits import Hits
from crossbyte.service.following import Follower, T
from crossbyte.service.lanes import Lanes
from crossbyte.service.metrics import Metrics
from crossbyte.service.settings import Settings

__all__ = ["Service", "service_of"]

_log = logging.getLogger("crossbyte.service")


class Service:
    """An open gallery and the machinery around it.

    Attributes
    ----------
    gallery : Gallery
    settings : Settings
    lanes : Lanes
    metrics : Metrics
    closing : bool
        Whether the server is stopping.
    """

    def __init__(self, gallery: Gallery, settings: Settings) -> None:
        self.gallery, self.settings, self.closing = gallery, settings, False
        self.lanes, self.metrics = Lanes(settings.concurrency), Metrics()
        self._file = _identity(gallery.index.path)
        # The writer of one file knows every change; that of shards does not know which are lost, or back.
        knows = settings.writes and gallery.index.n_shards is None
        self._follower = Follower(gallery, None if knows else settings.follow_seconds)

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
        """Make the encoder of words ready, so that nobody waits for it; or tell the operator now."""
        if "text" in self.gallery.encoders:
            try:
                self.gallery.encode_texts(["warm up"])
            except CrossbyteError as error:
                _log.warning("queries in words will be refused: %s", error)

    def read(self, function: Callable[[View], T]) -> T:
        """Answer from one generation; nobody is told that a thing is unknown while a lost shard may have it.

        Raises
        ------
        ClusterError
            What was asked for is not in the shards that answer.
        """

        def whole(view: View) -> T:
            try:
                return function(view)
            except (UnknownId, UnknownField) as error:
                if view.lost:
                    raise ClusterError("expected every shard to answer, but some are lost") from error
                raise

        return self._follower.read(whole)

    def is_partial(self, view: View, hits: Hits | None = None) -> bool:
        """Whether a shard is missing from what a view has just answered; that is counted."""
        found = bool(view.lost) or (hits is not None and hits.partial)
        if found:
            self.metrics.partial()
        return found

    def look_for_shards(self) -> list[str]:
        """Answer something, and name the shards that are lost.

        Raises
        ------
        ClusterError
            None is left.
        """
        self.read(len)
        index = self.gallery.index
        lost = list(index.lost)
        if len(lost) == index.n_shards:
            raise ClusterError("expected at least one shard to answer, but all are lost")
        return lost

    def is_replaced(self) -> bool:
        """Whether another file, or none, goes by a name of the index now; the open one is still served."""
        return _identity(self.gallery.index.path) != self._file

    def stop(self) -> None:
        """Finish what is running, and take nothing new; may be called again."""
        self.closing = True
        self.lanes.close()

    def close(self) -> None:
        """Stop, then close the files; may be called again."""
        self.stop()
        self.gallery.close()


def _identity(path: str) -> list[tuple[int, int] | None]:
    """Tell files apart that go by the same names: of an index, or of all its shards."""
    shards = sorted(Path(path).glob("*.cb")) if is_sharded(path) else []
    return [_file_identity(each) for each in (Path(path), *shards)]


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def service_of(request: Request) -> Service:
    """Return the service that a request was sent to."""
    service: Service = request.app.state.service
    return service
