"""Every error code that the service answers with, its status, and what it means."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CODES", "Code"]


class Code(NamedTuple):
    """One error: its HTTP status, and what it means in plain words."""

    status: int
    meaning: str


CODES: dict[str, Code] = {
    # Who calls, and from where
    "unauthorized": Code(401, "The token is missing or wrong."),
    "read_only": Code(403, "This server does not write: it has no token, or was started read-only."),
    "foreign_origin": Code(403, "A page of another site made this call."),
    "unknown_host": Code(421, "The server does not go by this name."),
    # What was asked
    "not_found": Code(404, "There is no such route."),
    "method_not_allowed": Code(405, "The route does not take this method."),
    "invalid_request": Code(422, "A field is missing, unknown, or not of its type."),
    "invalid_input": Code(422, "The index refuses a value: features of a wrong width, for example."),
    "not_finite": Code(422, "NaN or infinity where a number was expected."),
    "empty_text": Code(422, "The query has no characters."),
    "bad_filter": Code(422, "The filter does not parse."),
    "unknown_field": Code(422, "The filter names a field that no document has."),
    "not_calibrated": Code(422, "A probability was asked of a model without one."),
    "no_encoder": Code(422, "The index holds features, and nothing at hand encodes words or pictures."),
    "unknown_id": Code(404, "No document has this id."),
    "duplicate_id": Code(409, "A document has this id already; upsert replaces it."),
    "no_thumbnail": Code(404, "The document has no picture to show."),
    "not_measured": Code(404, "The model was never calibrated, so there is no report."),
    "not_audited": Code(404, "No audit is kept with this index."),
    "bad_picture": Code(422, "The upload is no picture that can be read, or it is refused."),
    # How it was asked
    "bad_json": Code(400, "The body is not JSON: broken, a key twice, or NaN."),
    "bad_multipart": Code(400, "The body is not multipart/form-data, or a field of it is missing."),
    "ambiguous_length": Code(400, "The head gives the length of the body in two ways."),
    "unsupported_media_type": Code(415, "The route takes another kind of body."),
    # How much was asked
    "url_too_long": Code(414, "The path and its query are too long."),
    "headers_too_large": Code(431, "The headers are too large."),
    "body_too_large": Code(413, "The body is too large."),
    "picture_too_large": Code(413, "The picture has too many bytes."),
    "json_too_deep": Code(422, "The JSON has too many levels."),
    "json_too_large": Code(422, "The JSON has too many values."),
    "too_many_parts": Code(422, "The multipart body has too many parts."),
    "text_too_long": Code(422, "The query has too many characters."),
    "filter_too_long": Code(422, "The filter has too many characters."),
    "filter_too_many_terms": Code(422, "The filter has too many conditions."),
    "too_many_features": Code(422, "A vector has too many numbers."),
    "k_too_large": Code(422, "More hits than a query may ask for."),
    "batch_too_large": Code(422, "More queries than a batch may have."),
    "results_too_large": Code(422, "More hits than a batch may ask for in all its queries."),
    "page_too_large": Code(422, "More documents than a page may list."),
    "too_many_documents": Code(422, "More documents or ids than one call may have."),
    "payload_too_large": Code(422, "A payload has too many bytes."),
    # Whether the server can
    "request_timeout": Code(408, "The request took too long to arrive."),
    "too_busy": Code(503, "Too many requests at the same time; Retry-After says when to come back."),
    "index_busy": Code(503, "Another process holds the file; Retry-After says when to come back."),
    "shard_lost": Code(
        503, "A part of the index that is needed cannot be reached; Retry-After says when to ask."
    ),
    "index_replaced": Code(503, "The file was replaced or removed since the start; restart the server."),
    "shutting_down": Code(503, "The server is stopping."),
    "timed_out": Code(504, "The answer took too long."),
    "storage_full": Code(507, "The disk is full; nothing was changed."),
    "storage_failed": Code(500, "The file could not be read or written; the operator should look."),
    "internal": Code(500, "A fault of the server; its log has the request id."),
}
