"""Who may call which route: one table, and nothing that is not in it is open."""

from __future__ import annotations

from enum import Enum

__all__ = ["LEVELS", "Level", "level_of", "route_of"]


class Level(Enum):
    """Permission that a route needs."""

    OPEN = "open"
    """Anybody."""
    READ = "read"
    """Callers on this machine; from elsewhere, with the token."""
    WRITE = "write"
    """With the token, always."""


STATIC = "/static/{name}"

LEVELS: dict[tuple[str, str], Level] = {
    ("GET", "/"): Level.OPEN,
    ("GET", STATIC): Level.OPEN,
    ("GET", "/healthz"): Level.OPEN,
    ("GET", "/readyz"): Level.OPEN,
    ("GET", "/metrics"): Level.READ,
    ("GET", "/openapi.json"): Level.READ,
    ("GET", "/v1/info"): Level.READ,
    ("GET", "/v1/search"): Level.READ,
    ("POST", "/v1/search"): Level.READ,
    ("POST", "/v1/search/image"): Level.READ,
    ("POST", "/v1/search/batch"): Level.READ,
    ("POST", "/v1/explain"): Level.READ,
    ("POST", "/v1/explain/image"): Level.READ,
    ("GET", "/v1/document"): Level.READ,
    ("GET", "/v1/documents"): Level.READ,
    ("POST", "/v1/documents"): Level.WRITE,
    ("POST", "/v1/documents/image"): Level.WRITE,
    ("POST", "/v1/documents/delete"): Level.WRITE,
    ("GET", "/v1/thumbnail"): Level.READ,
    ("GET", "/v1/facets"): Level.READ,
    ("GET", "/v1/report"): Level.READ,
    ("GET", "/v1/audit"): Level.READ,
    ("GET", "/v1/stats"): Level.READ,
}

_PATHS = frozenset(path for _, path in LEVELS)


def route_of(path: str) -> str | None:
    """Name the route of a path as the table spells it; None if there is none."""
    if path.startswith("/static/") and "/" not in path.removeprefix("/static/"):
        return STATIC
    return path if path in _PATHS else None


def level_of(method: str, path: str) -> Level:
    """Give the permission that a call needs: READ or WRITE where the table does not have it."""
    unknown = Level.READ if method in ("GET", "HEAD", "OPTIONS") or route_of(path) is None else Level.WRITE
    return LEVELS.get((method, route_of(path) or ""), unknown)
