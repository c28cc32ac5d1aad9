"""What all routes of one server share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from crossbyte.errors import CrossbyteError
from crossbyte.gallery.gallery import Gallery
from crossbyte.search.reader import Reader
from crossbyte.service.following import Follower
from crossbyte.service.lanes import Lanes
from crossbyte.service.metrics import Metrics
from crossbyte.service.settings import Settings

__all__ = ["Service", "service_of"]

T = TypeVar("T")
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
        self._follower = Follower(gallery, None if settings.writes else settings.follow_seconds)

    @classmethod
    def open(cls, path: str | os.PathLike[str], settings: Settings) -> Service:
        """Open an index: as its writer with a token, otherwise as a reader who follows the writer."""
        mode, (image, text) = (
            "rw" if settings.writes else "r",
            (settings.image_encoder, settings.text_encoder),
        )
        service = cls(Gallery.open(path, mode, image_encoder=image, text_encoder=text), settings)
        service._warm_up()
        return service

    def _warm_up(self) -> None:
        """Make the encoder of words ready, so that nobody waits for it; or tell the operator now."""
        if "text" in self.gallery.encoders:
            try:
                self.gallery.encode_texts(["warm up"])
            except CrossbyteError as error:
                _log.warning("queries in words will be refused: %s", error)

    def read(self, function: Callable[[Reader], T]) -> T:
        """Answer from one generation."""
        return self._follower.read(function)

    def is_replaced(self) -> bool:
        """Whether another file, or none, goes by the name of the index now; the open one is still served."""
        return _identity(self.gallery.index.path) != self._file

    def close(self) -> None:
        """Finish what is running, then close the files; may be called again."""
        self.closing = True
        self.lanes.close()
        self.gallery.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def service_of(request: Request) -> Service:
    """The service that a request has come to."""
    service: Service = request.app.state.service
    return service
