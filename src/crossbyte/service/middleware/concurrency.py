"""Limit how many requests are worked on at the same time, and for how long."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbyte.service.error_codes import RequestRefused, error_response, get_request_id
from crossbyte.service.permissions import match_route
from crossbyte.service.settings import Settings

# Monitoring must be answered above all when the server is busy.
_UNLIMITED = ("/healthz", "/readyz", "/metrics")


class ConcurrencyMiddleware:
    """Refuse one request too many, and end those that take too long."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings, self._count = app, settings, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http" or match_route(scope["path"]) in _UNLIMITED:
            await self._app(scope, receive, send)
            return
        if self._count >= self._settings.concurrency:
            raise RequestRefused("too_busy")
        self._count += 1
        running = _RunningRequest(self, send)
        try:
            await self._run_with_timeout(scope, receive, running)
        finally:
            running.end()

    def leave(self) -> None:
        """Count one running request less."""
        self._count -= 1

    async def _run_with_timeout(self, scope: Scope, receive: Receive, running: _RunningRequest) -> None:
        seconds = self._settings.request_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._app(scope, receive, running.send)
        except TimeoutError:
            if running.has_answered:
                raise
            error = RequestRefused(
                "timed_out", f"no answer within {seconds:g} seconds", "ask for less at once"
            )
            await error_response(error.problem, get_request_id(scope))(scope, receive, running.send)


class _RunningRequest:
    """One request that is worked on: until its answer is complete, not until the client has read it."""

    def __init__(self, middleware: ConcurrencyMiddleware, send: Send) -> None:
        self._middleware, self._send, self._has_ended = middleware, send, False
        self.has_answered = False

    async def send(self, message: Message) -> None:
        self.has_answered = True
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.end()
        await self._send(message)

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._middleware.leave()
