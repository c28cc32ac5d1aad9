"""List every error code of the service, and turn exceptions into answers with one of them.

One handler answers with a status and a typed JSON error; nothing else of the exception leaves the server.
"""

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
from crossbyte.service.permissions import methods_of


class ErrorCode(NamedTuple):
    """One error: its HTTP status, and what it means in plain words."""

    status: int
    meaning: str


ERROR_CODES: dict[str, ErrorCode] = {
    # Who calls, and from where
    "unauthorized": ErrorCode(401, "The token is missing or wrong."),
    "read_only": ErrorCode(403, "This server does not write: it has no token, or was started read-only."),
    "foreign_origin": ErrorCode(403, "A page of another site made this call."),
    "unknown_host": ErrorCode(421, "The server does not go by this name."),
    # What was asked
    "not_found": ErrorCode(404, "There is no such route."),
    "method_not_allowed": ErrorCode(405, "The route does not take this method."),
    "invalid_request": ErrorCode(422, "A field is missing, unknown, or not of its type."),
    "invalid_input": ErrorCode(422, "The index refuses a value: features of a wrong width, for example."),
    "not_finite": ErrorCode(422, "NaN or infinity where a number was expected."),
    "empty_text": ErrorCode(422, "The query has no characters."),
    "bad_filter": ErrorCode(422, "The filter does not parse."),
    "unknown_field": ErrorCode(422, "The filter names a field that no document has."),
    "not_calibrated": ErrorCode(422, "A probability was asked of a model without one."),
    "no_encoder": ErrorCode(422, "The index holds features, and nothing at hand encodes words or pictures."),
    "unknown_id": ErrorCode(404, "No document has this id."),
    "duplicate_id": ErrorCode(409, "A document has this id already; upsert replaces it."),
    "key_reused": ErrorCode(422, "The Idempotency-Key came with another request before."),
    "no_thumbnail": ErrorCode(404, "The document has no picture to show."),
    "not_measured": ErrorCode(404, "The model was never calibrated, so there is no report."),
    "not_audited": ErrorCode(404, "No audit is kept with this index."),
    "bad_picture": ErrorCode(422, "The upload is no picture that can be read, or it is refused."),
    # How it was asked
    "bad_json": ErrorCode(400, "The body is not JSON: broken, a key twice, or NaN."),
    "bad_multipart": ErrorCode(400, "The body is not multipart/form-data, or a field of it is missing."),
    "ambiguous_length": ErrorCode(400, "The head gives the length of the body in two ways."),
    "unexpected_body": ErrorCode(400, "Only POST takes a body."),
    "unsupported_media_type": ErrorCode(415, "The route takes another kind of body."),
    # How much was asked
    "url_too_long": ErrorCode(414, "The path and its query are too long."),
    "headers_too_large": ErrorCode(431, "The headers are too large."),
    "body_too_large": ErrorCode(413, "The body is too large."),
    "too_many_chunks": ErrorCode(413, "The body comes in too many small chunks."),
    "picture_too_large": ErrorCode(413, "The picture has too many bytes."),
    "json_too_deep": ErrorCode(422, "The JSON has too many levels."),
    "json_too_large": ErrorCode(422, "The JSON has too many values."),
    "too_many_parts": ErrorCode(422, "The multipart body has too many parts."),
    "text_too_long": ErrorCode(422, "The query has too many characters."),
    "filter_too_long": ErrorCode(422, "The filter has too many characters."),
    "filter_too_many_terms": ErrorCode(422, "The filter has too many conditions."),
    "too_many_features": ErrorCode(422, "A vector has too many numbers."),
    "k_too_large": ErrorCode(422, "More hits than a query may ask for."),
    "batch_too_large": ErrorCode(422, "More queries than a batch may have."),
    "results_too_large": ErrorCode(422, "More hits than a batch may ask for in all its queries."),
    "page_too_large": ErrorCode(422, "More documents than a page may list."),
    "too_many_documents": ErrorCode(422, "More documents or ids than one call may have."),
    "payload_too_large": ErrorCode(422, "A payload has too many bytes."),
    "too_many_fields": ErrorCode(422, "The index would have too many payload fields."),
    # Whether the server can
    "request_timeout": ErrorCode(408, "The request took too long to arrive."),
    "too_busy": ErrorCode(503, "Too many requests at the same time; Retry-After says when to come back."),
    "index_busy": ErrorCode(503, "Another process holds the file; Retry-After says when to come back."),
    "shard_lost": ErrorCode(
        503, "A part of the index that is needed cannot be reached; Retry-After says when to ask."
    ),
    "index_replaced": ErrorCode(503, "The file was replaced or removed since the start; restart the server."),
    "shutting_down": ErrorCode(503, "The server is stopping."),
    "timed_out": ErrorCode(504, "The answer took too long; nothing was written."),
    "storage_full": ErrorCode(507, "The disk is full; the commit that failed has changed nothing."),
    "storage_failed": ErrorCode(500, "The file could not be read or written; the operator should look."),
    "internal": ErrorCode(500, "A fault of the server; its log has the request id."),
}


