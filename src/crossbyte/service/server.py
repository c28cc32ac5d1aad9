"""Serve an index until somebody stops it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn

from crossbyte.errors import InvalidInput
from crossbyte.service import connections
from crossbyte.service.app import create_app
from crossbyte.service.settings import LIMITS, Settings

_GRACE_SECONDS = 30  # for answers that are under way when the server is stopped
_BACKLOG = 1024
_SWITCH_SECONDS = 0.0005  # the event loop waits that long for the interpreter, after each read and write
_ACCEPTED_AT_ONCE = 16  # in one turn of the event loop, before any is counted


class Server(uvicorn.Server):
    """A uvicorn server with a socket that listens already, and a callback for when it answers."""

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, ready: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self._listening, self._ready = listening, ready

    @property
    def url(self) -> str:
        """URL at which the server answers."""
        host, port = self._listening.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped; answers under way are finished."""
        super().run(sockets or [self._listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call ``ready`` with the URL."""
        url = self.url
        if connections.log.level == logging.NOTSET:  # a line for each client that speaks no HTTP fills disks
            connections.log.setLevel(logging.ERROR)
        asyncio.get_running_loop().set_exception_handler(
            connections.LoopFaults(self.server_state.connections)
        )
        await super().startup(sockets)
        self._listening.listen(_BACKLOG)  # asyncio has listened with as few as it accepts in one turn
        if self.started:
            self._ready(url)


def make_server(
    path: str | os.PathLike[str], settings: Settings, ready: Callable[[str], None] = lambda url: None
) -> Server:
    """Bind the port and open the index; ``run()`` then serves, in any thread."""
    listening = _listen(settings)
    try:
        app = create_app(path, settings)
    except BaseException:
        listening.close()
        raise
    return Server(_make_config(app, settings), listening, ready)


def serve(
    path: str | os.PathLike[str], settings: Settings, ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve an index until SIGINT or SIGTERM; Ctrl-C is the usual way to end it, and no error.

    Parameters
    ----------
    path : path-like
        The path of an index.
    settings : Settings
    ready : callable
        Called with the URL once the server answers.

    Raises
    ------
    InvalidInput
        The port is taken, or the address is not of this machine.
    The errors of :meth:`crossbyte.Index.open`.
    """
    server = make_server(path, settings, ready)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with suppress(KeyboardInterrupt):  # raised once more by uvicorn, after it has ended in good order
        server.run()


def _make_config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=partial(  # type: ignore[arg-type]
            connections.GuardedProtocol, limit=connections.find_connection_limit(settings.connections)
        ),
        backlog=_ACCEPTED_AT_ONCE,
        loop="asyncio",  # what is tested is what runs, whatever else is installed
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=2 * (LIMITS.url_bytes + LIMITS.header_bytes),
    )


def _listen(settings: Settings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"host: expected an address of this machine, got {settings.host!r}") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _describe_bind_failure(settings, error) from error
    return listening


def _describe_bind_failure(settings: Settings, error: OSError) -> InvalidInput:
    if error.errno == errno.EADDRINUSE:
        return InvalidInput(
            f"port: {settings.port} is taken by another program; choose another, or 0 for any"
        )
    reason = os.strerror(error.errno or 0)
    return InvalidInput(f"host: cannot listen on {settings.host!r} port {settings.port}: {reason}")
