"""Answer the routes that search, and those that explain a hit.

A query is the keyword argument of ``Index.search`` that says what is looked for (``texts``, ``images`` or
``like``) with its value, and ``words`` where it is a text; the options of a request are its other keyword
arguments. Every answer is of one generation.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from crossbyte.index.docids import Id, resolve_id
from crossbyte.index.filters.grammar import And, Condition, Not, Or, parse_filter
from crossbyte.index.index import BaseIndex
from crossbyte.service import schemas
from crossbyte.service.body_parser import FormField, parse_form, parse_in_thread, take_body
from crossbyte.service.error_codes import Problem, RequestRefused, describe_error, get_request_id
from crossbyte.service.openapi import describe_form, describe_route
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service, get_service

_NOT_KEYWORDS = {"text", "image_features", "text_features", "like", "payloads"}
_EXAMPLE_FIELDS = ("id", "payload", "thumbnail")
router = APIRouter(tags=["search"])
_PICTURE_FORM = describe_form(("image",))


# Searching


@router.get(
    "/v1/search", summary="Search in words, while they are typed", **describe_route(schemas.SearchAnswer)
)
async def search_by_text(request: Request, query: Annotated[schemas.TextSearch, Query()]) -> Response:
    service = get_service(request)
    encode = partial(encode_text, service, query.text, query.mode)
    return schemas.bytes_response(
        await service.thread_pools.reading.run(answer_search, service, encode, query)
    )


@router.post(
    "/v1/search",
    summary="Search by words, features, or a document",
    **describe_route(schemas.SearchAnswer, body=schemas.Search, more=(415,)),
)
async def search(request: Request) -> Response:
    service = get_service(request)
    query = await parse_in_thread(schemas.Search, request, take_body(request), service.thread_pools)
    encode = partial(encode_query, service, query)
    return schemas.bytes_response(
        await service.thread_pools.reading.run(answer_search, service, encode, query)
    )


@router.post(
    "/v1/search/image",
    summary="Search by a picture",
    **describe_route(schemas.SearchAnswer, body=_PICTURE_FORM, more=(415,)),
)
async def search_by_picture(request: Request, options: Annotated[schemas.SearchOptions, Query()]) -> Response:
    service, body = get_service(request), take_body(request)

    def search_picture() -> bytes:
        picture = get_picture(parse_form(request, body))
        return answer_search(service, partial(encode_picture, service, picture), options)

    return schemas.bytes_response(await service.thread_pools.pictures.run(search_picture))


@router.post(
    "/v1/search/batch",
    summary="Search many times: one line of JSON per query, in order, as soon as it is known",
    **describe_route(
        "A SearchAnswer, or an ErrorAnswer, per line.",
        body=schemas.Batch,
        more=(415,),
        media="application/x-ndjson",
    ),
)
async def search_batch(request: Request) -> Response:
    service = get_service(request)
    batch = await parse_in_thread(schemas.Batch, request, take_body(request), service.thread_pools)
    lines = _stream_answers(service, batch.queries, get_request_id(request.scope))
    return StreamingResponse(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


async def _stream_answers(
    service: Service, queries: list[schemas.Search], request_id: str
) -> AsyncIterator[bytes]:
    """Answer one query after another; those that are not answered in time get an error."""
    end = time.monotonic() + 0.9 * service.settings.request_seconds  # before the whole request is cut off
    for query in queries:
        if time.monotonic() > end:
            line = Problem("timed_out", "the batch took too long", "send fewer queries").to_dict(request_id)
        else:
            line = await _answer_line(service, query, request_id)
        yield schemas.encode_json(line) + b"\n"


async def _answer_line(service: Service, query: schemas.Search, request_id: str) -> dict[str, Any]:
    try:
        return await service.thread_pools.reading.run(
            run_search, service, partial(encode_query, service, query), query
        )
    except Exception as error:  # one failed query does not end the batch
        return describe_error(error, request_id, service.gallery.index.path).to_dict(request_id)


def answer_search(
    service: Service, encode: Callable[[], dict[str, Any]], options: schemas.SearchOptions
) -> bytes:
    """Encode a query and search with it; return the JSON of a ``SearchAnswer``."""
    return schemas.encode_json(run_search(service, encode, options))


def run_search(
    service: Service, encode: Callable[[], dict[str, Any]], options: schemas.SearchOptions
) -> dict[str, Any]:
    """Encode a query and search with it; return a ``SearchAnswer``."""
    start = time.perf_counter()
    check_filter(options.where)
    with service.metrics.time_step("total"):
        query = encode()
        found = service.read(lambda view: _search_view(service, view, query, options))
    return found | {"took_ms": round(1000 * (time.perf_counter() - start), 3)}


def _search_view(
    service: Service, view: BaseIndex, query: dict[str, Any], options: schemas.SearchOptions
) -> dict[str, Any]:
    """Search one generation of the index."""
    with service.metrics.time_step("scan"):
        keywords = {name: value for name, value in options if name not in _NOT_KEYWORDS}
        hits = view.search(**query, **keywords)[0]
    for text in query.get("words", ()):
        hits = service.gallery.name_unknown_words(hits, text)
    with service.metrics.time_step("payload"):
        payloads = schemas.read_payloads(view, hits) if options.payloads else None
    shown = schemas.hits_to_json(service.gallery, view, hits, payloads)
    return {
        "generation": view.generation,
        "target": options.target or _default_target(view, query),
        "verdict": hits.verdict,
        "no_match": hits.no_match,
        "unknown_words": hits.unknown_words,
        "partial": service.is_partial(view, hits),
        "hits": shown,
    }


def _default_target(view: BaseIndex, query: dict[str, Any]) -> str:
    """Choose what is searched where the caller did not: the other side, or a document's own."""
    if "like" not in query:
        return "image" if "texts" in query else "text"
    document = view.get(query["like"])
    if document is not None and document.document_code is not None:
        return "document"
    return "text" if document is not None and document.image_code is None else "image"