_log = logging.getLogger("crossbyte.service")

# The first class that an error is an instance of counts; the more special ones stand before their bases.
_CODE_OF_ERROR: tuple[tuple[type[BaseException], str], ...] = (
    (errors.NotFinite, "not_finite"),
    (errors.DuplicateId, "duplicate_id"),
    (errors.UnknownId, "unknown_id"),
    (errors.PayloadTooLarge, "payload_too_large"),
    (errors.TooManyFields, "too_many_fields"),
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
_SAFE_TO_SHOW = (
    errors.NotFinite,
    errors.DuplicateId,
    errors.UnknownId,
    errors.PayloadTooLarge,
    errors.TooManyFields,
    errors.NotCalibrated,
    errors.FilterError,
    errors.PictureError,
)
_CODE_OF_STATUS = {
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
}
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
_PYTHON_CALL = re.compile(r"\w\(")  # what to call in Python is no help to those who call over HTTP
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
        return ERROR_CODES[self.code].status

    def to_dict(self, request_id: str) -> dict[str, Any]:
        """Return the body of the answer."""
        hint = self.hint or _HINTS.get(self.code)
        return {"error": {"code": self.code, "message": self.message, "hint": hint, "request_id": request_id}}


class RequestRefused(errors.CrossbyteError):
    """A request that the service itself refuses, with one of its codes."""

    def __init__(self, code: str, message: str | None = None, hint: str | None = None) -> None:
        super().__init__(message or ERROR_CODES[code].meaning)
        self.problem = Problem(code, str(self), hint)


def problem_for(error: BaseException, path: str = "") -> Problem:
    """Turn an error into what the caller may know: not the path of the index, which begins some messages."""
    if isinstance(error, RequestRefused):
        return error.problem
    if isinstance(error, RequestValidationError | ValidationError):
        return _validation_problem(error.errors())
    if isinstance(error, HTTPException):
        code = _CODE_OF_STATUS.get(
            error.status_code, "internal" if error.status_code >= 500 else "invalid_request"
        )
        return Problem(code, ERROR_CODES[code].meaning)
    code = next((code for kind, code in _CODE_OF_ERROR if isinstance(error, kind)), "internal")
    if isinstance(error, _SAFE_TO_SHOW) or type(error) is errors.InvalidInput:
        return _split_hint(code, _strip_path(path, str(error)))
    return Problem(code, ERROR_CODES[code].meaning)


def _strip_path(path: str, text: str) -> str:
    """Drop the path that a message begins with: that of the index, or of a shard in it."""
    if path and text.startswith((f"{path}: ", f"{path}{os.sep}")):
        return text.partition(": ")[2]
    return text


def _split_hint(code: str, text: str) -> Problem:
    """Split what happened from what to do, as our messages do with a semicolon."""
    first, mark, rest = text.rpartition("; ")
    if not mark:
        return Problem(code, text)
    return Problem(code, first, None if _PYTHON_CALL.search(rest) else rest)


def _validation_problem(found: Sequence[Mapping[str, Any]]) -> Problem:
    """Name the first field that is wrong; a passed limit has a code of its own."""
    first = next((each for each in found if each["type"] in ERROR_CODES), found[0])
    code = first["type"] if first["type"] in ERROR_CODES else "invalid_request"
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    message = f"{place}: {first['msg']}" if place else str(first["msg"])
    return Problem(code, message[:500])


def error_response(problem: Problem, request_id: str) -> Response:
    """Turn a problem into an HTTP answer."""
    headers = {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 503:
        headers["Retry-After"] = str(_RETRY_SECONDS.get(problem.code, RETRY_SECONDS))
    if problem.status == 408:  # what comes later would be the rest of a request that was given up
        headers["Connection"] = "close"
    body = json.dumps(problem.to_dict(request_id), allow_nan=False)
    return Response(body, problem.status, headers, "application/json")


def get_request_id(scope: Scope) -> str:
    """Return the id that this request got when it came in."""
    return str(scope.get("state", {}).get("request_id", ""))


def describe_error(error: Exception, request_id: str, path: str) -> Problem:
    """Turn an error into what the caller may know; log a fault of our own in full."""
    problem = problem_for(error, path)
    if problem.status == 500:
        _log.error("request %s failed", request_id, exc_info=error)
    return problem


def answer_error(request: Request, error: Exception) -> Response:
    """Answer with the error of a request, as the caller may know it."""
    request_id = get_request_id(request.scope)
    problem = describe_error(error, request_id, request.app.state.service.gallery.index.path)
    response = error_response(problem, request_id)
    if problem.status == 405:
        response.headers["Allow"] = ", ".join(methods_of(request.scope["path"]))
    return response


HANDLED = (errors.CrossbyteError, HTTPException, RequestValidationError, ValidationError)
"""Errors that have an answer of their own; all others are faults of the server."""


def add_handlers(app: FastAPI) -> None:
    """Install the one handler for every error."""
    for kind in HANDLED:
        app.add_exception_handler(kind, answer_error)
