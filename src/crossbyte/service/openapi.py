"""Describe each route for OpenAPI: its body, its answers, and every error that it may give."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from crossbyte import __version__
from crossbyte.service import idempotency, schemas
from crossbyte.service.error_codes import ERROR_CODES
from crossbyte.service.permissions import PERMISSIONS, Permission
from crossbyte.service.settings import LIMITS

_BODIES: list[type[BaseModel]] = [
    schemas.Search,
    schemas.Batch,
    schemas.Explain,
    schemas.NewDocuments,
    schemas.Deletion,
]
_ANSWERS: list[type[BaseModel]] = [
    schemas.AddAnswer,
    schemas.AuditAnswer,
    schemas.DeleteAnswer,
    schemas.CompactAnswer,
    schemas.DocumentAnswer,
    schemas.DocumentsAnswer,
    schemas.ErrorAnswer,
    schemas.FacetsAnswer,
    schemas.HealthAnswer,
    schemas.InfoAnswer,
    schemas.SearchAnswer,
]
_REFERENCE = "#/components/schemas/{model}"
_ALWAYS = {400, 401, 403, 404, 405, 408, 413, 414, 421, 422, 431, 500, 503, 504}
_KEY_PARAMETER = {
    "name": idempotency.HEADER,
    "in": "header",
    "required": False,
    "description": "A header: a name of this request. Sent again with it, the request is not done again, and "
    "its first answer is given.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LIMITS.key_chars},
}
_DESCRIPTION = """Search images by words and texts by pictures, in 2 to 64 bytes per item.

Errors have one form, `{"error": {"code", "message", "hint", "request_id"}}`. Routes that write need the
header `Authorization: Bearer TOKEN`; so do routes that read, unless the server listens on its own
machine only."""


def describe_route(
    answer: type[BaseModel] | str,
    *,
    body: type[BaseModel] | dict[str, Any] | None = None,
    takes_key: bool = False,
    more: tuple[int, ...] = (),
    media: str = "application/json",
) -> dict[str, Any]:
    """Make the arguments of a route: what it takes, what it answers (a model, or words), how it may fail.

    A route that takes a key takes a body, too.
    """
    said = answer if isinstance(answer, str) else (answer.__doc__ or "").strip()
    schema: dict[str, Any] = (
        {} if isinstance(answer, str) else {"$ref": _REFERENCE.format(model=answer.__name__)}
    )
    fine = {"description": said, "content": {media: {"schema": schema}}}
    options: dict[str, Any] = {
        "responses": {200: fine} | {status: _error_answer(status) for status in _error_statuses(more)}
    }
    if media != "application/json":
        options["response_class"] = Response
    if body is not None:
        content = body if isinstance(body, dict) else _json_content(body)
        options["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    if takes_key:
        options["openapi_extra"]["parameters"] = [_KEY_PARAMETER]
    return options


def describe_form(required: tuple[str, ...], **fields: dict[str, Any]) -> dict[str, Any]:
    """Describe a form: its fields, each a string with what its schema says besides; ``image`` is a file."""
    image = {"description": "A picture: JPEG, PNG, WebP, BMP or GIF.", "format": "binary"}
    properties = {name: {"type": "string", **said} for name, said in {"image": image, **fields}.items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    schema["additionalProperties"] = False
    return {"multipart/form-data": {"schema": schema}}


def _json_content(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}


def _error_statuses(more: tuple[int, ...]) -> list[int]:
    return sorted(_ALWAYS | set(more))


def _error_answer(status: int) -> dict[str, Any]:
    codes = ", ".join(f"`{name}`" for name, code in ERROR_CODES.items() if code.status == status)
    content = {"application/json": {"schema": {"$ref": _REFERENCE.format(model="ErrorAnswer")}}}
    return {"description": codes, "content": content}


def install_openapi(app: FastAPI) -> None:
    """Make an application serve this description."""
    app.openapi = lambda: _build_document(app)  # type: ignore[method-assign]


def _build_document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title="crossbyte", version=__version__, description=_DESCRIPTION, routes=app.routes
        )
        components = document.setdefault("components", {})
        components["schemas"] = _build_schemas()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        _mark_permissions(document)
        _spell_none_in_urls(document)
        app.openapi_schema = document
    return app.openapi_schema


def _build_schemas() -> dict[str, Any]:
    requests = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REFERENCE)[1]
    answers = models_json_schema([(model, "serialization") for model in _ANSWERS], ref_template=_REFERENCE)[1]
    return dict(sorted((requests["$defs"] | answers["$defs"]).items()))


def _spell_none_in_urls(document: dict[str, Any]) -> None:
    """Say that a parameter of a URL that may be none is then empty: no URL can say null."""
    empty = {"type": "string", "maxLength": 0}
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                choices = parameter["schema"].get("anyOf", [])
                choices[:] = [empty if each == {"type": "null"} else each for each in choices]


def _mark_permissions(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            level = PERMISSIONS[method.upper(), path]
            operation["x-level"] = level.value
            operation["security"] = {
                Permission.OPEN: [],
                Permission.READ: [{}, {"token": []}],
                Permission.WRITE: [{"token": []}],
            }[level]
