"""Routes of single documents and of lists of them: look, browse, count, see."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from crossbyte.errors import UnknownId
from crossbyte.gallery.searchable import View
from crossbyte.search.ids import resolve_id
from crossbyte.service.answers import document_answer, json_answer
from crossbyte.service.asking import check_filter
from crossbyte.service.documenting import documented
from crossbyte.service.errors import Refused
from crossbyte.service.requests import Browse, FacetsQuery, IdQuery
from crossbyte.service.responses import DocumentAnswer, DocumentsAnswer, FacetsAnswer
from crossbyte.service.state import Service, service_of

if TYPE_CHECKING:
    from crossbyte.search.facets import Facet

__all__ = ["router"]

router = APIRouter(tags=["documents"])


@router.get("/v1/document", summary="One document", **documented(DocumentAnswer))
async def document(request: Request, query: Annotated[IdQuery, Query()]) -> Response:
    service = service_of(request)
    return json_answer(await service.lanes.reading.run(_document, service, query.id))


def _document(service: Service, name: str) -> dict[str, Any]:
    def look(view: View) -> dict[str, Any]:
        found = view.get(resolve_id(view, name))
        if found is None:
            raise UnknownId(f"id: no document has the id {name[:200]!r}")
        return document_answer(service.gallery, found)

    return service.read(look)


@router.get(
    "/v1/documents", summary="Browse documents in the order of their numbers", **documented(DocumentsAnswer)
)
async def documents(request: Request, query: Annotated[Browse, Query()]) -> Response:
    service = service_of(request)
    return json_answer(await service.lanes.reading.run(_documents, service, query))


def _documents(service: Service, query: Browse) -> dict[str, Any]:
    check_filter(query.where)

    def look(view: View) -> dict[str, Any]:
        found = view.documents(query.where, query.after, query.limit + 1)
        shown = found[: query.limit]
        return {
            "generation": view.generation,
            "documents": [document_answer(service.gallery, each) for each in shown],
            "next": shown[-1].number if len(found) > query.limit else None,
        }

    return service.read(look)


@router.get("/v1/facets", summary="Values of payload fields, to choose by", **documented(FacetsAnswer))
async def facets(request: Request, query: Annotated[FacetsQuery, Query()]) -> Response:
    service = service_of(request)
    return json_answer(await service.lanes.reading.run(_facets, service, query))


def _facets(service: Service, query: FacetsQuery) -> dict[str, Any]:
    check_filter(query.where)
    fields = None if query.fields is None else [name for name in query.fields.split(",") if name]

    def look(view: View) -> dict[str, Any]:
        found = view.facets(query.where, fields)
        return {"generation": view.generation, "facets": [_facet(each) for each in found]}

    return service.read(look)


def _facet(facet: Facet) -> dict[str, Any]:
    """Give a facet in plain types; JSON has no number for what is beyond float64."""
    values = [(value, count) for value, count in facet.values if _is_spoken(value)]
    unspoken = sum(count for _, count in facet.values) - sum(count for _, count in values)
    return {
        "field": facet.field,
        "kind": facet.kind,
        "n_documents": facet.n_documents,
        "values": [{"value": value, "count": count} for value, count in values],
        "others": facet.n_others + unspoken,
        "low": facet.low if _is_spoken(facet.low) else None,
        "high": facet.high if _is_spoken(facet.high) else None,
    }


def _is_spoken(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


@router.get(
    "/v1/thumbnail",
    summary="A document's small picture",
    **documented("The picture, made by us, without metadata.", media="image/jpeg", more=(304,)),
)
async def thumbnail(request: Request, query: Annotated[IdQuery, Query()]) -> Response:
    service = service_of(request)
    data = await service.lanes.reading.run(_thumbnail, service, query.id)
    mark = f'"{blake2b(data, digest_size=16).hexdigest()}"'
    headers = {"ETag": mark, "Cache-Control": "private, max-age=300", "Content-Disposition": "inline"}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type="image/jpeg")


def _thumbnail(service: Service, name: str) -> bytes:
    def look(view: View) -> bytes:
        data = service.gallery.thumbnail(resolve_id(view, name))
        if data is None and view.lost:  # which may hold a document whose id is this number
            raise Refused("shard_lost")
        if data is None:
            raise Refused("no_thumbnail", f"id: no picture is kept for {name[:200]!r}")
        return data

    return service.read(look)
