"""Write the reference of the HTTP interface from OpenAPI: ``python -m crossbyte.service.reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from crossbyte.service.app import include_routes
from crossbyte.service.error_codes import ERROR_CODES
from crossbyte.service.openapi import install_openapi

_HEAD = """# The HTTP interface

Made from OpenAPI (`GET /openapi.json`) by `python -m crossbyte.service.reference`; do not edit. How to serve
safely, and what each limit is, is in [service.md](service.md).

Levels: **open** to anybody; **read** is free for callers on the server's own machine, others send
`Authorization: Bearer TOKEN`; **write** always needs the token, and a server without one answers `read_only`.

Every error has the form
`{"error": {"code": "…", "message": "…", "hint": "…" or null, "request_id": "…"}}`.
"""


def write_reference() -> str:
    """Write the whole page in Markdown."""
    app = FastAPI(docs_url=None, redoc_url=None)
    include_routes(app)
    install_openapi(app)
    document = app.openapi()
    parts = [_HEAD, "## Routes\n", *_routes(document), "## What goes in and out\n", *_models(document)]
    return "\n".join([*parts, "## Error codes\n", *_error_table()]).rstrip() + "\n"


def _routes(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"### {method.upper()} {path}\n"
            yield f"{operation['summary']}. Level: {operation['x-level']}.\n"
            yield from _parameters(operation.get("parameters", []))
            yield from _body(operation.get("requestBody"))
            yield from _answer(operation["responses"])


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if parameters:
        yield "| parameter | type | |\n|---|---|---|"
        for each in parameters:
            said = _describe_value(
                each["schema"] | ({"description": each["description"]} if "description" in each else {})
            )
            name = f"**`{each['name']}`**" if each.get("required") else f"`{each['name']}`"
            yield f"| {name} | {_name_type(each['schema'])} | {said} |"
        yield ""


def _body(body: dict[str, Any] | None) -> Iterator[str]:
    for media, content in (body or {}).get("content", {}).items():
        if "$ref" in content["schema"]:
            yield f"Body: {_name_type(content['schema'])}.\n"
        else:
            yield f"Body: `{media}` with these fields.\n"
            yield from _fields(content["schema"])


def _answer(responses: dict[str, Any]) -> Iterator[str]:
    fine = responses["200"]
    for media, content in fine.get("content", {}).items():
        kind = _name_type(content["schema"]) if content.get("schema") else fine["description"].rstrip(".")
        yield f"Answer: {kind} (`{media}`).\n"


def _models(document: dict[str, Any]) -> Iterator[str]:
    for name, schema in document["components"]["schemas"].items():
        yield f"### {name}\n"
        yield f"{schema.get('description', '').strip()}\n"
        yield from _fields(schema)


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", [])
    yield "| field | type | |\n|---|---|---|"
    for name, each in schema.get("properties", {}).items():
        shown = f"**`{name}`**" if name in required else f"`{name}`"
        yield f"| {shown} | {_name_type(each)} | {_describe_value(each)} |"
    yield ""


def _name_type(schema: dict[str, Any]) -> str:
    """Name a type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_name_type(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f'`"{value}"`' for value in schema.get("enum", [schema.get("const")]))
    kind = str(schema.get("type", "any"))
    if schema.get("maxLength") == 0:
        return "empty"
    if kind == "array":
        return f"list of {_name_type(schema.get('items', {}))}"
    return {"object": "object", "any": "any JSON"}.get(kind, kind)


def _describe_value(schema: dict[str, Any]) -> str:
    """Describe a value: what it is for, its bounds, its default."""
    # For a value that may be null, the description of what else it may be.
    whole = next((each for each in schema.get("anyOf", []) if each.get("type") != "null"), {}) | schema
    parts, bounds = [whole.get("description", "")], ", ".join(_describe_bounds(whole))
    parts += [f"{bounds[0].upper()}{bounds[1:]}."] if bounds else []
    if schema.get("default") is not None:
        parts.append(f"Default: {str(schema['default']).lower()}.")
    return " ".join(part for part in parts if part).replace("|", "\\|").replace("\n", " ")


def _describe_bounds(schema: dict[str, Any]) -> list[str]:
    """Describe the bounds of a value."""
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "below {}",
        "maxLength": "at most {} characters",
        "minItems": "at least {}",
        "maxItems": "at most {}",
    }
    return [text.format(schema[name]) for name, text in words.items() if name in schema]


def _error_table() -> Iterator[str]:
    yield "| code | status | |\n|---|---|---|"
    for name, code in ERROR_CODES.items():
        yield f"| `{name}` | {code.status} | {code.meaning} |"


if __name__ == "__main__":
    sys.stdout.write(write_reference())
