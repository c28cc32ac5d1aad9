"""Types of single values in requests, each with its limit and what OpenAPI says of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from crossbyte.service.settings import LIMITS

__all__ = [
    "INT64",
    "Caption",
    "Features",
    "Id",
    "K",
    "Prior",
    "Probability",
    "Probe",
    "Target",
    "Text",
    "Where",
    "WrittenId",
    "given",
    "most",
]

Target = Literal["image", "text", "document"]
INT64 = 2**63
_ID_BYTES = 1024


def most(code: str, limit: int, what: str) -> Any:
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


def given(value: Any) -> Any:
    """Read an empty value in a URL as none."""
    return None if value == "" else value


def _an_id(value: Any) -> Any:
    """Say in one sentence what an id is; a union would say why it is not the first of its types."""
    if type(value) is str and len(value.encode()) <= _ID_BYTES:
        return value
    if type(value) is int and -INT64 <= value < INT64:
        return value
    message = f"expected a string of at most {_ID_BYTES} bytes, or an integer of 64 bits"
    raise PydanticCustomError("invalid_request", "{message}", {"message": message})


def _a_probe(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Say in one sentence what is expected, as for an id."""
    try:
        return check(value)
    except ValidationError as error:
        raise PydanticCustomError(
            "invalid_request", 'expected a number of cells from 1, "all" or null'
        ) from error


Id = Annotated[
    Annotated[int, Field(ge=-INT64, lt=INT64)] | Annotated[str, Field(max_length=_ID_BYTES)],
    BeforeValidator(_an_id),
    Field(description='A document\'s id; 1 and "1" are different.', examples=["beach/012.jpg"]),
]
WrittenId = Annotated[
    str,
    Field(
        max_length=_ID_BYTES,
        description="A document's id: the text itself, or else the number it spells.",
        examples=["beach/012.jpg"],
    ),
]
Text = Annotated[
    str,
    most("text_too_long", LIMITS.text_chars, "characters"),
    AfterValidator(_not_blank),
    Field(
        description="A query in words.",
        examples=["two dogs on a beach"],
        json_schema_extra={"minLength": 1, "maxLength": LIMITS.text_chars, "pattern": "\\S"},
    ),
]
Caption = Annotated[
    str,
    most("text_too_long", LIMITS.text_chars, "characters"),
    Field(description="Its words.", json_schema_extra={"maxLength": LIMITS.text_chars}),
]
Where = Annotated[
    str,
    most("filter_too_long", LIMITS.filter_chars, "characters"),
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
    most("too_many_features", LIMITS.features, "numbers"),
]
K = Annotated[
    int,
    Field(ge=1, description="How many hits at most.", json_schema_extra={"maximum": LIMITS.k}),
    most("k_too_large", LIMITS.k, "hits"),
]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Prior = Annotated[float, Field(gt=0.0, le=1.0)]
Probe = Annotated[Annotated[int, Field(ge=1)] | Literal["all"], WrapValidator(_a_probe)]
