"""Documents on their way into a gallery: pictures, texts or features, as what ``Index.add`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crossbyte.arrays import Raw
from crossbyte.errors import InvalidInput
from crossbyte.search.ids import Id

if TYPE_CHECKING:
    from crossbyte.data.pictures.picture import Picture

__all__ = ["NewDocument", "blocks_of"]


class NewDocument(NamedTuple):
    """A document on its way into an index.

    Attributes
    ----------
    id : str or int
    picture : Picture, optional
    text : str, optional
        Kept in the payload as ``captions``, unless the payload has such a field.
    image_features, text_features : (d,) features, optional
        Instead of the picture or the text.
    payload : dict, optional
    group : str or int, optional
    """

    id: Id
    picture: Picture | None = None
    text: str | None = None
    image_features: Any = None
    text_features: Any = None
    payload: Mapping[str, Any] | None = None
    group: Id | None = None


def blocks_of(
    documents: Sequence[NewDocument],
    encode_pictures: Callable[[Sequence[Picture]], Raw],
    encode_texts: Callable[[Sequence[str]], Raw],
) -> list[dict[str, Any]]:
    """Give the arguments of ``Index.add`` for documents; those of the same sides come together."""
    return [_block(some, encode_pictures, encode_texts) for some in _by_sides(documents)]


def _block(
    documents: Sequence[NewDocument],
    encode_pictures: Callable[[Sequence[Picture]], Raw],
    encode_texts: Callable[[Sequence[str]], Raw],
) -> dict[str, Any]:
    block: dict[str, Any] = {"ids": [document.id for document in documents]}
    block["payloads"] = [_payload(document) for document in documents]
    block["groups"] = [document.group for document in documents]
    sides = _sides(documents[0])
    if "image" in sides:
        pictures = [each.picture for each in documents if each.image_features is None and each.picture]
        made = encode_pictures(pictures) if pictures else None
        block["images"] = _woven([each.image_features for each in documents], made)
    if "text" in sides:
        texts = [each.text for each in documents if each.text_features is None and each.text is not None]
        made = encode_texts(texts) if texts else None
        block["texts"] = _woven([each.text_features for each in documents], made)
    return block


def _sides(document: NewDocument) -> tuple[str, ...]:
    has_image = document.picture is not None or document.image_features is not None
    has_text = document.text is not None or document.text_features is not None
    return tuple(side for side, has in (("image", has_image), ("text", has_text)) if has)


def _by_sides(documents: Sequence[NewDocument]) -> list[list[NewDocument]]:
    """Documents of the same sides together, in the order of their first."""
    found: dict[tuple[str, ...], list[NewDocument]] = {}
    for document in documents:
        sides = _sides(document)
        if not sides:
            raise InvalidInput(f"document {document.id!r}: expected a picture, a text, or features, got none")
        found.setdefault(sides, []).append(document)
    return list(found.values())


def _payload(document: NewDocument) -> dict[str, Any] | None:
    payload = None if document.payload is None else dict(document.payload)
    if document.text is None or not document.text.strip():
        return payload
    return {"captions": [document.text]} | (payload or {})


def _woven(given: Sequence[Any], made: Raw | None) -> Raw:
    """Interleave rows that were encoded with rows that came as features."""
    if made is not None and all(row is None for row in given):
        return made
    rows, fresh = [], iter(range(0 if made is None else made.shape[0]))
    for row in given:
        chosen: Any = made[[next(fresh)]] if row is None and made is not None else row
        dense = chosen.toarray() if hasattr(chosen, "toarray") else np.asarray(chosen)
        rows.append(dense.reshape(1, -1))
    if len({row.shape[1] for row in rows}) != 1:
        raise InvalidInput("expected features of one width, got several; give as many numbers for each")
    return np.concatenate(rows)
