"""Receive the whole body of a request before anything starts, within limits of size and time.

So a slow or abandoned upload holds no thread and no place among the requests that are worked on.
"""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbyte.service.error_codes import RequestRefused, error_response, get_request_id
from crossbyte.service.settings import LIMITS, Settings

_SMALL_BYTES = 64 * 2**10  # bodies up to this size are not counted
_LARGE_AT_ONCE = 16  # larger ones at the same time: half a gigabyte at most


class BodyLimitMiddleware:
    """Receive whole bodies, within limits of size, number and time."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings, self._n_large = app, settings, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _IncomingBody(self)
        try:
            data = await body.read(scope, receive, self._settings.receive_seconds)
            await self._app(scope, _replay_body(data, receive), send)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except RequestRefused as error:
            await error_response(error.problem, get_request_id(scope))(scope, receive, send)
        finally:
            body.release()

    def enter(self) -> None:
        """Count one large body more, or refuse it."""
        if self._n_large >= _LARGE_AT_ONCE:
            raise RequestRefused("too_busy", "too many large uploads at the same time")
        self._n_large += 1

    def leave(self) -> None:
        """Count one large body less."""
        self._n_large -= 1


class _IncomingBody:
    """One body on its way in."""

    def __init__(self, middleware: BodyLimitMiddleware) -> None:
        self._middleware, self._is_large, self._size = middleware, False, 0

    async def read(self, scope: Scope, receive: Receive, seconds: float) -> bytes:
        self._check_size(_read_declared_length(scope))
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunks.append(message.get("body", b""))
                    self._size += len(chunks[-1])
                    self._check_size(self._size)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError as error:
            raise RequestRefused(
                "request_timeout", f"expected the body within {seconds:g} seconds"
            ) from error

    def _check_size(self, size: int) -> None:
        if size > LIMITS.body_bytes:
            raise RequestRefused("body_too_large", f"expected a body of at most {LIMITS.body_bytes} bytes")
        if size > _SMALL_BYTES and not self._is_large:
            self._middleware.enter()
            self._is_large = True

    def release(self) -> None:
        if self._is_large:
            self._middleware.leave()


def _read_declared_length(scope: Scope) -> int:
    """Read the declared length; what arrives is counted anyway."""
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(values[0]) if values and values[0].isdigit() and len(values[0]) < 20 else 0


def _replay_body(data: bytes, receive: Receive) -> Receive:
    """Deliver the body once, and then whatever the client sends."""
    delivered = False

    async def replay() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": data, "more_body": False}

    return replay
