"""What goes in and what comes out, as OpenAPI shows it. Requests are closed: an unknown field is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from crossbyte.service.settings import LIMITS

__all__ = [
    "AddAnswer",
    "AuditAnswer",
    "Batch",
    "Browse",
    "DeleteAnswer",
    "Deletion",
    "DocumentAnswer",
    "DocumentsAnswer",
    "ErrorAnswer",
    "Explain",
    "ExplainOptions",
    "FacetsAnswer",
    "FacetsQuery",
    "HealthAnswer",
    "IdQuery",
    "InfoAnswer",
    "NewDocuments",
    "Options",
    "Page",
    "Search",
    "SearchAnswer",
    "TextSearch",
]

Target = Literal["image", "text", "document"]
_INT64 = 2**63


def _most(code: str, limit: int, what: str) -> Any:
    """Refuse what is longer than a limit, with the limit's own code; OpenAPI shows it too."""

    def check(value: Any) -> Any:
        size = value if isinstance(value, int) else len(value)
        if size > limit:
            message = f"expected at most {limit} {what}, got {size}"
            raise PydanticCustomError(code, "{message}", {"message": message})
        return value

    return AfterValidator(check)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("empty_text", "expected some words, got none; say what to look for")
    return text


def _given(value: Any) -> Any:
    return None if value == "" else value


Id = Annotated[
    Annotated[int, Field(ge=-_INT64, lt=_INT64, strict=True)] | Annotated[str, Field(max_length=1024)],
    Field(description='A document\'s id; 1 and "1" are different.', examples=["beach/012.jpg"]),
]
WrittenId = Annotated[
    str,
    Field(
        max_length=1024,
        description="A document's id: the text itself, or else the number it spells.",
        examples=["beach/012.jpg"],
    ),
]
Text = Annotated[
    str,
    _most("text_too_long", LIMITS.text_chars, "characters"),
    AfterValidator(_not_blank),
    Field(
        description="A query in words.",
        examples=["two dogs on a beach"],
        json_schema_extra={"minLength": 1, "maxLength": LIMITS.text_chars, "pattern": "\\S"},
    ),
]
Caption = Annotated[
    str,
    _most("text_too_long", LIMITS.text_chars, "characters"),
    Field(description="Its words.", json_schema_extra={"maxLength": LIMITS.text_chars}),
]
Where = Annotated[
    str,
    _most("filter_too_long", LIMITS.filter_chars, "characters"),
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
    _most("too_many_features", LIMITS.features, "numbers"),
]
K = Annotated[
    int,
    Field(ge=1, description="How many hits at most.", json_schema_extra={"maximum": LIMITS.k}),
    _most("k_too_large", LIMITS.k, "hits"),
]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Prior = Annotated[float, Field(gt=0.0, le=1.0)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


# What is asked


class Options(_Closed):
    """What a search may be told besides its query."""

    target: Annotated[
        Annotated[Target | None, BeforeValidator(_given)],
        Field(description="What is searched; null for images by words, and texts by pictures."),
    ] = None
    k: K = 10
    where: Annotated[Where | None, BeforeValidator(_given)] = None
    min_probability: Annotated[
        Probability | None,
        BeforeValidator(_given),
        Field(description="Leave out hits that are less probably right."),
    ] = None
    max_distance: Annotated[
        float | None, BeforeValidator(_given), Field(description="Leave out what is farther.")
    ] = None
    distinct: Annotated[
        Literal["group"] | None, BeforeValidator(_given), Field(description="Count every group once.")
    ] = None
    prior: Annotated[
        Prior | None,
        BeforeValidator(_given),
        Field(description="Probability of any one document before looking; null for one in all."),
    ] = None
    match_threshold: Annotated[
        Probability, Field(description="no_match says that even the best hit is less probable than this.")
    ] = 0.5
    payloads: Annotated[bool, Field(description="Whether to read payloads.")] = True


class TextSearch(Options):
    """A query in words, as a URL spells it."""

    text: Text


_QUERIES = ("text", "image_features", "text_features", "like")
_ONE: dict[str, Any] = {
    "oneOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in _QUERIES]
}


class _Query(_Closed):
    text: Text | None = None
    image_features: Features | None = None
    text_features: Features | None = None
    like: Annotated[Id | None, Field(description="Ask with this document itself.")] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in _QUERIES if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"expected one of {', '.join(_QUERIES)}, got {' and '.join(given) or 'none'}"
            raise PydanticCustomError("invalid_request", "{message}", {"message": message})
        return self


class Search(Options, _Query):
    """One query: words, features, or a document; and what else to mind."""

    model_config = ConfigDict(
        json_schema_extra=_ONE
        | {"example": {"text": "two dogs on a beach", "k": 20, "where": "year >= 2020"}}
    )


class Batch(_Closed):
    """Many queries, answered in their order."""

    queries: Annotated[
        list[Search],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.batch}),
        _most("batch_too_large", LIMITS.batch, "queries"),
    ]

    @model_validator(mode="after")
    def _few_results(self) -> Self:
        total = sum(query.k for query in self.queries)
        if total > LIMITS.results:
            message = f"queries: expected at most {LIMITS.results} hits in all, got {total}; ask for fewer"
            raise PydanticCustomError("results_too_large", "{message}", {"message": message})
        return self


