"""Receive the whole body of a request before anything starts, within limits of size and time.

So a slow or abandoned upload holds no thread and no place among the requests that are worked on. What has
arrived counts in one budget of bytes with all other bodies, until its request is answered.
"""

from __future__ import annotations

import asyncio
import io

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from crossbyte.service.body_budget import BodyBudget, Reservation
from crossbyte.service.error_codes import RequestRefused, error_response, get_request_id
from crossbyte.service.permissions import PERMISSIONS, match_route
from crossbyte.service.settings import LIMITS, Settings


class BodyLimitMiddleware:
    """Receive whole bodies, within limits of size and time, and of all their bytes together."""

    def __init__(self, app: ASGIApp, settings: Settings, budget: BodyBudget) -> None:
        self._app, self._settings, self._budget = app, settings, budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body; where none is taken, none is waited for."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reservation = Reservation(self._budget)
        try:
            if takes_body(scope):
                body = await _read_body(scope, receive, reservation, self._settings.receive_seconds)
                scope["state"] |= {"body": body, "reservation": reservation}
                del body  # the route takes the only reference
            await self._app(scope, receive, send)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except RequestRefused as error:
            await error_response(error.problem, get_request_id(scope))(scope, receive, send)
        finally:
            reservation.release()


def takes_body(scope: Scope) -> bool:
    """Tell whether the route of a request takes a body."""
    method = scope["method"]
    return method == "POST" and (method, match_route(scope["path"])) in PERMISSIONS


async def _read_body(scope: Scope, receive: Receive, reservation: Reservation, seconds: float) -> bytes:
    """Read a body; refuse one that is too large by its declared length, or as soon as it is too large."""
    declared = _read_declared_length(scope)
    _check_size(declared)
    reservation.check_room(declared)
    body = io.BytesIO()  # which gives all of it without another copy
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                if refused := scope["state"].get("body_refused"):  # by the connection
                    raise RequestRefused(refused, None, "send larger chunks, or Content-Length")
                chunk = message.get("body", b"")
                _check_size(body.tell() + len(chunk))
                reservation.grow(len(chunk))
                body.write(chunk)
                if not message.get("more_body", False):
                    return body.getvalue()
    except TimeoutError as error:
        raise RequestRefused("request_timeout", f"expected the body within {seconds:g} seconds") from error


def _check_size(size: int) -> None:
    if size > LIMITS.body_bytes:
        raise RequestRefused("body_too_large", f"expected a body of at most {LIMITS.body_bytes} bytes")


def _read_declared_length(scope: Scope) -> int:
    """Read the declared length; what arrives is counted anyway."""
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(values[0]) if values and values[0].isdigit() and len(values[0]) < 20 else 0
