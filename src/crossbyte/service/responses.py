"""What is answered, as OpenAPI shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from crossbyte.service.fields import Target

__all__ = [
    "AddAnswer",
    "AuditAnswer",
    "DeleteAnswer",
    "DocumentAnswer",
    "DocumentsAnswer",
    "ErrorAnswer",
    "FacetsAnswer",
    "HealthAnswer",
    "InfoAnswer",
    "SearchAnswer",
]


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
    probability: float | None
    payload: dict[str, Any] | None
    thumbnail: str | None


class SearchAnswer(_Answer):
    """What one committed generation of the index answers, nearest first."""

    generation: int
    target: Target
    no_match: bool | None = Field(description="Even the best hit is less probable than match_threshold.")
    verdict: Literal["likely", "unsure", "unlikely"] = Field(
        description="Whether anything matches, by all that the model knows of itself: what to tell people."
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
    partial: bool = Field(description=_PARTIAL)


class HealthAnswer(_Answer):
    """Whether the server runs; degraded: it answers, but without a shard that is lost."""

    status: Literal["ok", "ready", "degraded"]
