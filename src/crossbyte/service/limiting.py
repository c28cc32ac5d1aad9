"""How many requests are worked on at the same time, and for how long."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbyte.service.errors import Refused, request_id_of, response_of
from crossbyte.service.levels import route_of
from crossbyte.service.settings import Settings

__all__ = ["Limiter"]

# Whoever watches the server must be answered when it is busy: then above all.
_ALWAYS = ("/healthz", "/readyz", "/metrics")


class Limiter:
    """Tells one request too many to come back, and ends those that take too long."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings, self._count = app, settings, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http" or route_of(scope["path"]) in _ALWAYS:
            await self._app(scope, receive, send)
            return
        if self._count >= self._settings.concurrency:
            raise Refused("too_busy")
        self._count += 1
        try:
            await self._timed(scope, receive, send)
        finally:
            self._count -= 1

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        seconds = self._settings.request_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._app(scope, receive, watched)
        except TimeoutError:
            if started:
                raise
            error = Refused("timed_out", f"no answer within {seconds:g} seconds", "ask for less at once")
            await response_of(error.problem, request_id_of(scope))(scope, receive, send)
