"""Documents whose pictures and texts are encoded: what of them can be learned from and indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Raw
from crossbyte.data.folders.documents import RawDocuments, Skipped
from crossbyte.encoders.protocol import Encoder, EncoderState
from crossbyte.gallery.cache import FeatureCache, digest_of_text
from crossbyte.gallery.encoding import encode_pictures, encode_texts
from crossbyte.gallery.texts import joined, spoken
from crossbyte.gallery.workshop import Workshop

__all__ = ["EncodedDocuments", "Pairs", "Pieces", "encode_documents"]

_BOTH = ("image", "text")


class Pairs(NamedTuple):
    """Features row by row, with a group number each."""

    images: Raw
    texts: Raw
    groups: NDArray[np.intp]

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents, and where the features of their sides are kept.

    Attributes
    ----------
    documents : RawDocuments
    encoders : mapping of side to EncoderState
    digests : mapping of side to mapping of row to digest
        Rows that have the side.
    captions : mapping of row to list of digests
        The captions of documents with a text one by one, where they are wanted.
    skipped : list of Skipped
        Pictures that cannot be read; their documents are left out altogether.
    """

    documents: RawDocuments
    encoders: Mapping[str, EncoderState]
    digests: Mapping[str, Mapping[int, str]]
    captions: Mapping[int, list[str]]
    skipped: list[Skipped]

    def rows(self, sides: Sequence[str]) -> list[int]:
        """Rows of documents with exactly these sides."""
        wanted = set(sides)
        return [
            row
            for row in range(len(self.documents))
            if {side for side in _BOTH if row in self.digests[side]} == wanted
        ]

    def features(self, cache: FeatureCache, side: str, rows: Sequence[int]) -> Raw:
        """Features (n, d) of one side of these documents."""
        return cache.get(self.encoders[side], [self.digests[side][row] for row in rows])

    def picked(self, name: str, rows: Sequence[int]) -> list[Any]:
        """Ids, payloads or groups of these documents."""
        values = getattr(self.documents, name)
        return [values[row] for row in rows]

    def group_numbers(self, rows: Sequence[int]) -> NDArray[np.intp]:
        """A number per document, the same for documents of one group."""
        groups = self.documents.groups
        labels = [("alone", row) if groups[row] is None else groups[row] for row in rows]
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.intp)

    def pairs(self, cache: FeatureCache, rows: Sequence[int]) -> Pairs:
        """Each of these documents with its whole text."""
        images, texts = (self.features(cache, side, rows) for side in _BOTH)
        return Pairs(images, texts, self.group_numbers(rows))

    def repeated(self, rows: Sequence[int]) -> list[int]:
        """Each of these rows as often as it has captions."""
        return [row for row in rows for _ in self.captions[row]]

    def pairs_apart(self, cache: FeatureCache, rows: Sequence[int]) -> Pairs:
        """Each of these documents with each of its captions, as :meth:`repeated` names them."""
        digests = [digest for row in rows for digest in self.captions[row]]
        repeated = self.repeated(rows)
        texts = cache.get(self.encoders["text"], digests)
        return Pairs(self.features(cache, "image", repeated), texts, self.group_numbers(repeated))

    def blocks(self, cache: FeatureCache, size: int) -> Iterator[dict[str, Any]]:
        """Arguments of ``Index.add`` for all documents, a block after another."""
        for sides in (_BOTH, ("image",), ("text",)):
            rows = self.rows(sides)
            for first in range(0, len(rows), size):
                yield self._block(cache, sides, rows[first : first + size])

    def _block(self, cache: FeatureCache, sides: Sequence[str], rows: Sequence[int]) -> dict[str, Any]:
        block: dict[str, Any] = {name: self.picked(name, rows) for name in ("ids", "payloads", "groups")}
        return block | {f"{side}s": self.features(cache, side, rows) for side in sides}


class Pieces:
    """Pictures and texts of documents, with the rows that have them."""

    def __init__(self, documents: RawDocuments) -> None:
        pictures = [(row, path) for row, path in enumerate(documents.pictures) if path is not None]
        texts = [(row, joined(captions)) for row, captions in enumerate(documents.texts)]
        self.picture_rows, self.paths = [row for row, _ in pictures], [path for _, path in pictures]
        self.picture_ids = [documents.ids[row] for row in self.picture_rows]
        self.text_rows = [row for row, text in texts if text is not None]
        self.texts = [text for _, text in texts if text is not None]
        self.captions = [spoken(documents.texts[row]) for row in self.text_rows]

    @property
    def n_pairs(self) -> int:
        """How many documents have both."""
        return len(set(self.picture_rows) & set(self.text_rows))


def encode_documents(
    session: Workshop,
    documents: RawDocuments,
    encoder_of: Callable[[str, Pieces], Encoder],
    *,
    apart: bool = False,
) -> EncodedDocuments:
    """Encode everything that is not kept yet.

    Parameters
    ----------
    session : EncodingSession
    documents : RawDocuments
    encoder_of : callable
        Gives the encoder of a side; called only for sides that there are.
    apart : bool
        Whether captions are wanted one by one, too.
    """
    pieces = Pieces(documents)
    digests: dict[str, dict[int, str]] = {side: {} for side in _BOTH}
    encoders: dict[str, EncoderState] = {}
    reasons: dict[int, str] = {}
    if pieces.paths:
        found = encode_pictures(session, encoder_of("image", pieces), pieces.picture_ids, pieces.paths)
        encoders["image"], rows = found.encoder, pieces.picture_rows
        digests["image"] = {r: digest for r, digest in zip(rows, found.digests, strict=True) if digest}
        reasons = {rows[at]: reason for at, reason in found.reasons.items()}
    captions: dict[int, list[str]] = {}
    if pieces.texts:
        more = [caption for each in pieces.captions for caption in each] if apart else []
        made = encode_texts(session, encoder_of("text", pieces), [*pieces.texts, *more])
        encoders["text"] = made.encoder
        known = zip(pieces.text_rows, made.digests[: len(pieces.texts)], strict=True)
        digests["text"] = {r: digest for r, digest in known if digest and r not in reasons}
        captions = {
            r: list(map(digest_of_text, each))
            for r, each in zip(pieces.text_rows, pieces.captions, strict=True)
        }
    skipped = [Skipped(_name(documents, row), reason) for row, reason in sorted(reasons.items())]
    return EncodedDocuments(documents, encoders, digests, captions, skipped)


def _name(documents: RawDocuments, row: int) -> str:
    return str(documents.payloads[row].get("file", documents.ids[row]))
