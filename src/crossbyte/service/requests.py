"""What may be asked, as OpenAPI shows it. Requests are closed: an unknown field is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from crossbyte.service.fields import (
    INT64,
    Caption,
    Features,
    Id,
    K,
    Prior,
    Probability,
    Probe,
    Target,
    Text,
    Where,
    WrittenId,
    given,
    most,
)
from crossbyte.service.settings import LIMITS

__all__ = [
    "Batch",
    "Browse",
    "Deletion",
    "Explain",
    "ExplainOptions",
    "FacetsQuery",
    "IdQuery",
    "NewDocument",
    "NewDocuments",
    "Options",
    "Page",
    "Search",
    "TextSearch",
]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Options(_Closed):
    """What a search may be told besides its query."""

    target: Annotated[
        Annotated[Target | None, BeforeValidator(given)],
        Field(description="What is searched; null for images by words, and texts by pictures."),
    ] = None
    k: K = 10
    where: Annotated[Where | None, BeforeValidator(given)] = None
    min_probability: Annotated[
        Probability | None,
        BeforeValidator(given),
        Field(description="Leave out hits that are less probably right."),
    ] = None
    max_distance: Annotated[
        float | None, BeforeValidator(given), Field(description="Leave out what is farther.")
    ] = None
    distinct: Annotated[
        Literal["group"] | None, BeforeValidator(given), Field(description="Count every group once.")
    ] = None
    prior: Annotated[
        Prior | None,
        BeforeValidator(given),
        Field(description="Probability of any one document before looking; null for one in all."),
    ] = None
    match_threshold: Annotated[
        Probability, Field(description="no_match says that even the best hit is less probable than this.")
    ] = 0.5
    probe: Annotated[
        Probe | None,
        BeforeValidator(given),
        Field(
            description="How many cells of an index with cells are searched, or all of it; null for as many "
            "as were found to be enough."
        ),
    ] = None
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
        most("batch_too_large", LIMITS.batch, "queries"),
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

    target: Annotated[Target | None, BeforeValidator(given)] = None


class Page(_Closed):
    """How many."""

    limit: Annotated[
        int,
        Field(ge=1, description="How many at most.", json_schema_extra={"maximum": LIMITS.page}),
        most("page_too_large", LIMITS.page, "documents"),
    ] = 50


class Browse(Page):
    """Which documents, and from where on."""

    where: Annotated[Where | None, BeforeValidator(given)] = None
    after: Annotated[
        Annotated[int, Field(ge=-1, lt=INT64)] | None,
        BeforeValidator(given),
        Field(description='The number "next" of the page before.'),
    ] = None


class FacetsQuery(_Closed):
    """Which fields, of which documents."""

    where: Annotated[Where | None, BeforeValidator(given)] = None
    fields: Annotated[
        Annotated[str, Field(max_length=4096)] | None,
        BeforeValidator(given),
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
        most("too_many_documents", LIMITS.documents, "documents"),
    ]
    upsert: Annotated[bool, Field(description="Replace documents of the same ids.")] = False


class Deletion(_Closed):
    """Documents to delete."""

    ids: Annotated[
        list[Id],
        Field(min_length=1, json_schema_extra={"maxItems": LIMITS.documents}),
        most("too_many_documents", LIMITS.documents, "ids"),
    ]
    missing_ok: Annotated[bool, Field(description="Do not mind ids that are not there.")] = False
