"""Define the models of requests and answers, from which OpenAPI is made, and make the JSON of answers.

An unknown field of a request is an error. An answer has no number that is not finite.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from crossbyte.errors import ClusterError
from crossbyte.index.docids import Id
from crossbyte.index.hits import Document, Hits
from crossbyte.index.verdict import FoundBy, Verdict
from crossbyte.service.settings import LIMITS

if TYPE_CHECKING:
    from crossbyte.gallery.gallery import Gallery
    from crossbyte.index.index import BaseIndex

# Types of fields

Target = Literal["image", "text", "document"]
INT64 = 2**63
ID_BYTES = 1024


def at_most(code: str, limit: int, what: str) -> Any:
    """Refuse values above a limit, with the limit's own error code."""

    def check(value: Any) -> Any:
        size = value if isinstance(value, int) else len(value)
        if size > limit:
            message = f"expected at most {limit} {what}, got {size}"
            raise PydanticCustomError(code, "{message}", {"message": message})
        return value

    return AfterValidator(check)


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("empty_text", "expected some words, got none; say what to look for")
    return text


def empty_as_none(value: Any) -> Any:
    """Read an empty value in a URL as none."""
    return None if value == "" else value


def _check_id(value: Any) -> Any:
    """Check an id, and say in one sentence what it is; a union would say why it is not its first type."""
    if type(value) is str and len(value.encode()) <= ID_BYTES:
        return value
    if type(value) is int and -INT64 <= value < INT64:
        return value
    message = f"expected a string of at most {ID_BYTES} bytes, or an integer of 64 bits"
    raise PydanticCustomError("invalid_request", "{message}", {"message": message})


def _check_probe(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check a number of cells, and say in one sentence what is expected."""
    try:
        return check(value)
    except ValidationError as error:
        raise PydanticCustomError(
            "invalid_request", 'expected a number of cells from 1, "all" or null'
        ) from error


DocumentId = Annotated[
    Annotated[int, Field(ge=-INT64, lt=INT64)] | Annotated[str, Field(max_length=ID_BYTES)],
    BeforeValidator(_check_id),
    Field(description='A document\'s id; 1 and "1" are different.', examples=["beach/012.jpg"]),
]
WrittenId = Annotated[
    str,
    Field(
        max_length=ID_BYTES,
        description="A document's id: the text itself, or else the number it spells.",
        examples=["beach/012.jpg"],
    ),
]
Text = Annotated[
    str,
    at_most("text_too_long", LIMITS.text_chars, "characters"),
    AfterValidator(_check_not_blank),
    Field(
        description="A query in words.",
        examples=["two dogs on a beach"],
        json_schema_extra={"minLength": 1, "maxLength": LIMITS.text_chars, "pattern": "\\S"},
    ),
]
Caption = Annotated[
    str,
    at_most("text_too_long", LIMITS.text_chars, "characters"),
    Field(description="Its words.", json_schema_extra={"maxLength": LIMITS.text_chars}),
]
Where = Annotated[
    str,
    at_most("filter_too_long", LIMITS.filter_chars, "characters"),
    Field(
        description=f"A filter over payload fields, of at most {LIMITS.filter_terms} conditions.",
        examples=["year >= 2020 AND kind IN ('photo', 'map')"],
        json_schema_extra={"maxLength": LIMITS.filter_chars},
    ),
]
Features = Annotated[
    list[float],
    Field(
        min_length=1,
        description="One vector, as wide as those that the model was fitted on.",
        json_schema_extra={"maxItems": LIMITS.features},
    ),
    at_most("too_many_features", LIMITS.features, "numbers"),
]
K = Annotated[
    int,
    Field(ge=1, description="How many hits at most.", json_schema_extra={"maximum": LIMITS.k}),
    at_most("k_too_large", LIMITS.k, "hits"),
]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Prior = Annotated[float, Field(gt=0.0, le=1.0)]
Probe = Annotated[Annotated[int, Field(ge=1)] | Literal["all"], WrapValidator(_check_probe)]


# Requests


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SearchOptions(_StrictModel):
    """What a search may be told besides its query."""

    target: Annotated[
        Annotated[Target | None, BeforeValidator(empty_as_none)],
        Field(description="What is searched; null for images by words, and texts by pictures."),
    ] = None
    mode: Annotated[
        Annotated[Literal["both", "vectors", "words"] | None, BeforeValidator(empty_as_none)],
        Field(
            description="What a text is compared by; null for both, where the index keeps words. Of a query "
            "without a text, or an index without words, only vectors and null are accepted."
        ),
    ] = None
    k: K = 10
    where: Annotated[Where | None, BeforeValidator(empty_as_none)] = None
    min_probability: Annotated[
        Probability | None,
        BeforeValidator(empty_as_none),
        Field(description="Leave out hits that are less probably right."),
    ] = None
    max_distance: Annotated[
        float | None, BeforeValidator(empty_as_none), Field(description="Leave out what is farther.")
    ] = None
    distinct: Annotated[
        Literal["group"] | None, BeforeValidator(empty_as_none), Field(description="Count every group once.")
    ] = None
    prior: Annotated[
        Prior | None,
        BeforeValidator(empty_as_none),
        Field(description="Probability of any one document before looking; null for one in all."),
    ] = None
    match_threshold: Annotated[
        Probability,
        Field(description="The verdict is nothing where a match is less probable than this."),
    ] = 0.5
    n_probe: Annotated[
        Probe | None,
        BeforeValidator(empty_as_none),
        Field(
            description="How many cells of an index with cells are searched, or all of it; null for as many "
            "as were found to be enough."
        ),
    ] = None
    payloads: Annotated[bool, Field(description="Whether to read payloads.")] = True


class TextSearch(SearchOptions):
    """A query in words, as a URL spells it."""

    text: Text


_SIDES = ("text", "image_features", "text_features")
_QUERIES = ("text", "image_features", "text_features", "like")


def _require(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Make schemas of objects that have one of these fields, and not null."""
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]