def check_filter(where: str | None) -> None:
    """Refuse a filter of too many conditions."""
    if where is not None and (count := _count_conditions(parse_filter(where))) > LIMITS.filter_terms:
        message = f"where: expected at most {LIMITS.filter_terms} conditions, got {count}"
        raise RequestRefused("filter_too_many_terms", message, "use IN with a list of values")


def _count_conditions(condition: Condition) -> int:
    if isinstance(condition, And | Or):
        return sum(map(_count_conditions, condition.operands))
    return _count_conditions(condition.operand) if isinstance(condition, Not) else 1


# Explaining


@router.post(
    "/v1/explain",
    summary="Say why a document is as near to a query as it is",
    **describe_route("The explanation: docs/explanation.md.", body=schemas.Explain, more=(415,)),
)
async def explain(request: Request) -> Response:
    service = get_service(request)
    wanted = await parse_in_thread(schemas.Explain, request, take_body(request), service.thread_pools)
    return schemas.json_response(await service.thread_pools.reading.run(_explain, service, wanted))


def _explain(service: Service, wanted: schemas.Explain) -> dict[str, Any]:
    query = encode_query(service, wanted)
    query.pop("words", None)  # distances alone are explained
    return service.read(lambda view: explain_document(service, view, wanted.id, query, wanted.target))


@router.post(
    "/v1/explain/image",
    summary="Say why a document is as near to a picture as it is",
    **describe_route("The explanation: docs/explanation.md.", body=_PICTURE_FORM, more=(415,)),
)
async def explain_picture(request: Request, options: Annotated[schemas.ExplainOptions, Query()]) -> Response:
    service, body = get_service(request), take_body(request)

    def explain_by_picture() -> dict[str, Any]:
        query = encode_picture(service, get_picture(parse_form(request, body)))
        return service.read(
            lambda view: explain_document(service, view, resolve_id(view, options.id), query, options.target)
        )

    return schemas.json_response(await service.thread_pools.pictures.run(explain_by_picture))


def explain_document(
    service: Service, view: BaseIndex, id: Id, query: dict[str, Any], target: str | None
) -> dict[str, Any]:
    """Say why a document is as near to a query as it is."""
    vocabulary = service.gallery.vocabulary()
    why = view.explain(id, **query, target=target, vocabulary=vocabulary).to_dict()
    why["examples"] = [
        example | _training_document(service, view, example["row"]) for example in why["examples"]
    ]
    return why


def _training_document(service: Service, view: BaseIndex, row: int) -> dict[str, Any]:
    """Describe a training pair as far as it is known: not if it was deleted, or came as plain features."""
    id = service.gallery.training_id(row)
    document = None if id is None else schemas.find_document(view, id)
    answer = {} if document is None else schemas.document_to_json(service.gallery, document)
    return {name: answer.get(name) for name in _EXAMPLE_FIELDS}


# Queries


def encode_text(service: Service, text: str, mode: str | None = None) -> dict[str, Any]:
    """Encode words as a query."""
    with service.metrics.time_step("encode"):
        return {"texts": service.gallery.encode_questions([text], mode), "words": [text]}


def encode_picture(service: Service, data: bytes) -> dict[str, Any]:
    """Encode the bytes of a picture as a query."""
    with service.metrics.time_step("encode"):
        picture = service.gallery.read_picture(data)
        return {"images": service.gallery.encode_pictures([picture])}


def encode_query(service: Service, query: schemas.Search | schemas.Explain) -> dict[str, Any]:
    """Turn the query of a body into one of the index: words are encoded, features and ids passed on."""
    if query.text is not None:
        return encode_text(service, query.text, getattr(query, "mode", None))
    if query.like is not None:
        return {"like": query.like}
    if query.image_features is not None:
        return {"images": np.array(query.image_features, dtype=np.float64)}
    return {"texts": np.array(query.text_features, dtype=np.float64)}


def get_picture(parts: dict[str, FormField], others: tuple[str, ...] = ()) -> bytes:
    """Return the picture of a form; refuse fields other than these."""
    if "image" not in parts:
        raise RequestRefused("bad_multipart", "expected a form with the field image, got none")
    known = ("image", *others)
    unknown = [name for name in parts if name not in known]
    if unknown:
        message = f"expected no fields but {', '.join(known)}, got {unknown[0][:100]!r}"
        raise RequestRefused("bad_multipart", message, "leave it out")
    data = parts["image"].data
    if len(data) > LIMITS.upload_bytes:
        message = f"expected a picture of at most {LIMITS.upload_bytes} bytes, got {len(data)}"
        raise RequestRefused("picture_too_large", message, "send a smaller one")
    return data
