"""Close connections that send nothing, or read nothing: uvicorn itself would wait for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
TAKE_SECONDS = 30.0


class IdleTimeoutProtocol(H11Protocol):
    """HTTP/1.1 with two timeouts: for the head of a request, and for a client that reads no answer."""

    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once a head is complete; wait again for the next one."""
        super().data_received(data)
        if self._is_answering():
            self._cancel_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._cancel_head_timer()
        self._cancel_take_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the client to read what was sent."""
        super().pause_writing()
        self._start_take_timer()

    def resume_writing(self) -> None:
        """Stop waiting for the client."""
        super().resume_writing()
        self._cancel_take_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, and drop what the client never read."""
        super().timeout_keep_alive_handler()
        self.transport.abort()

    def _start_take_timer(self) -> None:
        self._cancel_take_timer()
        size = self.transport.get_write_buffer_size()
        self._take_timer = self.loop.call_later(TAKE_SECONDS, self._abort_if_stuck, size)

    def _abort_if_stuck(self, size: int) -> None:
        """Go on waiting for a client that has read something meanwhile, however slow it is."""
        if self.transport.get_write_buffer_size() < size:
            self._start_take_timer()
        else:
            self.transport.abort()

    def _cancel_take_timer(self) -> None:
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None

    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_if_idle(self) -> None:
        self._head_timer = None
        if not self._is_answering() and not self.transport.is_closing():
            self.transport.close()
