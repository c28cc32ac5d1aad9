"""Routes that change the index; what a call has done is on the disk when it is answered.

A call that is refused has changed nothing. Documents with the same sides are one commit, so a call may be up
to three; only a disk that fills up or fails between them can leave a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from crossbyte.errors import InvalidInput
from crossbyte.gallery.gallery import NewDocument as GalleryDocument
from crossbyte.search.ids import check_id
from crossbyte.service.answers import json_answer
from crossbyte.service.bodies import Part, parse_body, parse_parts, parse_value
from crossbyte.service.documenting import documented, form
from crossbyte.service.errors import Refused
from crossbyte.service.requests import Deletion, NewDocument, NewDocuments
from crossbyte.service.responses import AddAnswer, DeleteAnswer
from crossbyte.service.searching import picture_of
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service, service_of
from crossbyte.strict_json import plain_json
from crossbyte.validation import check_features

__all__ = ["writing_router"]

writing_router = APIRouter(tags=["writing"])
_FIELDS = {
    "id": "The document's id, a string.",
    "text": "Its words.",
    "payload": "A JSON object.",
    "group": "Its group, a string.",
    "upsert": "true or false: whether to replace a document of the same id.",
}


@writing_router.post(
    "/v1/documents", summary="Add documents", **documented(AddAnswer, body=NewDocuments, more=(409, 415, 507))
)
async def add(request: Request) -> Response:
    service, body = service_of(request), await request.body()

    def work() -> dict[str, Any]:
        given = parse_body(NewDocuments, request, body)
        return _add(service, [_checked(service, each) for each in given.documents], given.upsert)

    return json_answer(await service.lanes.writing.run(work))


def _checked(service: Service, document: NewDocument) -> GalleryDocument:
    """Judge all that can be judged first: documents of different sides are commits of their own."""
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
    """Weigh a payload before it is looked into: messages about its values name their places in full."""
    size = len(json.dumps(payload, separators=(",", ":")))
    if size > LIMITS.payload_bytes:
        message = f"document {id!r}: expected a payload of at most {LIMITS.payload_bytes} bytes, got {size}"
        raise Refused("payload_too_large", message, "keep long values elsewhere")
    plain_json(payload, "payload")


def _add(service: Service, documents: list[GalleryDocument], upsert: bool) -> dict[str, Any]:
    added = service.gallery.add(documents, upsert=upsert)
    return {"added": added, "generation": service.gallery.index.generation}


@writing_router.post(
    "/v1/documents/image",
    summary="Add a document with its picture",
    **documented(
        AddAnswer,
        body=form(("image", "id"), image="A picture: JPEG, PNG, WebP, BMP or GIF.", **_FIELDS),
        more=(409, 415, 507),
    ),
)
async def add_picture(request: Request) -> Response:
    service, body = service_of(request), await request.body()
    document, upsert = await service.lanes.pictures.run(_pictured, service, request, body)
    return json_answer(await service.lanes.writing.run(_add, service, [document], upsert))


def _pictured(service: Service, request: Request, body: bytes) -> tuple[GalleryDocument, bool]:
    parts = parse_parts(request, body)
    data = picture_of(parts, tuple(_FIELDS))
    given = NewDocument.model_validate(
        {
            "id": _field(parts, "id"),
            "text": _field(parts, "text"),
            "group": _field(parts, "group"),
            "payload": _field(parts, "payload", lambda text: parse_value(text.encode())),
        },
        strict=True,
    )
    upsert = _field(parts, "upsert", _flag) or False
    return _checked(service, given)._replace(picture=service.gallery.read_picture(data)), upsert


def _field(parts: dict[str, Part], name: str, read: Callable[[str], Any] = str) -> Any:
    return read(parts[name].text) if name in parts and parts[name].data else None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise Refused("bad_multipart", f"upsert: expected true or false, got {text[:20]!r}")
    return text == "true"


@writing_router.post(
    "/v1/documents/delete",
    summary="Delete documents",
    **documented(DeleteAnswer, body=Deletion, more=(409, 415, 507)),
)
async def delete(request: Request) -> Response:
    service, body = service_of(request), await request.body()

    def work() -> dict[str, Any]:
        given = parse_body(Deletion, request, body)
        deleted = service.gallery.delete(given.ids, missing_ok=given.missing_ok)
        return {"deleted": deleted, "generation": service.gallery.index.generation}

    return json_answer(await service.lanes.writing.run(work))
