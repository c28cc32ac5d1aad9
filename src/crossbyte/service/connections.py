"""Bound what connections may cost: their number, silence, slow heads, tiny chunks, bodies that nobody reads.

uvicorn with h11 parses all that has arrived in one turn of the event loop, and goes on with a body whose
request was answered long ago. So one client with tiny chunks would stop the server for everybody.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossbyte.service.settings import LIMITS

log = logging.getLogger("crossbyte.service.connections")
HEAD_SECONDS = 10.0
TAKE_SECONDS = 30.0
REST_SECONDS = 2.0  # to read an answer that came before the end of the body
_SLICE_BYTES = 16 * 2**10  # parsed in one turn of the event loop
_CHUNK_BYTES = 2**10  # a body of chunks larger than this may have any number of them
_OTHER_DESCRIPTORS = 64  # files of an index, children that decode pictures, what is being accepted
_NEW_SECONDS = 1.0
_QUIET_SECONDS = 60.0  # between two messages about missing descriptors


def find_connection_limit(wanted: int) -> int:
    """Find how many connections there may be: as many as wanted, or as the limit of descriptors leaves."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHER_DESCRIPTORS))


class GuardedParser(h11.Connection):
    """An HTTP/1.1 parser that stops at heads of too many lines, and at bodies of too many tiny chunks.

    Attributes
    ----------
    is_chopped : bool
        Whether the body has too many chunks; the rest of it is not parsed.
    """

    is_chopped = False
    _n_chunks = 0
    _n_bytes = 0

    def next_event(self) -> Any:
        """Parse what comes next; nothing more of a body that was found to be too costly."""
        if self.is_chopped:
            return h11.NEED_DATA
        if self.their_state is h11.IDLE:
            self._check_n_lines()
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._n_chunks = self._n_bytes = 0
        elif isinstance(event, h11.Data):
            self._n_chunks += event.chunk_start
            self._n_bytes += len(event.data)
            if self._n_chunks > LIMITS.chunks + self._n_bytes // _CHUNK_BYTES:
                self.is_chopped = True
                return h11.NEED_DATA
        return event

    def _check_n_lines(self) -> None:
        """Refuse a head of too many lines before it is parsed, which takes far longer than counting them."""
        head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
        if head.count(b"\n") > LIMITS.head_lines:
            raise h11.RemoteProtocolError("too many lines in a head", 431)


class GuardedProtocol(H11Protocol, asyncio.BufferedProtocol):
    """HTTP/1.1 that gives nobody much of the event loop, and closes connections that send or read nothing.

    Bytes are read and parsed in slices, with a turn of the event loop between them. There is a time for the
    head of a request, and one for a client that reads no answer. A body that is not wanted (its request is
    answered already, or it has too many chunks) is dropped without being parsed, and its connection closed.

    Parameters
    ----------
    limit : int
        Connections at the same time. One more closes the one that has waited longest, of those that wait for
        a second at least: for a request; else for the rest of a body; else for a client that reads its
        answer; else the oldest of the newer ones. Requests that are worked on are let alone.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None
    _is_dropping = False

    def __init__(self, *args: Any, limit: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit, self._waiting_since = limit, 0.0
        self.logger = log
        self.conn: GuardedParser = GuardedParser(h11.SERVER, self.config.h11_max_incomplete_event_size or 0)
        self._slice = bytearray(_SLICE_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        if sum(not each.transport.is_closing() for each in self.connections) > self._limit:
            close_longest_waiting(self.connections - {self}, self)
        self._start_head_timer()

    @property
    def waits_for(self) -> tuple[int, float] | None:
        """What it waits for (0 is cheapest to lose), and since when; None while its request is worked on.

        Who has just come is dearest: a request takes a moment to arrive, and a crowd of bodies that never end
        would keep everybody out otherwise.
        """
        if not self._is_answering() or self._is_dropping:
            cost = 0
        elif self.conn.their_state is h11.SEND_BODY:
            cost = 1
        elif self.flow.write_paused:
            cost = 2
        else:
            return None
        is_new = self.loop.time() - self._waiting_since < _NEW_SECONDS
        return 3 if is_new else cost, self._waiting_since

    def get_buffer(self, sizehint: int) -> bytearray:
        """Give room for the next slice."""
        return self._slice

    def buffer_updated(self, nbytes: int) -> None:
        """Take one slice."""
        self.data_received(bytes(self._slice[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Stop waiting once a head is complete; wait again for the next one."""
        if self._is_dropping:
            return
        super().data_received(data)
        if self.conn.is_chopped:
            self._refuse_body("too_many_chunks")
        if self._is_answering():
            if self._head_timer is not None:
                self._waiting_since = self.loop.time()
            self._cancel_head_timer()
        elif self._head_timer is None and not self._is_dropping:
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

    def on_response_complete(self) -> None:
        """Wait for the next request; or drop the rest of this one, if it was answered before its end."""
        self._waiting_since = self.loop.time()
        if self.conn.their_state is not h11.SEND_BODY or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self._drop_rest()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP, where an answer can still be given; there is no other one then."""
        if self._is_answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _refuse_body(self, code: str) -> None:
        """Tell who waits for the body that it is refused, and parse no more of it."""
        self._is_dropping = True
        if self.cycle.response_complete:
            self._drop_rest()
        else:
            self.cycle.scope["state"]["body_refused"] = code
            self.cycle.message_event.set()

    def _drop_rest(self) -> None:
        """Let the client read its answer, then close; what it still sends is not looked at.

        Closing at once would reset the connection, and the client might never see why.
        """
        self._is_dropping = True
        self._cancel_head_timer()
        self.flow.resume_reading()
        with suppress(OSError):  # the client has gone
            self.transport.write_eof()
        self.loop.call_later(REST_SECONDS, self.transport.abort)

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


def close_longest_waiting(connections: Iterable[Any], newest: GuardedProtocol | None = None) -> None:
    """Close the connection that is cheapest to lose; the newest, where all others are worked on."""
    found = [
        (waits, number, each)
        for number, each in enumerate(connections)
        if (waits := each.waits_for) is not None and not each.transport.is_closing()
    ]
    victim = min(found)[2] if found else newest
    if victim is not None:
        victim.transport.abort()


class LoopFaults:
    """Handle what goes wrong in the event loop itself; asyncio would write kilobytes for each refused socket.

    Parameters
    ----------
    connections : set
        Those of the server; one is closed for each that could not be accepted.
    """

    def __init__(self, connections: set[Any]) -> None:
        self._connections, self._quiet_until = connections, 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say once a minute that descriptors ran out, and hand everything else to asyncio."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)):
            loop.default_exception_handler(context)
            return
        close_longest_waiting(self._connections)
        if loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + _QUIET_SECONDS
            log.error(
                "expected a free descriptor for one more connection, got none with %d connections; "
                "raise the limit (ulimit -n) or lower Settings.connections",
                len(self._connections),
            )
