"""Routes that describe what is served: the index, its quality, its suspicious pairs, its size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from crossbyte import __version__
from crossbyte.errors import NotCalibrated
from crossbyte.gallery.searchable import View
from crossbyte.service.answers import document_answer, json_answer, look_up
from crossbyte.service.documenting import documented
from crossbyte.service.errors import Refused
from crossbyte.service.requests import Page
from crossbyte.service.responses import AuditAnswer, InfoAnswer
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service, service_of

__all__ = ["router"]

router = APIRouter(tags=["about"])


@router.get("/v1/info", summary="What is served", **documented(InfoAnswer))
async def info(request: Request) -> Response:
    service = service_of(request)
    return json_answer(await service.lanes.reading.run(_info, service))


def _info(service: Service) -> dict[str, Any]:
    gallery = service.gallery
    stats, lost = service.read(lambda view: (view.stats(), list(view.lost)))
    return {
        "name": Path(gallery.index.path).stem,
        "version": __version__,
        "generation": stats["generation"],
        "documents": stats["documents"],
        "images": stats["items"]["image"],
        "texts": stats["items"]["text"],
        "partial": bool(lost),
        "bytes_per_item": len(gallery.index.model.image_codebooks_),
        "read_only": not service.settings.writes,
        "calibrated": _report(service) is not None,
        "thumbnails": gallery.has_thumbnails,
        "encoders": {side: _encoder(service, side) for side in ("image", "text")},
        "fields": stats["fields"],
        "limits": {
            "k": LIMITS.k,
            "text_chars": LIMITS.text_chars,
            "upload_bytes": LIMITS.upload_bytes,
            "batch": LIMITS.batch,
        },
    }


def _encoder(service: Service, side: str) -> dict[str, Any] | None:
    state = service.gallery.encoders.get(side)
    return None if state is None else {"name": state.name, "dimension": state.dimension}


def _report(service: Service) -> Any:
    try:
        return service.gallery.index.model.report_
    except NotCalibrated:
        return None


@router.get(
    "/v1/report", summary="What the compression cost, measured", **documented("The report: docs/report.md.")
)
async def report(request: Request) -> Response:
    service = service_of(request)
    return json_answer(await service.lanes.reading.run(_measured, service))


def _measured(service: Service) -> dict[str, Any]:
    found = _report(service)
    if found is None:
        raise Refused("not_measured", None, "calibrate the model before it is indexed")
    return found.to_dict() | {"text": found.to_text()}


@router.get("/v1/audit", summary="Pairs that look wrong", **documented(AuditAnswer))
async def audit(request: Request, query: Annotated[Page, Query()]) -> Response:
    service = service_of(request)
    return json_answer(await service.lanes.reading.run(_audited, service, query.limit))


def _audited(service: Service, limit: int) -> dict[str, Any]:
    found = service.gallery.audit()
    if found is None:
        raise Refused("not_audited", None, "build the index from a folder of pictures and texts")

    def look(view: View) -> dict[str, Any]:
        rows = [_audited_row(service, view, row) for row in found["rows"][:limit]]
        return found | {"rows": rows, "partial": service.is_partial(view)}

    return service.read(look)


def _audited_row(service: Service, view: View, row: dict[str, Any]) -> dict[str, Any]:
    """Show what the row is about; a document that was deleted since, or is lost, has nothing to show."""
    document = look_up(view, row["id"])
    if document is None:
        return row | {"payload": None, "thumbnail": None}
    shown = document_answer(service.gallery, document)
    return row | {"payload": shown["payload"], "thumbnail": shown["thumbnail"]}


@router.get(
    "/v1/stats", summary="How large the index is", **documented("Counts and bytes by part: docs/index.md.")
)
async def stats(request: Request) -> Response:
    service = service_of(request)
    work = service.lanes.reading.run(service.read, lambda view: view.stats())
    return json_answer(await work)
