"""The application: routes inside, guards around them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Route

from crossbyte.service import describing, documents, health, pages, searching, writing
from crossbyte.service.documenting import install
from crossbyte.service.errors import add_handlers
from crossbyte.service.framing import Frame
from crossbyte.service.guarding import Guard
from crossbyte.service.levels import LEVELS
from crossbyte.service.limiting import Limiter
from crossbyte.service.receiving import Receiver
from crossbyte.service.settings import Settings
from crossbyte.service.state import Service

__all__ = ["create_app", "include_routes"]

_ROUTERS = (searching, documents, writing, describing, health, pages)


def create_app(gallery_path: str | os.PathLike[str], settings: Settings | None = None) -> FastAPI:
    """Open an index and make the application that serves it.

    Parameters
    ----------
    gallery_path : path-like
        Of an index.
    settings : Settings, optional

    Returns
    -------
    FastAPI
        Its ``state.service`` has the open gallery; shutting the application down closes it.

    Raises
    ------
    The errors of :meth:`crossbyte.Index.open`.
    """
    service = Service.open(gallery_path, settings or Settings())
    app = FastAPI(docs_url=None, redoc_url=None, lifespan=_lifespan, redirect_slashes=False)
    app.state.service = service
    include_routes(app)
    install(app)
    add_handlers(app)
    _surround(app, service)
    return app


def include_routes(app: FastAPI) -> None:
    """Give an application all routes; each must have its level."""
    for module in _ROUTERS:
        app.include_router(module.router)
    _check_levels([*app.routes, *(route for module in _ROUTERS for route in module.router.routes)])


def _surround(app: FastAPI, service: Service) -> None:
    """Put the guards around the routes, from the innermost to the outermost."""
    app.add_middleware(Limiter, settings=service.settings)
    app.add_middleware(Receiver, settings=service.settings)
    app.add_middleware(Guard, settings=service.settings)
    app.add_middleware(Frame, metrics=service.metrics)


def _check_levels(routes: list[BaseRoute]) -> None:
    """Refuse to start with a route that the table of levels does not know."""
    known = {
        (method, route.path)
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert known == set(LEVELS), f"routes and levels differ: {sorted(known ^ set(LEVELS))}"


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await run_in_threadpool(app.state.service.stop)
    app.state.service.close()  # in the thread of the loop: what a cluster took there, it gives back there
