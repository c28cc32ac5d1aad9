"""One generation per answer, and the newest one: how a server keeps up with those who write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from crossbyte.errors import IndexBusy, StaleReader
from crossbyte.gallery.searchable import View

if TYPE_CHECKING:
    from crossbyte.gallery.gallery import Gallery

__all__ = ["Follower"]

T = TypeVar("T")
_TRIES = 5  # compactions that may pass a reader within one answer


class Follower:
    """Gives views of an index that others may be writing to.

    Parameters
    ----------
    gallery : Gallery
    every : float or None
        Seconds between two looks at the file, or at all shards; None for the writer of a file, who knows it.
    """

    def __init__(self, gallery: Gallery, every: float | None) -> None:
        self._gallery, self._every = gallery, every
        self._looking, self._due = threading.Lock(), time.monotonic()

    def read(self, function: Callable[[View], T]) -> T:
        """Call a function with a view that stays at one generation; again, where a compaction passed it."""
        self._look()
        for _ in range(_TRIES):
            try:
                return function(self._gallery.index.pinned())
            except StaleReader:
                self._gallery.refresh()
        return function(self._gallery.index.pinned())

    def _look(self) -> None:
        """See what is new, if it is time; who comes meanwhile takes what is there and does not wait."""
        if self._every is None or time.monotonic() < self._due or not self._looking.acquire(blocking=False):
            return
        try:
            with suppress(IndexBusy):  # what is known already is still an answer
                self._gallery.refresh()
            self._due = time.monotonic() + self._every
        finally:
            self._looking.release()
