"""Parse bodies of requests: strict JSON of limited depth, and forms of few parts."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from crossbyte._json import parse_json
from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.settings import LIMITS

Model = TypeVar("Model", bound=BaseModel)

# A string, or a bracket: what is inside strings does not count. A string without an end goes to the end, and
# nothing is tried twice: else a few kilobytes of open strings would keep the whole process busy for hours.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class FormField(NamedTuple):
    """One field of a form."""

    name: str
    data: bytes

    @property
    def text(self) -> str:
        """Its data as text."""
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise RequestRefused("bad_multipart", f"{self.name}: expected text in UTF-8") from error


def parse_body(model: type[Model], request: Request, body: bytes) -> Model:
    """Parse a JSON body into a model, without conversions: a number in quotes is no number."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused(
            "unsupported_media_type", "expected a body of application/json", "set Content-Type"
        )
    return model.model_validate(parse_json_body(body), strict=True)


def parse_json_body(body: bytes) -> Any:
    """Parse JSON; refuse too many values or levels, repeated keys, and NaN."""
    if sum(map(body.count, (b",", b"[", b"{", b'"'))) > LIMITS.json_values:
        message = f"expected at most {LIMITS.json_values} commas, brackets and quotes in JSON"
        raise RequestRefused("json_too_large", message, "send less at once")
    if _is_too_deep(body):
        raise RequestRefused("json_too_deep", f"expected at most {LIMITS.json_depth} levels of JSON")
    try:
        value = parse_json(body.decode())
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()  # half of a pair of surrogates is no character
        return value
    except (ValueError, RecursionError) as error:
        reason = "no valid Unicode" if isinstance(error, UnicodeError) else str(error)[:200]
        raise RequestRefused("bad_json", f"expected a body in JSON: {reason}") from error


def _is_too_deep(body: bytes) -> bool:
    """Tell by counting brackets whether JSON has too many levels, before anything is parsed."""
    if body.count(b"[") + body.count(b"{") <= LIMITS.json_depth:
        return False
    depth = 0
    for token in _TOKENS.finditer(body):
        first = token[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > LIMITS.json_depth:
            return True
    return False


def parse_form(request: Request, body: bytes) -> dict[str, FormField]:
    """Parse a form; every field may come once."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise RequestRefused(
            "unsupported_media_type", "expected a body of multipart/form-data", "send a form"
        )
    collector = _FormCollector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise RequestRefused("bad_multipart", "expected a whole form, got a broken one") from error
    return collector.fields()


class _FormCollector:
    """Collect the parts that the parser finds."""

    def __init__(self) -> None:
        self._parts: list[tuple[dict[bytes, bytes], bytearray]] = []
        self._name, self._value = bytearray(), bytearray()
        self._ended = False

    def callbacks(self) -> dict[str, Any]:
        """Return the functions that the parser calls."""
        return {
            "on_part_begin": self._begin_part,
            "on_part_data": lambda data, start, end: self._parts[-1][1].extend(data[start:end]),
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._add_header,
            "on_end": self._end,
        }

    def _begin_part(self) -> None:
        if len(self._parts) == LIMITS.parts:
            raise RequestRefused("too_many_parts", f"expected at most {LIMITS.parts} parts in a form")
        self._parts.append(({}, bytearray()))

    def _add_header(self) -> None:
        self._parts[-1][0][bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _end(self) -> None:
        self._ended = True

    def fields(self) -> dict[str, FormField]:
        """Return all parts by their names."""
        if not self._ended:
            raise RequestRefused("bad_multipart", "expected a whole form, got a part of one")
        found: dict[str, FormField] = {}
        for headers, data in self._parts:
            _, options = parse_options_header(headers.get(b"content-disposition", b""))
            name = options.get(b"name", b"").decode(errors="replace")
            if name in found:
                raise RequestRefused("bad_multipart", "expected every field of a form once")
            found[name] = FormField(name, bytes(data))
        return found
