"""Keep what was read lately, within a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteCache(Generic[Key, Value]):
    """Values by their keys, up to so many bytes; what was asked longest ago goes first.

    Parameters
    ----------
    most_bytes : int
    count_bytes : callable
        Given a key and its value: the bytes that both take.

    Attributes
    ----------
    n_bytes : int
        Of all that is kept.
    """

    def __init__(self, most_bytes: int, count_bytes: Callable[[Key, Value], int]) -> None:
        self._most_bytes, self._count_bytes = most_bytes, count_bytes
        self._known: OrderedDict[Key, Value] = OrderedDict()
        self._guard = threading.Lock()
        self.n_bytes = 0

    def get(self, key: Key) -> Value | None:
        """Give a value; None if it was not kept."""
        with self._guard:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key]

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value."""
        with self._guard:
            if key not in self._known:
                self._known[key] = value
                self.n_bytes += self._count_bytes(key, value)
            while self.n_bytes > self._most_bytes:
                self.n_bytes -= self._count_bytes(*self._known.popitem(last=False))
