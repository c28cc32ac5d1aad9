"""Make the application: routes inside, middleware around them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Route

from crossbyte.service.describing import router as info_router
from crossbyte.service.documenting import install
from crossbyte.service.documents import router as documents_router
from crossbyte.service.errors import add_handlers
from crossbyte.service.framing import Frame
from crossbyte.service.guarding import Guard
from crossbyte.service.health import health_router
from crossbyte.service.levels import LEVELS
from crossbyte.service.limiting import Limiter
from crossbyte.service.pages import router as pages_router
from crossbyte.service.receiving import Receiver
from crossbyte.service.searching import router as search_router
from crossbyte.service.settings import Settings
from crossbyte.service.state import Service
from crossbyte.service.writing import writing_router

__all__ = ["create_app", "include_routes"]

_ROUTERS = (search_router, documents_router, writing_router, info_router, health_router, pages_router)


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
    for router in _ROUTERS:
        app.include_router(router)
    _check_levels([*app.routes, *(route for router in _ROUTERS for route in router.routes)])


def _surround(app: FastAPI, service: Service) -> None:
    """Put the middleware around the routes, from the innermost to the outermost."""
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