_ONE_QUERY: dict[str, Any] = {"oneOf": _require(_QUERIES)}
_ONE_SIDE: dict[str, Any] = {"anyOf": _require(_SIDES)}


class _QueryFields(_StrictModel):
    text: Text | None = None
    image_features: Features | None = None
    text_features: Features | None = None
    like: Annotated[DocumentId | None, Field(description="Ask with this document itself.")] = None

    @model_validator(mode="after")
    def _check_one_query(self) -> Self:
        given = [name for name in _QUERIES if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"expected one of {', '.join(_QUERIES)}, got {' and '.join(given) or 'none'}"
            raise PydanticCustomError("invalid_request", "{message}", {"message": message})
        return self


class Search(SearchOptions, _QueryFields):
    """One query: words, features, or a document; and what else to mind."""

    model_config = ConfigDict(
        json_schema_extra=_ONE_QUERY
        | {"example": {"text": "two dogs on a beach", "k": 20, "where": "year >= 2020"}}
    )


class Batch(_StrictModel):
    """Many queries, answered in their order."""

    queries: Annotated[
        list[Search],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.batch}),
        at_most("batch_too_large", LIMITS.batch, "queries"),
    ]

    @model_validator(mode="after")
    def _check_total_hits(self) -> Self:
        total = sum(query.k for query in self.queries)
        if total > LIMITS.results:
            message = f"queries: expected at most {LIMITS.results} hits in all, got {total}; ask for fewer"
            raise PydanticCustomError("results_too_large", "{message}", {"message": message})
        return self


class Explain(_QueryFields):
    """A document, and the query that it shall be explained for."""

    model_config = ConfigDict(
        json_schema_extra=_ONE_QUERY | {"example": {"id": "beach/012.jpg", "text": "two dogs on a beach"}}
    )
    id: DocumentId
    target: Target | None = None


class IdQuery(_StrictModel):
    """Which document."""

    id: WrittenId


class ExplainOptions(IdQuery):
    """Which document, and what of it was searched."""

    target: Annotated[Target | None, BeforeValidator(empty_as_none)] = None


class PageQuery(_StrictModel):
    """How many."""

    limit: Annotated[
        int,
        Field(ge=1, description="How many at most.", json_schema_extra={"maximum": LIMITS.page}),
        at_most("page_too_large", LIMITS.page, "documents"),
    ] = 50


class BrowseQuery(PageQuery):
    """Which documents, and from where on."""

    where: Annotated[Where | None, BeforeValidator(empty_as_none)] = None
    after: Annotated[
        Annotated[int, Field(ge=-1, lt=INT64)] | None,
        BeforeValidator(empty_as_none),
        Field(description='The number "next" of the page before.'),
    ] = None


