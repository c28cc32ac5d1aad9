"""Parse bodies of requests: strict JSON of limited depth, and forms of few parts."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel
from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from crossbyte._json import parse_json
from crossbyte.service.body_budget import FREE_BYTES, Reservation
from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.settings import LIMITS
from crossbyte.service.thread_pools import ThreadPools

_VALUE_BYTES = 80  # of memory for each comma, bracket and quote of JSON, at most
Model = TypeVar("Model", bound=BaseModel)

# What is inside strings does not count. A string without an end goes to the end, and nothing is tried twice:
# else a few kilobytes of open strings would keep the whole process busy for hours.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


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


def take_body(request: Request) -> bytes:
    """Take the body that the middleware has read; once, so that it lives no longer than who takes it."""
    body: bytes = request.scope["state"].pop("body")
    return body


async def parse_in_thread(model: type[Model], request: Request, body: bytes, pools: ThreadPools) -> Model:
    """Parse a JSON body in a thread: large ones one after the other."""
    pool = pools.reading if len(body) <= FREE_BYTES else pools.parsing
    return await pool.run(parse_body, model, request, body)


def parse_body(model: type[Model], request: Request, body: bytes) -> Model:
    """Parse a JSON body into a model, without conversions: a number in quotes is no number."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused(
            "unsupported_media_type", "expected a body of application/json", "set Content-Type"
        )
    return model.model_validate(parse_json_body(body, get_reservation(request)), strict=True)


def get_reservation(request: Request) -> Reservation:
    """Return what the body of a request has taken of the budget."""
    reservation: Reservation = request.scope["state"]["reservation"]
    return reservation


def parse_json_body(body: bytes, reservation: Reservation | None = None) -> Any:
    """Parse JSON; refuse too many values or levels, repeated keys, and NaN."""
    n_values = sum(map(body.count, (b",", b"[", b"{", b'"')))
    if n_values > LIMITS.json_values:
        message = f"expected at most {LIMITS.json_values} commas, brackets and quotes in JSON"
        raise RequestRefused("json_too_large", message, "send less at once")
    if _is_too_deep(body):
        raise RequestRefused("json_too_deep", f"expected at most {LIMITS.json_depth} levels of JSON")
    if body.count(b"[") + body.count(b"{") > LIMITS.json_containers:
        message = f"expected at most {LIMITS.json_containers} lists and objects in JSON"
        raise RequestRefused("json_too_large", message, "send less at once")
    if reservation is not None:
        reservation.grow(len(body) * (1 if body.isascii() else 3) + n_values * _VALUE_BYTES)
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
    brackets = np.frombuffer(_STRINGS.sub(b"", body).translate(None, _NO_BRACKETS), np.uint8)
    opening = (brackets == ord("[")) | (brackets == ord("{"))
    depths = np.cumsum(np.where(opening, np.int8(1), np.int8(-1)), dtype=np.int32)
    return bool(depths.max(initial=0) > LIMITS.json_depth)


def parse_form(request: Request, body: bytes) -> dict[str, FormField]:
    """Parse a form; every field may come once."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise RequestRefused(
            "unsupported_media_type", "expected a body of multipart/form-data", "send a form"
        )
    get_reservation(request).grow(2 * len(body))  # collected, then handed over
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
