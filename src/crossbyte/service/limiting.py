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
        work = _Work(self, send)
        try:
            await self._timed(scope, receive, work)
        finally:
            work.end()

    def leave(self) -> None:
        """Give a place back."""
        self._count -= 1

    async def _timed(self, scope: Scope, receive: Receive, work: _Work) -> None:
        seconds = self._settings.request_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._app(scope, receive, work.send)
        except TimeoutError:
            if work.has_answered:
                raise
            error = Refused("timed_out", f"no answer within {seconds:g} seconds", "ask for less at once")
            await response_of(error.problem, request_id_of(scope))(scope, receive, work.send)


class _Work:
    """One request that is worked on: until the last of its answer is made, not until it is taken."""

    def __init__(self, limiter: Limiter, send: Send) -> None:
        self._limiter, self._send, self._has_ended = limiter, send, False
        self.has_answered = False

    async def send(self, message: Message) -> None:
        self.has_answered = True
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.end()
        await self._send(message)

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._limiter.leave()