class FacetsQuery(_StrictModel):
    """Which fields, of which documents."""

    where: Annotated[Where | None, BeforeValidator(empty_as_none)] = None
    fields: Annotated[
        Annotated[str, Field(max_length=4096)] | None,
        BeforeValidator(empty_as_none),
        Field(description="Names of fields with commas between; null for those worth choosing by."),
    ] = None


class NewDocument(_StrictModel):
    """A document to add: words, features, or both sides."""

    model_config = ConfigDict(json_schema_extra=_ONE_SIDE)
    id: DocumentId
    text: Annotated[
        Caption | None,
        Field(description="Kept as the first of the payload's captions, unless it is one of them already."),
    ] = None
    image_features: Features | None = None
    text_features: Features | None = None
    payload: Annotated[dict[str, Any] | None, Field(description="Any JSON object.")] = None
    group: DocumentId | None = None


class NewDocuments(_StrictModel):
    """Documents to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"documents": [{"id": "n1", "text": "a red kite", "payload": {"year": 2024}}]}
        }
    )
    documents: Annotated[
        list[NewDocument],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.documents}),
        at_most("too_many_documents", LIMITS.documents, "documents"),
    ]
    upsert: Annotated[bool, Field(description="Replace documents of the same ids.")] = False
    codes: Annotated[
        Literal["document", "sides"] | None,
        Field(
            description="What documents with both halves get: one code, or one for each side; null for what "
            "the index has."
        ),
    ] = None


class Deletion(_StrictModel):
    """Documents to delete."""

    ids: Annotated[
        list[DocumentId],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.documents}),
        at_most("too_many_documents", LIMITS.documents, "ids"),
    ]
    missing_ok: Annotated[bool, Field(description="Do not mind ids that are not there.")] = False


# Answers

_PARTIAL = "Whether a shard of the index is lost for the moment, and what it holds is missing here."


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorBody(_Answer):
    """What went wrong: a code for programs, words for people."""

    code: str
    message: str
    hint: str | None
    request_id: str


class ErrorAnswer(_Answer):
    """Every error has this form."""

    error: ErrorBody


class HitAnswer(_Answer):
    """One found document."""

    id: str | int
    distance: float
    probability: float | None = Field(
        description="That this is the one document the query was written for; null if not calibrated."
    )
    strength: Verdict | None = Field(description="How sure this hit is; none is surer than the verdict.")
    found_by: FoundBy | None = Field(
        description="Words that it has, or its picture; null where vectors were asked alone."
    )
    payload: dict[str, Any] | None
    thumbnail: str | None


class SearchAnswer(_Answer):
    """What one committed generation of the index answers, nearest first."""

    generation: int
    target: Target
    verdict: Verdict | None = Field(
        description="How sure it is that anything here matches: what to tell people; null if not calibrated."
    )
    no_match: bool | None = Field(description="Whether the verdict is nothing; null where it is null.")
    unknown_words: list[str] | None = Field(
        description="Words of the query that no document has; null where vectors were asked alone. Of an "
        "index without words, those that the built-in encoder has not learned; null of another encoder."
    )
    partial: bool = Field(description=_PARTIAL)
    took_ms: float
    hits: list[HitAnswer]


class DocumentAnswer(_Answer):
    """One document."""

    id: str | int
    number: int
    coding: str
    payload: dict[str, Any] | None
    group: str | int | None
    sides: list[Literal["image", "text"]]
    thumbnail: str | None


class DocumentsAnswer(_Answer):
    """A page of documents; ask for what comes after ``next``."""

    generation: int
    documents: list[DocumentAnswer]
    next: int | None


class AddAnswer(_Answer):
    """How many documents were added; they are on the disk."""

    added: int
    generation: int


class DeleteAnswer(_Answer):
    """How many documents were deleted; that is on the disk."""

    deleted: int
    generation: int


class CompactAnswer(_Answer):
    """How many documents there are, and the generation since which the file is small."""

    documents: int
    generation: int


class FacetValue(_Answer):
    """A value, and how many documents have it."""

    value: str | float | bool
    count: int


class FacetAnswer(_Answer):
    """The values of one field."""

    field: str
    kind: Literal["text", "number", "boolean"]
    n_documents: int
    values: list[FacetValue]
    others: int
    low: float | None
    high: float | None


class FacetsAnswer(_Answer):
    """Fields to choose by."""

    generation: int
    facets: list[FacetAnswer]


class EncoderAnswer(_Answer):
    """What makes features of one side."""

    name: str
    dimension: int


class EncodersAnswer(_Answer):
    """What makes features; null where the index was made of features."""

    image: EncoderAnswer | None
    text: EncoderAnswer | None


class LimitsAnswer(_Answer):
    """What a page should know before it asks."""

    k: int
    text_chars: int
    upload_bytes: int
    batch: int


class InfoAnswer(_Answer):
    """What is served."""

    name: str
    version: str
    generation: int
    documents: int
    images: int
    texts: int
    partial: bool = Field(description=_PARTIAL)
    bytes_per_item: int
    format: int = Field(
        description="Of the index file: 2 and 3 may hold one code of both halves, 3 keeps words."
    )
    codes: Literal["document", "sides"] = Field(
        description="What a new document with both halves gets: one code, or one for each side."
    )
    read_only: bool
    calibrated: bool
    thumbnails: bool
    word_fields: list[str] = Field(
        description="Payload fields whose words are searched; none where only vectors are."
    )
    encoders: EncodersAnswer
    fields: dict[str, list[str]]
    limits: LimitsAnswer


class AuditAnswer(BaseModel):
    """Pairs that looked wrong when the index was made, the most surprising first."""

    model_config = ConfigDict(extra="allow")
    rows: list[dict[str, Any]]
    partial: bool = Field(description=_PARTIAL)


class HealthAnswer(_Answer):
    """Whether the server runs; degraded: it answers, but without a shard that is lost."""

    status: Literal["ok", "ready", "degraded"]


# The JSON of answers


def encode_json(value: Any) -> bytes:
    """Write a JSON value; in ASCII, so that no reader has to know its encoding."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON that must not be cached."""
    return bytes_response(encode_json(value), status, headers)


