"""List the permission that each route needs, in one table; what is not in it is never open."""

from __future__ import annotations

from enum import Enum


class Permission(Enum):
    """Permission that a route needs."""

    OPEN = "open"
    """Anybody."""
    READ = "read"
    """Callers on this machine; from elsewhere, with the token."""
    WRITE = "write"
    """With the token, always."""


STATIC_ROUTE = "/static/{name}"

PERMISSIONS: dict[tuple[str, str], Permission] = {
    ("GET", "/"): Permission.OPEN,
    ("GET", STATIC_ROUTE): Permission.OPEN,
    ("GET", "/healthz"): Permission.OPEN,
    ("GET", "/readyz"): Permission.OPEN,
    ("GET", "/metrics"): Permission.READ,
    ("GET", "/openapi.json"): Permission.READ,
    ("GET", "/v1/info"): Permission.READ,
    ("GET", "/v1/search"): Permission.READ,
    ("POST", "/v1/search"): Permission.READ,
    ("POST", "/v1/search/image"): Permission.READ,
    ("POST", "/v1/search/batch"): Permission.READ,
    ("POST", "/v1/explain"): Permission.READ,
    ("POST", "/v1/explain/image"): Permission.READ,
    ("GET", "/v1/document"): Permission.READ,
    ("GET", "/v1/documents"): Permission.READ,
    ("POST", "/v1/documents"): Permission.WRITE,
    ("POST", "/v1/documents/image"): Permission.WRITE,
    ("POST", "/v1/documents/delete"): Permission.WRITE,
    ("POST", "/v1/compact"): Permission.WRITE,
    ("GET", "/v1/thumbnail"): Permission.READ,
    ("GET", "/v1/facets"): Permission.READ,
    ("GET", "/v1/report"): Permission.READ,
    ("GET", "/v1/audit"): Permission.READ,
    ("GET", "/v1/stats"): Permission.READ,
}

_PATHS = frozenset(path for _, path in PERMISSIONS)


def match_route(path: str) -> str | None:
    """Find the route of a path, as the table has it; None if there is none."""
    if path.startswith("/static/") and "/" not in path.removeprefix("/static/"):
        return STATIC_ROUTE
    return path if path in _PATHS else None


def methods_of(path: str) -> list[str]:
    """List the methods of a path; HEAD is answered like GET."""
    route = match_route(path)
    known = {method for method, own in PERMISSIONS if own == route}
    return sorted(known | ({"HEAD"} if "GET" in known else set()))


def permission_for(method: str, path: str) -> Permission:
    """Find the permission that a call needs: READ or WRITE where the table does not have it."""
    unknown = (
        Permission.READ
        if method in ("GET", "HEAD", "OPTIONS") or match_route(path) is None
        else Permission.WRITE
    )
    return PERMISSIONS.get((method, match_route(path) or ""), unknown)
