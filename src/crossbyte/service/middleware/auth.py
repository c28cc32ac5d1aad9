"""Admit a request by the size of its head, its host, its origin and its token. Deny by default."""

from __future__ import annotations

import hmac
import ipaddress
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from crossbyte.service.error_codes import RequestRefused, error_response, get_request_id
from crossbyte.service.permissions import Permission, permission_for
from crossbyte.service.settings import LIMITS, Settings

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:@/?#\[\]\\]+))(?::[0-9]{0,5})?", re.IGNORECASE)


class AuthMiddleware:
    """Refuse a request before anything of its body is read."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] == "http":
            try:
                check_request(scope, self._settings)
            except RequestRefused as error:
                await error_response(error.problem, get_request_id(scope))(scope, receive, send)
                return
        elif scope["type"] != "lifespan":
            return
        await self._app(scope, receive, send)


def check_request(scope: Scope, settings: Settings) -> None:
    """Refuse a request by its head.

    Raises
    ------
    RequestRefused
    """
    headers = Headers(scope=scope)
    _check_size(scope)
    _check_framing(headers, scope["method"])
    _check_host(headers, settings)
    if scope["method"] not in ("GET", "HEAD"):
        _check_origin(headers)
    _check_token(headers, permission_for(scope["method"], scope["path"]), settings)


def _check_size(scope: Scope) -> None:
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LIMITS.url_bytes:
        raise RequestRefused(
            "url_too_long", f"expected a URL of at most {LIMITS.url_bytes} bytes", "use POST"
        )
    if sum(len(name) + len(value) for name, value in scope["headers"]) > LIMITS.header_bytes:
        raise RequestRefused("headers_too_large", f"expected headers of at most {LIMITS.header_bytes} bytes")


def _check_framing(headers: Headers, method: str) -> None:
    """Refuse a body where none belongs, and one with two lengths.

    A proxy before us may believe the other length (request smuggling). And a body that nobody reads costs as
    much as any other.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        raise RequestRefused("ambiguous_length", None, "send Content-Length or Transfer-Encoding")
    if method != "POST" and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
        raise RequestRefused("unexpected_body", f"expected no body with {method}, got one", "leave it out")


def _check_host(headers: Headers, settings: Settings) -> None:
    """Accept only our own names.

    A page of another site can make its own name point to this machine (DNS rebinding), and would then be
    let in by browsers; but it still calls us by that name. An address in numbers cannot be made to lie.
    """
    given = headers.getlist("host")
    name = _parse_hostname(given[0]) if len(given) == 1 else ""
    known = {"localhost", settings.host.lower(), *(host.lower() for host in settings.allowed_hosts)}
    if name not in known and not _is_address(name):
        raise RequestRefused("unknown_host", None, "start the server with this name among its allowed hosts")


def _parse_hostname(host: str) -> str:
    """Drop the port; empty where anything else is in it."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(headers: Headers) -> None:
    """Accept writing calls only from our own page, or from programs, which send no origin."""
    host = headers["host"].lower()
    if {origin.lower() for origin in headers.getlist("origin")} - {f"http://{host}", f"https://{host}"}:
        raise RequestRefused("foreign_origin", None, "call from the server's own page, or without a browser")


def _check_token(headers: Headers, level: Permission, settings: Settings) -> None:
    if level is Permission.WRITE and not settings.writes:
        raise RequestRefused("read_only")
    if level is Permission.OPEN or (level is Permission.READ and not settings.guards_reading):
        return
    given = headers.getlist("authorization")
    kind, _, token = (given[0] if len(given) == 1 else "").partition(" ")
    expected = settings.token or ""
    # In constant time, so that the time does not tell how much of the token is right.
    same = hmac.compare_digest(token.strip().encode(), expected.encode())
    if not (same and expected and kind.lower() == "bearer"):
        raise RequestRefused("unauthorized")
