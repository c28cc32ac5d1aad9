"""Answer the routes of the page, of the index (info, report, audit, stats), and of health and metrics."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from crossbyte import __version__
from crossbyte.errors import NotCalibrated
from crossbyte.index.index import BaseIndex
from crossbyte.report.model_report import words_section
from crossbyte.report.text import render_text
from crossbyte.service import schemas
from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.openapi import describe_route
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service, get_service

pages_router = APIRouter(tags=["page"])
_FOLDER = Path(str(files("crossbyte.service"))) / "page"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


@pages_router.get("/", summary="The page", **describe_route("HTML.", media="text/html"))
async def page(request: Request) -> Response:
    return await _send_file(request, "index.html")


@pages_router.get(
    "/static/{name}",
    summary="What the page is made of",
    **describe_route("A file.", media="text/plain", more=(304,)),
)
async def static(request: Request, name: str) -> Response:
    return await _send_file(request, name)


async def _send_file(request: Request, name: str) -> Response:
    path = await get_service(request).thread_pools.reading.run(_find_file, name)
    data = await get_service(request).thread_pools.reading.run(path.read_bytes)
    etag = f'"{blake2b(data, digest_size=16).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Type": _MEDIA_TYPES[path.suffix]}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers)


def _find_file(name: str) -> Path:
    """Find a file of the page by comparing names; what a caller sends never becomes part of a path."""
    for path in _FOLDER.iterdir() if _FOLDER.is_dir() else ():
        if path.name == name and path.suffix in _MEDIA_TYPES and path.is_file():
            return path
    raise RequestRefused("not_found", "there is no such file")


router = APIRouter(tags=["about"])


@router.get("/v1/info", summary="What is served", **describe_route(schemas.InfoAnswer))
async def info(request: Request) -> Response:
    service = get_service(request)
    return schemas.json_response(await service.thread_pools.reading.run(_describe_index, service))


def _describe_index(service: Service) -> dict[str, Any]:
    gallery = service.gallery
    stats, lost, words = service.read(lambda view: (view.stats(), list(view.lost), list(view.word_fields)))
    return {
        "name": Path(gallery.index.path).stem,
        "version": __version__,
        "generation": stats["generation"],
        "documents": stats["documents"],
        "images": stats["items"]["image"],
        "texts": stats["items"]["text"],
        "partial": bool(lost),
        "bytes_per_item": len(gallery.index.model.image_codebooks_),
        "format": stats["format"],
        "codes": stats["codes"],
        "read_only": not service.settings.writes,
        "calibrated": _find_report(service) is not None,
        "thumbnails": gallery.has_thumbnails,
        "word_fields": words,
        "encoders": {side: _describe_encoder(service, side) for side in ("image", "text")},
        "fields": dict(islice(stats["fields"].items(), LIMITS.fields)),  # files of 0.6.0 may have more
        "limits": {
            "k": LIMITS.k,
            "text_chars": LIMITS.text_chars,
            "upload_bytes": LIMITS.upload_bytes,
            "batch": LIMITS.batch,
        },
    }


def _describe_encoder(service: Service, side: str) -> dict[str, Any] | None:
    state = service.gallery.encoders.get(side)
    return None if state is None else {"name": state.name, "dimension": state.dimension}


def _find_report(service: Service) -> Any:
    try:
        return service.gallery.index.model.report_
    except NotCalibrated:
        return None


@router.get(
    "/v1/report",
    summary="What the compression cost, measured",
    **describe_route("The report: docs/report.md."),
)
async def report(request: Request) -> Response:
    service = get_service(request)
    return schemas.json_response(await service.thread_pools.reading.run(_read_report, service))


def _read_report(service: Service) -> dict[str, Any]:
    found = _find_report(service)
    if found is None:
        raise RequestRefused("not_measured", None, "calibrate the model before it is indexed")
    settings = service.read(lambda view: view.word_settings)
    measured = {} if settings is None else dict(settings.measured)
    section = words_section(measured)
    words = "" if section is None else f"\n{render_text([section])}"
    return found.to_dict() | {"text": found.to_text() + words, "words": measured or None}


@router.get("/v1/audit", summary="Pairs that look wrong", **describe_route(schemas.AuditAnswer))
async def audit(request: Request, query: Annotated[schemas.PageQuery, Query()]) -> Response:
    service = get_service(request)
    return schemas.json_response(await service.thread_pools.reading.run(_read_audit, service, query.limit))


def _read_audit(service: Service, limit: int) -> dict[str, Any]:
    found = service.gallery.audit()
    if found is None:
        raise RequestRefused("not_audited", None, "build the index from a folder of pictures and texts")

    def read(view: BaseIndex) -> dict[str, Any]:
        rows = [_complete_audit_row(service, view, row) for row in found["rows"][:limit]]
        return found | {"rows": rows, "partial": service.is_partial(view)}

    return service.read(read)


def _complete_audit_row(service: Service, view: BaseIndex, row: dict[str, Any]) -> dict[str, Any]:
    """Add a row's payload and thumbnail; None where its document was deleted since, or is lost."""
    document = schemas.find_document(view, row["id"])
    if document is None:
        return row | {"payload": None, "thumbnail": None}
    shown = schemas.document_to_json(service.gallery, document)
    return row | {"payload": shown["payload"], "thumbnail": shown["thumbnail"]}


@router.get(
    "/v1/stats",
    summary="How large the index is",
    **describe_route("Counts and bytes by part: docs/index.md."),
)
async def stats(request: Request) -> Response:
    service = get_service(request)
    work = service.thread_pools.reading.run(service.read, lambda view: view.stats())
    return schemas.json_response(await work)


health_router = APIRouter(tags=["health"])


@health_router.get("/healthz", summary="Whether the server runs", **describe_route(schemas.HealthAnswer))
async def healthz() -> Response:
    return schemas.json_response({"status": "ok"})


@health_router.get("/readyz", summary="Whether it answers", **describe_route(schemas.HealthAnswer))
async def readyz(request: Request) -> Response:
    service = get_service(request)
    if service.closing:
        raise RequestRefused("shutting_down")
    lost = await service.thread_pools.reading.run(service.find_lost_shards)
    if await service.thread_pools.reading.run(service.is_replaced):
        raise RequestRefused("index_replaced", None, "restart the server to serve the new file")
    return schemas.json_response({"status": "degraded" if lost else "ready"})


@health_router.get(
    "/metrics", summary="For Prometheus", **describe_route("Prometheus' text format.", media="text/plain")
)
async def metrics(request: Request) -> Response:
    service = get_service(request)

    def write_metrics(view: BaseIndex) -> bytes:
        return service.metrics.to_text(len(view), view.generation, len(view.lost))

    data = await service.thread_pools.reading.run(service.read, write_metrics)
    return Response(data, headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"})
