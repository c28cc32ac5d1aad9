"""Connections that say nothing, or very slowly, are closed: uvicorn waits for a request's head for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEAD_SECONDS", "PatientProtocol"]

HEAD_SECONDS = 10.0


class PatientProtocol(H11Protocol):
    """HTTP/1.1 whose patience for the head of a request ends."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once a head is complete; wait again for the next one."""
        super().data_received(data)
        if self._is_at_work():
            self._stop_waiting()
        elif self._head_timer is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_at_work(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._is_at_work() and not self.transport.is_closing():
            self.transport.close()
