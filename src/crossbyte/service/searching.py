"""Routes that search, and that say why."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from crossbyte.search.ids import resolve_id
from crossbyte.service.answers import json_answer, spell
from crossbyte.service.asking import answer, encode_picture, encode_query, encode_text
from crossbyte.service.bodies import Part, parse_body, parse_parts
from crossbyte.service.documenting import documented, form
from crossbyte.service.errors import Problem, Refused, request_id_of, told
from crossbyte.service.explaining import explained
from crossbyte.service.requests import Batch, Explain, ExplainOptions, Options, Search, TextSearch
from crossbyte.service.responses import SearchAnswer
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service, service_of

__all__ = ["picture_of", "router"]

router = APIRouter(tags=["search"])
_PICTURE = form(("image",), image="A picture: JPEG, PNG, WebP, BMP or GIF.")


@router.get("/v1/search", summary="Search in words, while they are typed", **documented(SearchAnswer))
async def search_by_text(request: Request, query: Annotated[TextSearch, Query()]) -> Response:
    service = service_of(request)
    encode = partial(encode_text, service, query.text)
    return json_answer(await service.lanes.reading.run(answer, service, encode, query))


@router.post(
    "/v1/search",
    summary="Search by words, features, or a document",
    **documented(SearchAnswer, body=Search, more=(415,)),
)
async def search(request: Request) -> Response:
    service, body = service_of(request), await request.body()
    return json_answer(await service.lanes.reading.run(_searched, service, request, body))


def _searched(service: Service, request: Request, body: bytes) -> dict[str, Any]:
    query = parse_body(Search, request, body)
    return answer(service, partial(encode_query, service, query), query)


@router.post(
    "/v1/search/image",
    summary="Search by a picture",
    **documented(SearchAnswer, body=_PICTURE, more=(415,)),
)
async def search_by_picture(request: Request, options: Annotated[Options, Query()]) -> Response:
    service, body = service_of(request), await request.body()

    def work() -> dict[str, Any]:
        picture = picture_of(parse_parts(request, body))
        return answer(service, partial(encode_picture, service, picture), options)

    return json_answer(await service.lanes.pictures.run(work))


def picture_of(parts: dict[str, Part], others: tuple[str, ...] = ()) -> bytes:
    """Take the picture out of a form, which has no other fields than these."""
    if "image" not in parts:
        raise Refused("bad_multipart", "expected a form with the field image, got none")
    known = ("image", *others)
    unknown = [name for name in parts if name not in known]
    if unknown:
        message = f"expected no fields but {', '.join(known)}, got {unknown[0][:100]!r}"
        raise Refused("bad_multipart", message, "leave it out")
    data = parts["image"].data
    if len(data) > LIMITS.upload_bytes:
        message = f"expected a picture of at most {LIMITS.upload_bytes} bytes, got {len(data)}"
        raise Refused("picture_too_large", message, "send a smaller one")
    return data


@router.post(
    "/v1/search/batch",
    summary="Search many times: one line of JSON per query, in order, as soon as it is known",
    **documented(
        "A SearchAnswer, or an ErrorAnswer, per line.", body=Batch, more=(415,), media="application/x-ndjson"
    ),
)
async def search_batch(request: Request) -> Response:
    service, body = service_of(request), await request.body()
    batch = await service.lanes.reading.run(parse_body, Batch, request, body)
    lines = _lines(service, batch.queries, request_id_of(request.scope))
    return StreamingResponse(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


async def _lines(service: Service, queries: list[Search], request_id: str) -> AsyncIterator[bytes]:
    """Answer query after query; what is not answered in time says so."""
    end = time.monotonic() + 0.9 * service.settings.request_seconds  # before the whole request is cut off
    for query in queries:
        if time.monotonic() > end:
            line = Problem("timed_out", "the batch took too long", "send fewer queries").to_dict(request_id)
        else:
            line = await _line(service, query, request_id)
        yield spell(line) + b"\n"


async def _line(service: Service, query: Search, request_id: str) -> dict[str, Any]:
    try:
        return await service.lanes.reading.run(answer, service, partial(encode_query, service, query), query)
    except Exception as error:  # a line says what went wrong with it; the others do not suffer
        return told(error, request_id, service.gallery.index.path).to_dict(request_id)


@router.post(
    "/v1/explain",
    summary="Say why a document is as near to a query as it is",
    **documented("The explanation: docs/explanation.md.", body=Explain, more=(415,)),
)
async def explain(request: Request) -> Response:
    service, body = service_of(request), await request.body()
    return json_answer(await service.lanes.reading.run(_explained, service, request, body))


def _explained(service: Service, request: Request, body: bytes) -> dict[str, Any]:
    wanted = parse_body(Explain, request, body)
    query = encode_query(service, wanted)
    return service.read(lambda view: explained(service, view, wanted.id, query, wanted.target))


@router.post(
    "/v1/explain/image",
    summary="Say why a document is as near to a picture as it is",
    **documented("The explanation: docs/explanation.md.", body=_PICTURE, more=(415,)),
)
async def explain_picture(request: Request, options: Annotated[ExplainOptions, Query()]) -> Response:
    service, body = service_of(request), await request.body()

    def work() -> dict[str, Any]:
        query = encode_picture(service, picture_of(parse_parts(request, body)))
        return service.read(
            lambda view: explained(service, view, resolve_id(view, options.id), query, options.target)
        )

    return json_answer(await service.lanes.pictures.run(work))
