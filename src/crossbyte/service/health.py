"""Routes for those who watch the server."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from crossbyte.gallery.searchable import View
from crossbyte.service.answers import json_answer
from crossbyte.service.documenting import documented
from crossbyte.service.errors import Refused
from crossbyte.service.responses import HealthAnswer
from crossbyte.service.state import service_of

__all__ = ["health_router"]

health_router = APIRouter(tags=["health"])


@health_router.get("/healthz", summary="Whether the server runs", **documented(HealthAnswer))
async def healthz() -> Response:
    return json_answer({"status": "ok"})


@health_router.get("/readyz", summary="Whether it answers", **documented(HealthAnswer))
async def readyz(request: Request) -> Response:
    service = service_of(request)
    if service.closing:
        raise Refused("shutting_down")
    lost = await service.lanes.reading.run(service.look_for_shards)
    if await service.lanes.reading.run(service.is_replaced):
        raise Refused("index_replaced", None, "restart the server to serve the new file")
    return json_answer({"status": "degraded" if lost else "ready"})


@health_router.get(
    "/metrics", summary="For Prometheus", **documented("Prometheus' text format.", media="text/plain")
)
async def metrics(request: Request) -> Response:
    service = service_of(request)

    def text(view: View) -> bytes:
        return service.metrics.to_text(len(view), view.generation, len(view.lost))

    data = await service.lanes.reading.run(service.read, text)
    return Response(data, headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"})
