"""Which columns of a table name pictures, and which hold captions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from crossbyte.data.folders.scanning import names_picture, picture_kinds
from crossbyte.data.folders.tables import Table
from crossbyte.errors import DataFileError

__all__ = ["Roles", "image_column_of", "names_pictures", "roles_of"]

_IMAGES = [
    *("image", "image_path", "image_file", "image_name", "image_filename", "img", "img_path", "img_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "photo", "picture", "pic", "images"),
    *("image_id", "img_id", "photo_id"),
]
"""What columns of pictures are called, the surest first."""

_TEXTS = [
    *("caption", "text", "sentence", "description", "desc", "alt", "alt_text"),
    *("title", "comment", "prompt"),
]
"""What columns of captions are called; the first that occurs is taken, with its numbers (caption_0, …)."""

_LOOKED_AT = 1000  # rows


class Roles(NamedTuple):
    """Columns of pictures, captions and ids in a table; all others are payload."""

    image: str
    texts: tuple[str, ...]
    id: str | None


def roles_of(
    table: Table, image_column: str | None, text_columns: Sequence[str] | None, id_column: str | None
) -> Roles:
    """Recognise the columns, or take those that are given.

    Raises
    ------
    DataFileError
        A given column is not there, or none is recognised as that of the pictures.
    """
    given = [column for column in (image_column, *(text_columns or ()), id_column) if column is not None]
    for column in given:
        if column not in table.names:
            raise DataFileError(f"expected a column called {column!r}, got {_listed(table)}")
    image = image_column or image_column_of(table)
    if image is None:
        raise DataFileError(
            "expected a column that names pictures (called image, file_name, path …, or with values that end "
            f"in {picture_kinds()}), got {_listed(table)}; say which it is with image_column="
        )
    texts = tuple(text_columns) if text_columns is not None else _text_columns(table, image, id_column)
    return Roles(image, texts, id_column)


def image_column_of(table: Table) -> str | None:
    """Return the column of pictures: by its values and the surer name, else by its name alone."""
    named = sorted((name for name in table.names if _plain(name) in _IMAGES), key=_sureness)
    filled = [name for name in table.names if _holds_pictures(table, name)]
    both = [name for name in named if name in filled]
    return next(iter([*both, *filled, *named]), None)


def names_pictures(table: Table) -> bool:
    """Whether some column's values are names of picture files."""
    return any(_holds_pictures(table, name) for name in table.names)


def _text_columns(table: Table, image: str, id_column: str | None) -> tuple[str, ...]:
    others = [name for name in table.names if name not in (image, id_column)]
    for stem in _TEXTS:
        pattern = re.compile(rf"(?:image_|img_)?{stem}s?(?:_?\d+)?")
        found = tuple(name for name in others if pattern.fullmatch(_plain(name)))
        if found:
            return found
    wordy = [name for name in others if _holds_words(table, name)]
    return (wordy[0],) if len(wordy) == 1 else ()


def _plain(name: str) -> str:
    return re.sub(r"[\s\-.]+", "_", name.strip().lower())


def _sureness(name: str) -> int:
    return _IMAGES.index(_plain(name))


def _holds_pictures(table: Table, name: str) -> bool:
    values = _filled(table, name)
    return 2 * sum(isinstance(value, str) and names_picture(value) for value in values) > len(values)


def _holds_words(table: Table, name: str) -> bool:
    values = _filled(table, name)
    return 2 * sum(isinstance(value, str) and " " in value.strip() for value in values) > len(values)


def _filled(table: Table, name: str) -> list[Any]:
    values = (values.get(name) for _, values in islice(table.rows, _LOOKED_AT))
    return [value for value in values if value not in (None, "")]


def _listed(table: Table) -> str:
    shown = ", ".join(repr(name[:40]) for name in table.names[:30])
    return f"the columns {shown}" + (" and more" if len(table.names) > 30 else "")
