"""Make the application: routes inside, middleware around them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Route

from crossbyte.service.error_codes import add_handlers
from crossbyte.service.middleware.auth import AuthMiddleware
from crossbyte.service.middleware.body_limit import BodyLimitMiddleware
from crossbyte.service.middleware.concurrency import ConcurrencyMiddleware
from crossbyte.service.middleware.direct import DirectMiddleware
from crossbyte.service.middleware.headers import HeadersMiddleware
from crossbyte.service.openapi import install_openapi
from crossbyte.service.permissions import PERMISSIONS
from crossbyte.service.routes.documents import router as documents_router
from crossbyte.service.routes.documents import writing_router
from crossbyte.service.routes.info import health_router, pages_router
from crossbyte.service.routes.info import router as info_router
from crossbyte.service.routes.search import router as search_router
from crossbyte.service.settings import Settings
from crossbyte.service.state import Service

_ROUTERS = (search_router, documents_router, writing_router, info_router, health_router, pages_router)


def create_app(gallery_path: str | os.PathLike[str], settings: Settings | None = None) -> FastAPI:
    """Open an index and make the application that serves it.

    Parameters
    ----------
    gallery_path : path-like
        The path of an index.
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
    install_openapi(app)
    add_handlers(app)
    _add_middleware(app, service)
    return app


def include_routes(app: FastAPI) -> None:
    """Add all routes to an application; each must have its permission."""
    for router in _ROUTERS:
        app.include_router(router)
    _check_permissions([*app.routes, *(route for router in _ROUTERS for route in router.routes)])


def _add_middleware(app: FastAPI, service: Service) -> None:
    """Put the middleware around the routes, from the innermost to the outermost."""
    app.add_middleware(DirectMiddleware)
    app.add_middleware(ConcurrencyMiddleware, settings=service.settings)
    app.add_middleware(BodyLimitMiddleware, settings=service.settings, budget=service.body_budget)
    app.add_middleware(AuthMiddleware, settings=service.settings)
    app.add_middleware(HeadersMiddleware, metrics=service.metrics)


def _check_permissions(routes: list[BaseRoute]) -> None:
    """Refuse to start with a route that the table of permissions does not have."""
    known = {
        (method, route.path)
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert known == set(PERMISSIONS), f"routes and permissions differ: {sorted(known ^ set(PERMISSIONS))}"


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await run_in_threadpool(app.state.service.stop)
    app.state.service.close()  # in the loop's thread: a cluster releases there what it acquired there
