"""Add to every answer an id and security headers, count it, and answer where all else failed."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbyte.service.error_codes import ERROR_CODES, Problem, error_response
from crossbyte.service.metrics import Metrics
from crossbyte.service.permissions import match_route

_log = logging.getLogger("crossbyte.service")

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class HeadersMiddleware:
    """Outermost layer: request id, security headers, metrics, and an answer to any fault."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; whatever happens, one whole answer leaves."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # what GET would answer; the server leaves the body out
            scope = {**scope, "method": "GET"}
        start, request_id = time.perf_counter(), uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status: list[int] = []

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])
                _add_headers(message, request_id)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            _log.error("request %s failed", request_id, exc_info=error)
            if status:  # half an answer is out already: cut it off, so that nobody takes it for a whole one
                raise
            response = error_response(Problem("internal", ERROR_CODES["internal"].meaning), request_id)
            await response(scope, receive, send_with_headers)
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: list[int], seconds: float) -> None:
        # Whatever a caller may invent counts as "other": no label of a metric grows without bound.
        method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
        self._metrics.count_request(
            method, match_route(scope["path"]) or "other", status[0] if status else 0, seconds
        )


_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_NAMES = frozenset({name for name, _ in _RAW_HEADERS} | {b"x-request-id"})


def _add_headers(message: dict[str, Any] | Message, request_id: str) -> None:
    own = [header for header in message["headers"] if header[0].lower() not in _NAMES]
    message["headers"] = [*own, (b"x-request-id", request_id.encode()), *_RAW_HEADERS]
