"""Answer queries in words, which come with every letter that is typed, without the framework in between.

FastAPI takes a third of a millisecond to find the route of a request and to fill in its arguments. What comes
out is the same: the route's own function is called, and errors get the same answer.
"""

from __future__ import annotations

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from crossbyte.service import schemas
from crossbyte.service.error_codes import HANDLED, answer_error
from crossbyte.service.routes.search import search_by_text

_PATH = "/v1/search"


class DirectMiddleware:
    """Call the function of ``GET /v1/search`` directly; pass everything else on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass a request on."""
        if scope["type"] != "http" or scope["path"] != _PATH or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            given = dict(QueryParams(scope["query_string"]))  # of a name that is there twice, the last value
            response = await search_by_text(request, schemas.TextSearch.model_validate(given))
        except HANDLED as error:
            response = answer_error(request, error)
        await response(scope, receive, send)
