"""One handler: whatever was raised becomes a status and a typed JSON error, and nothing more leaks."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from crossbyte import errors
from crossbyte.service.codes import CODES

__all__ = ["Problem", "Refused", "add_handlers", "problem_of", "request_id_of", "response_of", "told"]

_log = logging.getLogger("crossbyte.service")

# The first class that an error is an instance of counts; the more special ones stand before their bases.
_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (errors.NotFinite, "not_finite"),
    (errors.DuplicateId, "duplicate_id"),
    (errors.UnknownId, "unknown_id"),
    (errors.PayloadTooLarge, "payload_too_large"),
    (errors.PictureError, "bad_picture"),
    (errors.NoEncoder, "no_encoder"),
    (errors.NotCalibrated, "not_calibrated"),
    (errors.UnknownField, "unknown_field"),
    (errors.FilterError, "bad_filter"),
    (errors.WrongEncoder, "no_encoder"),
    (errors.MissingExtra, "no_encoder"),
    (errors.InvalidInput, "invalid_input"),
    (errors.ClusterError, "shard_lost"),
    (errors.IndexBusy, "index_busy"),
    (errors.StaleReader, "index_busy"),
    (errors.StorageFull, "storage_full"),
    (errors.ReadOnlyIndex, "read_only"),
    (errors.ClosedIndex, "shutting_down"),
    (errors.IndexFileError, "storage_failed"),
    (errors.ModelFileError, "storage_failed"),
)
# Their messages are about what the caller sent; those of all others may name files of this machine.
_SHOWN = (
    errors.NotFinite,
    errors.DuplicateId,
    errors.UnknownId,
    errors.PayloadTooLarge,
    errors.NotCalibrated,
    errors.FilterError,
    errors.PictureError,
)
_HTTP = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}
_HINTS = {
    "unauthorized": "send the header Authorization: Bearer TOKEN",
    "read_only": "start the server with a token to write",
    "no_encoder": "send features, or ask the operator to start the server with the encoders of this index",
    "storage_failed": "the operator finds more in the server's log",
    "internal": "tell the operator the request id",
    "shard_lost": "ask again in a few seconds: a lost part is started anew by itself",
    "duplicate_id": 'send "upsert": true to replace it',
    "not_found": "the routes are in /openapi.json",
}
_PYTHON = re.compile(r"\w\(")  # what to call in Python is no help to those who call over HTTP
_RETRY_SECONDS = {"shard_lost": 5}  # a part of an index has to be read from the disk again
RETRY_SECONDS = 1


class Problem(NamedTuple):
    """An error as the caller sees it."""

    code: str
    message: str
    hint: str | None = None

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return CODES[self.code].status

    def to_dict(self, request_id: str) -> dict[str, Any]:
        """Give the body of the answer."""
        hint = self.hint or _HINTS.get(self.code)
        return {"error": {"code": self.code, "message": self.message, "hint": hint, "request_id": request_id}}


class Refused(errors.CrossbyteError):
    """A request that the service itself refuses, with one of its codes."""

    def __init__(self, code: str, message: str | None = None, hint: str | None = None) -> None:
        super().__init__(message or CODES[code].meaning)
        self.problem = Problem(code, str(self), hint)


def problem_of(error: BaseException, path: str = "") -> Problem:
    """Say what a caller may know of an error: not the path of the index, with which some messages begin."""
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, RequestValidationError | ValidationError):
        return _invalid(error.errors())
    if isinstance(error, HTTPException):
        code = _HTTP.get(error.status_code, "internal" if error.status_code >= 500 else "invalid_request")
        return Problem(code, CODES[code].meaning)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "internal")
    if isinstance(error, _SHOWN) or type(error) is errors.InvalidInput:
        return _said(code, _without(path, str(error)))
    return Problem(code, CODES[code].meaning)


def _without(path: str, text: str) -> str:
    """Leave out the path that a message begins with: that of the index, or of a shard inside of it."""
    if path and text.startswith((f"{path}: ", f"{path}{os.sep}")):
        return text.partition(": ")[2]
    return text


def _said(code: str, text: str) -> Problem:
    """Split what happened from what to do, as our messages do with a semicolon."""
    first, mark, rest = text.rpartition("; ")
    if not mark:
        return Problem(code, text)
    return Problem(code, first, None if _PYTHON.search(rest) else rest)


def _invalid(found: Sequence[Mapping[str, Any]]) -> Problem:
    """Name the first field that is wrong; a passed limit has a code of its own."""
    first = next((each for each in found if each["type"] in CODES), found[0])
    code = first["type"] if first["type"] in CODES else "invalid_request"
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    message = f"{place}: {first['msg']}" if place else str(first["msg"])
    return Problem(code, message[:500])


def response_of(problem: Problem, request_id: str) -> Response:
    """Spell a problem as an HTTP answer."""
    headers = {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 503:
        headers["Retry-After"] = str(_RETRY_SECONDS.get(problem.code, RETRY_SECONDS))
    if problem.status == 408:  # what comes later would be the rest of a request that was given up
        headers["Connection"] = "close"
    body = json.dumps(problem.to_dict(request_id), allow_nan=False)
    return Response(body, problem.status, headers, "application/json")


def request_id_of(scope: Scope) -> str:
    """Give the id that this request got when it came in."""
    return str(scope.get("state", {}).get("request_id", ""))


def told(error: Exception, request_id: str, path: str) -> Problem:
    """Say what a caller may know of an error; a fault of our own goes to the log in full."""
    problem = problem_of(error, path)
    if problem.status == 500:
        _log.error("request %s failed", request_id, exc_info=error)
    return problem


def _handle(request: Request, error: Exception) -> Response:
    request_id = request_id_of(request.scope)
    problem = told(error, request_id, request.app.state.service.gallery.index.path)
    response = response_of(problem, request_id)
    if isinstance(error, HTTPException) and error.headers and "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def add_handlers(app: FastAPI) -> None:
    """Make the one handler answer for every error."""
    for kind in (errors.CrossbyteError, HTTPException, RequestValidationError, ValidationError):
        app.add_exception_handler(kind, _handle)
