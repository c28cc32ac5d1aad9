"""Serve an index over HTTP, with a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte.service.app import create_app
    from crossbyte.service.server import make_server, serve
    from crossbyte.service.settings import Settings

__all__ = [
    "Settings",
    "create_app",
    "make_server",
    "serve",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Settings": "crossbyte.service.settings",
        "create_app": "crossbyte.service.app",
        "make_server": "crossbyte.service.server",
        "serve": "crossbyte.service.server",
    },
)