class Explain(_Query):
    """A document, and the query that it shall be explained for."""

    model_config = ConfigDict(
        json_schema_extra=_ONE | {"example": {"id": "beach/012.jpg", "text": "two dogs on a beach"}}
    )
    id: Id
    target: Target | None = None


class IdQuery(_Closed):
    """Which document."""

    id: WrittenId


class ExplainOptions(IdQuery):
    """Which document, and what of it was searched."""

    target: Annotated[Target | None, BeforeValidator(_given)] = None


class Page(_Closed):
    """How many."""

    limit: Annotated[
        int,
        Field(ge=1, description="How many at most.", json_schema_extra={"maximum": LIMITS.page}),
        _most("page_too_large", LIMITS.page, "documents"),
    ] = 50


class Browse(Page):
    """Which documents, and from where on."""

    where: Annotated[Where | None, BeforeValidator(_given)] = None
    after: Annotated[
        Annotated[int, Field(ge=-1, lt=_INT64)] | None,
        BeforeValidator(_given),
        Field(description='The number "next" of the page before.'),
    ] = None


class FacetsQuery(_Closed):
    """Which fields, of which documents."""

    where: Annotated[Where | None, BeforeValidator(_given)] = None
    fields: Annotated[
        Annotated[str, Field(max_length=4096)] | None,
        BeforeValidator(_given),
        Field(description="Names of fields with commas between; null for those worth choosing by."),
    ] = None


class NewDocument(_Closed):
    """A document to add: words, features, or both sides."""

    id: Id
    text: Caption | None = None
    image_features: Features | None = None
    text_features: Features | None = None
    payload: Annotated[dict[str, Any] | None, Field(description="Any JSON object.")] = None
    group: Id | None = None


class NewDocuments(_Closed):
    """Documents to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"documents": [{"id": "n1", "text": "a red kite", "payload": {"year": 2024}}]}
        }
    )
    documents: Annotated[
        list[NewDocument],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.documents}),
        _most("too_many_documents", LIMITS.documents, "documents"),
    ]
    upsert: Annotated[bool, Field(description="Replace documents of the same ids.")] = False


class Deletion(_Closed):
    """Documents to delete."""

    ids: Annotated[
        list[Id],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.documents}),
        _most("too_many_documents", LIMITS.documents, "ids"),
    ]
    missing_ok: Annotated[bool, Field(description="Do not mind ids that are not there.")] = False


# What is answered


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
    probability: float | None
    payload: dict[str, Any] | None
    thumbnail: str | None


class SearchAnswer(_Answer):
    """What one committed generation of the index answers, nearest first."""

    generation: int
    target: Target
    no_match: bool | None
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
    bytes_per_item: int
    read_only: bool
    calibrated: bool
    thumbnails: bool
    encoders: EncodersAnswer
    fields: dict[str, list[str]]
    limits: LimitsAnswer


class AuditAnswer(BaseModel):
    """Pairs that looked wrong when the index was made, the most surprising first."""

    model_config = ConfigDict(extra="allow")
    rows: list[dict[str, Any]]


class HealthAnswer(_Answer):
    """Whether the server runs."""

    status: Literal["ok", "ready"]
