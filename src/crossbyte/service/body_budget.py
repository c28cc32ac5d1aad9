"""Count the bytes that bodies take, all together, from their first byte to their answer."""

from __future__ import annotations

import threading

from crossbyte.service.error_codes import RequestRefused

FREE_BYTES = 64 * 2**10  # of each body; so a query is answered while large uploads fill the budget


class BodyBudget:
    """A bound on the bytes of all bodies in flight, with what is made of them.

    Parameters
    ----------
    limit : int
        Bytes for all together.

    Attributes
    ----------
    used : int
        Bytes that are taken.
    """

    def __init__(self, limit: int) -> None:
        self.used, self._limit, self._lock = 0, limit, threading.Lock()

    def add(self, n_bytes: int) -> None:
        """Take bytes, or give some back.

        Raises
        ------
        RequestRefused
            There are not as many.
        """
        with self._lock:
            if n_bytes > 0 and self.used + n_bytes > self._limit:
                raise RequestRefused("too_busy", "too many bytes of requests at the same time")
            self.used += n_bytes

    def check_room(self, n_bytes: int) -> None:
        """Refuse what there is no room for now, and take nothing yet.

        Raises
        ------
        RequestRefused
        """
        self.add(n_bytes)
        self.add(-n_bytes)


class Reservation:
    """What one request has taken of a budget; its first bytes are free."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self._free, self._taken = budget, FREE_BYTES, 0
        self._lock, self._is_released = threading.Lock(), False

    def check_room(self, n_bytes: int) -> None:
        """Refuse a body of a declared length that there is no room for.

        Raises
        ------
        RequestRefused
        """
        self._budget.check_room(max(0, n_bytes - self._free))

    def grow(self, n_bytes: int) -> None:
        """Take more.

        Raises
        ------
        RequestRefused
            The budget is used up; or the request was given up, and its thread need not go on.
        """
        with self._lock:
            if self._is_released:
                raise RequestRefused("timed_out")
            free = min(self._free, n_bytes)
            self._budget.add(n_bytes - free)
            self._free -= free
            self._taken += n_bytes - free

    def release(self) -> None:
        """Give everything back, for good."""
        with self._lock:
            self._is_released = True
            self._budget.add(-self._taken)
            self._taken = 0
