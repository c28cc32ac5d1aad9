"""From rows to documents: rows of one picture become one, and those that share a text one group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from crossbyte.data.folders.documents import RawDocuments, Skipped
from crossbyte.errors import InvalidInput
from crossbyte.strict_json import canonical_json, plain_json

if TYPE_CHECKING:
    from crossbyte.data.folders.scanning import Scan

__all__ = ["Gathering", "clean_caption"]

_RESERVED = ("captions", "file")
_MAX_ID_BYTES = 1024  # of an index
_MAX_PAYLOAD_BYTES = 2**20  # of an index
_MAX_VALUES = 100  # of one field, gathered from rows that differ


@dataclass
class _Document:
    picture: str | None
    captions: dict[str, None] = field(default_factory=dict)
    payload: dict[str, Any] = field(default_factory=dict)


class Gathering:
    """Takes rows one by one; gives the documents at the end.

    The rows of one picture (or of one id) are one document with all their captions. Where their other values
    differ, the document has the list of them, in order: a filter finds it by each.
    """

    def __init__(self, scan: Scan) -> None:
        self.skipped = scan.skipped
        self._n_scanned = len(scan.skipped)
        self._paths = scan.pictures
        self._documents: dict[str, _Document] = {}

    def skip(self, name: str, reason: str) -> None:
        """List something as left out."""
        self.skipped.append(Skipped(name, reason))

    def add(
        self,
        where: str,
        picture: str | None,
        captions: Iterable[str],
        payload: dict[str, Any],
        id: str | None = None,
    ) -> None:
        """Take one row.

        Parameters
        ----------
        where : str
            What to call the row in the list of what was left out.
        picture : str or None
            The relative name of a picture that the scan found.
        captions : iterable of str
            As written; empty ones are dropped.
        payload : dict
        id : str or None
            None: the picture's name, or ``where``.
        """
        key = picture or where if id is None else id
        reason = self._why_not(key, picture)
        if reason:
            self.skip(where, reason)
            return
        document = self._documents.setdefault(key, _Document(picture))
        document.captions.update(dict.fromkeys(filter(None, map(clean_caption, captions))))
        _merge(document.payload, payload)

    @property
    def n_pictures(self) -> int:
        """Documents with a picture."""
        return sum(document.picture is not None for document in self._documents.values())

    @property
    def first_skipped(self) -> Skipped:
        """The first row that was left out."""
        return next(iter(self.skipped[self._n_scanned :]), Skipped("no row", "it names one"))

    @property
    def named(self) -> set[str]:
        """Pictures that are in some document."""
        return {document.picture for document in self._documents.values() if document.picture is not None}

    def documents(self, form: str) -> RawDocuments:
        """Give everything that was taken."""
        found = RawDocuments([], [], [], [], [], self.skipped, form)
        for id, document in self._documents.items():
            payload = _payload(document)
            reason = _why_unfit(payload)
            if reason:
                self.skip(id, reason)
                continue
            found.ids.append(id)
            found.pictures.append(self._path(document.picture))
            found.texts.append(tuple(document.captions))
            found.payloads.append(payload)
        found.groups = _groups(found)
        return found

    def _why_not(self, id: str, picture: str | None) -> str:
        if len(id.encode("utf-8", "replace")) > _MAX_ID_BYTES:
            return f"expected an id of at most {_MAX_ID_BYTES} bytes, got {id[:40]!r}…"
        known = self._documents.get(id)
        if known is not None and known.picture != picture:
            return f"its id {id!r} belongs to {known.picture or 'a text'} already"
        return ""

    def _path(self, picture: str | None) -> Path | None:
        return None if picture is None else self._paths[picture]


def clean_caption(text: str) -> str:
    """Return a caption composed (NFC), on one line, without space around it."""
    return " ".join(normalize("NFC", text).split())


def _merge(old: dict[str, Any], new: dict[str, Any]) -> None:
    for name, value in new.items():
        if name not in old:
            old[name] = value
        elif old[name] != value:
            values = _as_list(old[name])
            values += [one for one in _as_list(value) if one not in values]
            old[name] = values[:_MAX_VALUES]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _payload(document: _Document) -> dict[str, Any]:
    # a column that is called like one of ours keeps its values under another name
    payload = {f"{key}_" if key in _RESERVED else key: value for key, value in document.payload.items()}
    if document.captions:
        payload["captions"] = list(document.captions)
    if document.picture is not None:
        payload["file"] = document.picture
    return payload


def _why_unfit(payload: dict[str, Any]) -> str:
    """Say why an index would refuse a payload, so that one row does not stop all others."""
    try:
        n_bytes = len(canonical_json(plain_json(payload, "payload")))
    except (InvalidInput, ValueError) as error:
        return str(error)
    if n_bytes > _MAX_PAYLOAD_BYTES:
        return f"expected at most {_MAX_PAYLOAD_BYTES} bytes of captions and other columns, got {n_bytes}"
    return ""


def _groups(found: RawDocuments) -> list[str | None]:
    """Label documents that share a picture or a text, directly or through others."""
    above = list(range(len(found)))
    first: dict[object, int] = {}
    for row, (picture, texts) in enumerate(zip(found.pictures, found.texts, strict=True)):
        for shared in (*texts, *([] if picture is None else [picture])):
            one, other = _top(above, first.setdefault(shared, row)), _top(above, row)
            above[max(one, other)] = min(one, other)
    tops = [_top(above, row) for row in range(len(found))]
    shared_tops = {top for row, top in enumerate(tops) if top != row}
    return [found.ids[top] if top in shared_tops else None for top in tops]


def _top(above: list[int], row: int) -> int:
    while above[row] != row:
        above[row] = above[above[row]]
        row = above[row]
    return row
