"""Close connections that send nothing, or take nothing: uvicorn itself would wait for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
TAKE_SECONDS = 30.0


class IdleTimeoutProtocol(H11Protocol):
    """HTTP/1.1 whose patience ends: for the head of a request, and for a client that takes no answer."""

    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None

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
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what was sent."""
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        """Stop waiting for the client."""
        super().resume_writing()
        self._taken()

    def timeout_keep_alive_handler(self) -> None:
        """Let an idle connection go, and what it never took with it."""
        super().timeout_keep_alive_handler()
        self.transport.abort()

    def _await_taking(self) -> None:
        self._taken()
        size = self.transport.get_write_buffer_size()
        self._take_timer = self.loop.call_later(TAKE_SECONDS, self._check_taking, size)

    def _check_taking(self, size: int) -> None:
        """Go on waiting for a client that has taken something meanwhile, however slow it is."""
        if self.transport.get_write_buffer_size() < size:
            self._await_taking()
        else:
            self.transport.abort()

    def _taken(self) -> None:
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None

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
