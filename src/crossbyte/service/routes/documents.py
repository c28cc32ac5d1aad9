"""Answer the routes of documents: read, browse, count, show, add and delete.

What a call has changed is on the disk when it is answered. A call over a limit, or with a value that is
refused, has changed nothing, and one that has begun to write is answered when it has ended. Documents with
the same sides are one commit, so a call may be up to three; only a disk that fills up or fails, or a shard
that is lost, between them can leave a part of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from crossbyte._json import plain_json
from crossbyte.errors import InvalidInput, UnknownId
from crossbyte.gallery.gallery import NewDocument as GalleryDocument
from crossbyte.index.docids import check_id, resolve_id
from crossbyte.index.index import BaseIndex
from crossbyte.index.mutations import check_fields, list_fields
from crossbyte.service import schemas
from crossbyte.service.body_parser import (
    FormField,
    get_reservation,
    parse_form,
    parse_in_thread,
    parse_json_body,
    take_body,
)
from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.idempotency import REPEATED, digest_request, read_key
from crossbyte.service.openapi import describe_form, describe_route
from crossbyte.service.routes.search import check_filter, get_picture
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service, get_service
from crossbyte.validation import check_features

if TYPE_CHECKING:
    from crossbyte.index.facets import Facet

router = APIRouter(tags=["documents"])


@router.get("/v1/document", summary="One document", **describe_route(schemas.DocumentAnswer))
async def document(request: Request, query: Annotated[schemas.IdQuery, Query()]) -> Response:
    service = get_service(request)
    return schemas.json_response(await service.thread_pools.reading.run(_read_document, service, query.id))


def _read_document(service: Service, name: str) -> dict[str, Any]:
    def read(view: BaseIndex) -> dict[str, Any]:
        found = view.get(resolve_id(view, name))
        if found is None:
            raise UnknownId(f"id: no document has the id {name[:200]!r}")
        return schemas.document_to_json(service.gallery, found)

    return service.read(read)


@router.get(
    "/v1/documents",
    summary="Browse documents in the order of their numbers",
    **describe_route(schemas.DocumentsAnswer),
)
async def documents(request: Request, query: Annotated[schemas.BrowseQuery, Query()]) -> Response:
    service = get_service(request)
    return await service.thread_pools.reading.run(_browse, service, query)


def _browse(service: Service, query: schemas.BrowseQuery) -> Response:
    """Give a page; its JSON, which may be of megabytes, is written here and not in the event loop."""
    check_filter(query.where)

    def read(view: BaseIndex) -> dict[str, Any]:
        found = view.documents(query.where, query.after, query.limit + 1)
        shown = found[: query.limit]
        return {
            "generation": view.generation,
            "documents": [schemas.document_to_json(service.gallery, each) for each in shown],
            "next": shown[-1].number if len(found) > query.limit else None,
        }

    return schemas.json_response(service.read(read))


@router.get(
    "/v1/facets", summary="Values of payload fields, to choose by", **describe_route(schemas.FacetsAnswer)
)
async def facets(request: Request, query: Annotated[schemas.FacetsQuery, Query()]) -> Response:
    service = get_service(request)
    return schemas.json_response(await service.thread_pools.reading.run(_count_facets, service, query))


def _count_facets(service: Service, query: schemas.FacetsQuery) -> dict[str, Any]:
    check_filter(query.where)
    fields = None if query.fields is None else [name for name in query.fields.split(",") if name]

    def read(view: BaseIndex) -> dict[str, Any]:
        found = view.facets(query.where, fields)
        return {"generation": view.generation, "facets": [_facet_to_json(each) for each in found]}

    return service.read(read)


def _facet_to_json(facet: Facet) -> dict[str, Any]:
    """Convert a facet to plain types; values beyond float64, which JSON cannot have, count as others."""
    values = [(value, count) for value, count in facet.values if _is_json_number(value)]
    n_omitted = sum(count for _, count in facet.values) - sum(count for _, count in values)
    return {
        "field": facet.field,
        "kind": facet.kind,
        "n_documents": facet.n_documents,
        "values": [{"value": value, "count": count} for value, count in values],
        "others": facet.n_others + n_omitted,
        "low": facet.low if _is_json_number(facet.low) else None,
        "high": facet.high if _is_json_number(facet.high) else None,
    }


def _is_json_number(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


@router.get(
    "/v1/thumbnail",
    summary="A document's small picture",
    **describe_route("The picture, made by us, without metadata.", media="image/jpeg", more=(304,)),
)
async def thumbnail(request: Request, query: Annotated[schemas.IdQuery, Query()]) -> Response:
    service = get_service(request)
    data = await service.thread_pools.reading.run(_read_thumbnail, service, query.id)
    etag = f'"{blake2b(data, digest_size=16).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "private, max-age=300", "Content-Disposition": "inline"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type="image/jpeg")


def _read_thumbnail(service: Service, name: str) -> bytes:
    def read(view: BaseIndex) -> bytes:
        data = service.gallery.thumbnail(resolve_id(view, name))
        if data is None and view.lost:  # which may hold a document whose id is this number
            raise RequestRefused("shard_lost")
        if data is None:
            raise RequestRefused("no_thumbnail", f"id: no picture is kept for {name[:200]!r}")
        return data

    return service.read(read)


writing_router = APIRouter(tags=["writing"])
# A field that is empty is not given.
_FORM_FIELDS: dict[str, dict[str, Any]] = {
    "id": {"description": "The document's id, a string.", "minLength": 1, "maxLength": schemas.ID_BYTES},
    "text": {"description": "Its words.", "maxLength": LIMITS.text_chars},
    "payload": {"description": "A JSON object.", "contentMediaType": "application/json"},
    "group": {"description": "Its group, a string.", "maxLength": schemas.ID_BYTES},
    "upsert": {
        "description": "true or false: whether to replace a document of the same id.",
        "enum": ["", "true", "false"],
    },
    "codes": {
        "description": "document or sides: one code of picture and text, or one for each.",
        "enum": ["", "document", "sides"],
    },
}


@writing_router.post(
    "/v1/documents",
    summary="Add documents",
    **describe_route(schemas.AddAnswer, body=schemas.NewDocuments, takes_key=True, more=(409, 415, 507)),
)
async def add(request: Request) -> Response:
    service, body = get_service(request), take_body(request)

    def check_and_add(given: schemas.NewDocuments) -> dict[str, Any]:
        checked = [_check_document(service, each) for each in given.documents]
        if len(checked) > 1:  # which may be several commits, and each looks at its own fields alone
            known = service.gallery.index.stats()["fields"]
            check_fields(known, list_fields(each.payload for each in checked))
        return _add_documents(service, checked, given.upsert, given.codes)

    async def write() -> dict[str, Any]:
        given = await parse_in_thread(schemas.NewDocuments, request, body, service.thread_pools)
        return await service.thread_pools.writing.run_to_end(check_and_add, given)

    return await _write_once(request, [body], write)


async def _write_once(
    request: Request, parts: list[bytes], write: Callable[[], Awaitable[dict[str, Any]]]
) -> Response:
    """Write; but a request with a key that was answered is answered with the same again."""
    service, key = get_service(request), read_key(request)
    if key is None:
        return schemas.json_response(await write())
    digest = await service.thread_pools.reading.run(digest_request, request, parts)
    answer, is_repeated = await service.written.answer_once(key, digest, write)
    return schemas.json_response(answer, headers=REPEATED if is_repeated else None)


def _check_document(service: Service, document: schemas.NewDocument) -> GalleryDocument:
    """Check everything before the first commit: documents of different sides are commits of their own."""
    model, name = service.gallery.index.model, str(document.id)[:200]
    _check_payload(document.payload, name)
    _check_row(document.image_features, model.n_features_in_, f"document {name!r}: image_features")
    _check_row(document.text_features, model.n_text_features_, f"document {name!r}: text_features")
    if document.group is not None:
        check_id(document.group)
    return GalleryDocument(
        document.id,
        text=document.text,
        image_features=document.image_features,
        text_features=document.text_features,
        payload=document.payload,
        group=document.group,
    )


def _check_row(row: list[float] | None, width: int, what: str) -> None:
    if row is not None and len(row) != width:
        raise InvalidInput(f"{what}: expected {width} numbers, got {len(row)}")
    if row is not None:
        check_features([row], what)


def _check_payload(payload: Any, id: str) -> None:
    """Check the size of a payload before its values: messages about these name their places in full."""
    size = len(json.dumps(payload, separators=(",", ":")))
    if size > LIMITS.payload_bytes:
        message = f"document {id!r}: expected a payload of at most {LIMITS.payload_bytes} bytes, got {size}"
        raise RequestRefused("payload_too_large", message, "keep long values elsewhere")
    plain_json(payload, "payload")


def _add_documents(
    service: Service, documents: list[GalleryDocument], upsert: bool, codes: str | None
) -> dict[str, Any]:
    added = service.gallery.add(documents, upsert=upsert, codes=codes)
    return {"added": added, "generation": service.gallery.index.generation}


@writing_router.post(
    "/v1/documents/image",
    summary="Add a document with its picture",
    **describe_route(
        schemas.AddAnswer,
        body=describe_form(("image", "id"), **_FORM_FIELDS),
        takes_key=True,
        more=(409, 415, 507),
    ),
)
async def add_picture(request: Request) -> Response:
    service, body = get_service(request), take_body(request)
    parts = await service.thread_pools.pictures.run(parse_form, request, body)
    del body

    async def write() -> dict[str, Any]:
        document, upsert, codes = await service.thread_pools.pictures.run(
            _read_picture_form, service, request, parts
        )
        return await service.thread_pools.writing.run_to_end(
            _add_documents, service, [document], upsert, codes
        )

    # The fields, not the body: each time it is sent, something else stands between them.
    fields = [each for name in sorted(parts) for each in (name.encode(), parts[name].data)]
    return await _write_once(request, fields, write)


def _read_picture_form(
    service: Service, request: Request, parts: dict[str, FormField]
) -> tuple[GalleryDocument, bool, str | None]:
    def parse_payload(text: str) -> Any:
        return parse_json_body(text.encode(), get_reservation(request))

    data = get_picture(parts, tuple(_FORM_FIELDS))
    given = schemas.NewDocument.model_validate(
        {
            "id": _form_value(parts, "id"),
            "text": _form_value(parts, "text"),
            "group": _form_value(parts, "group"),
            "payload": _form_value(parts, "payload", parse_payload),
        },
        strict=True,
    )
    upsert = _form_value(parts, "upsert", _parse_flag) or False
    codes = _form_value(parts, "codes", _parse_codes)
    document = _check_document(service, given)
    return document._replace(picture=service.gallery.read_picture(data)), upsert, codes


def _form_value(parts: dict[str, FormField], name: str, parse: Callable[[str], Any] = str) -> Any:
    return parse(parts[name].text) if name in parts and parts[name].data else None


def _parse_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise RequestRefused("bad_multipart", f"upsert: expected true or false, got {text[:20]!r}")
    return text == "true"


def _parse_codes(text: str) -> str:
    if text not in ("document", "sides"):
        raise RequestRefused("bad_multipart", f"codes: expected document or sides, got {text[:20]!r}")
    return text


@writing_router.post(
    "/v1/documents/delete",
    summary="Delete documents",
    **describe_route(schemas.DeleteAnswer, body=schemas.Deletion, takes_key=True, more=(409, 415, 507)),
)
async def delete(request: Request) -> Response:
    service, body = get_service(request), take_body(request)

    def delete_documents(given: schemas.Deletion) -> dict[str, Any]:
        deleted = service.gallery.delete(given.ids, missing_ok=given.missing_ok)
        return {"deleted": deleted, "generation": service.gallery.index.generation}

    async def write() -> dict[str, Any]:
        given = await parse_in_thread(schemas.Deletion, request, body, service.thread_pools)
        return await service.thread_pools.writing.run_to_end(delete_documents, given)

    return await _write_once(request, [body], write)


@writing_router.post(
    "/v1/compact",
    summary="Make the index small: forget deleted documents and old payloads",
    **describe_route(schemas.CompactAnswer, more=(409, 507)),
)
async def compact(request: Request) -> Response:
    service = get_service(request)

    def compact_index() -> dict[str, Any]:
        index = service.gallery.index
        index.compact()
        return {"documents": len(index), "generation": index.generation}

    return schemas.json_response(await service.thread_pools.compacting.run_to_end(compact_index))