def bytes_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON that is encoded already, and must not be cached."""
    all_headers = {"Cache-Control": "no-store"} | dict(headers or {})
    return Response(body, status, all_headers, "application/json")


@lru_cache(maxsize=10_000)
def thumbnail_url(id: Id, can_have: bool) -> str | None:
    """Return the URL of a document's thumbnail, if it can have one."""
    return f"/v1/thumbnail?id={quote(str(id), safe='')}" if can_have else None


def hits_to_json(
    gallery: Gallery, view: BaseIndex, hits: Hits, payloads: list[dict[str, Any] | None] | None
) -> list[dict[str, Any]]:
    """Convert hits to plain types."""
    sides, thumbnails = read_sides(view, hits), gallery.has_thumbnails
    bodies = payloads or [None] * len(hits)
    return [
        {
            "id": hit.id,
            "distance": hit.distance,
            "probability": hit.probability,
            "strength": hit.strength,
            "found_by": hit.found_by,
            "payload": body,
            "thumbnail": thumbnail_url(hit.id, thumbnails and "image" in own),
        }
        for hit, body, own in zip(hits, bodies, sides, strict=True)
    ]


def find_document(view: BaseIndex, id: Id) -> Document | None:
    """Find a document that an answer mentions; None where it is not there, or on a lost shard."""
    try:
        return view.get(id)
    except ClusterError:
        return None


def read_payloads(view: BaseIndex, hits: Hits) -> list[dict[str, Any] | None]:
    """Read the payloads of hits; while a shard is lost, one by one from the shards that found them."""
    try:
        return view.payloads(hits)
    except ClusterError:
        found = [find_document(view, id) for id in hits.ids]
        return [None if each is None else each.payload for each in found]


def read_sides(view: BaseIndex, hits: Hits) -> list[tuple[str, ...]]:
    """Find the sides of each hit; while a shard is lost, one by one from the shards that found them."""
    try:
        return view.sides(hits)
    except ClusterError:
        found = [find_document(view, id) for id in hits.ids]
        return [() if each is None else each.sides for each in found]


def document_to_json(gallery: Gallery, document: Document) -> dict[str, Any]:
    """Convert a document to plain types."""
    return {
        "id": document.id,
        "number": document.number,
        "coding": document.coding,
        "payload": document.payload,
        "group": document.group,
        "sides": list(document.sides),
        "thumbnail": thumbnail_url(document.id, gallery.has_thumbnails and "image" in document.sides),
    }
