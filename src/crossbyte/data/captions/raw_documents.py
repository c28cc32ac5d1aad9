"""Gather rows into documents: one per picture, and a group for documents that share a picture or a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize

from crossbyte._json import canonical_json, plain_json
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.captions.scan import FolderScan


class Skipped(NamedTuple):
    """Something that was left out: a file by its relative name, or a row by its table and line; and why."""

    name: str
    reason: str


@dataclass
class RawDocuments:
    """Documents as people keep them, one per picture (or per text where there is no picture), row by row.

    Attributes
    ----------
    ids : list of str
        The picture's path relative to the folder, with ``/``, or what the id column says; all different.
    pictures : list of Path or None
        Regular files inside the folder; not opened yet.
    texts : list of tuple of str
        The captions of each; ``()`` for none.
    payloads : list of dict
        The other columns, and ``captions`` (list of str) and ``file`` (relative name) where there are any.
    groups : list of str or None
        Documents that share a picture or a text, directly or through others, have the same label: the id of
        the first of them. None where a document stands alone.
    skipped : list of Skipped
    form : str
        ``csv``, ``jsonl``, ``sidecar``, ``coco``, ``img2dataset`` or ``images``.
    """

    ids: list[str]
    pictures: list[Path | None]
    texts: list[tuple[str, ...]]
    payloads: list[dict[str, Any]]
    groups: list[str | None]
    skipped: list[Skipped] = field(default_factory=list)
    form: str = "images"

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_pairs(self) -> int:
        """How many documents have a picture and a text."""
        return sum(picture is not None and any(texts) for picture, texts in self._halves())

    @property
    def n_without_text(self) -> int:
        """How many pictures have no caption: they are found through their image."""
        return sum(picture is not None and not any(texts) for picture, texts in self._halves())

    @property
    def n_without_picture(self) -> int:
        """How many documents are texts alone."""
        return sum(picture is None for picture in self.pictures)

    def _halves(self) -> Iterator[tuple[Path | None, tuple[str, ...]]]:
        return zip(self.pictures, self.texts, strict=True)


_RESERVED = ("captions", "file")
_MAX_ID_BYTES = 1024  # as in an index
_MAX_PAYLOAD_BYTES = 2**20  # as in an index
_MAX_VALUES = 100  # in one field, gathered from rows that differ


@dataclass
class _Document:
    picture: str | None
    captions: dict[str, None] = field(default_factory=dict)
    payload: dict[str, Any] = field(default_factory=dict)


class DocumentBuilder:
    """Build documents from rows, which are added one by one.

    The rows of one picture (or of one id) are one document with all their captions. Where their other values
    differ, the document has the list of them, in order: a filter finds it by each.
    """

    def __init__(self, scan: FolderScan) -> None:
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
        """Add one row.

        Parameters
        ----------
        where : str
            The name of the row in the list of what was left out.
        picture : str or None
            The relative name of a picture that the scan found.
        captions : iterable of str
            As written; empty ones are dropped.
        payload : dict
        id : str or None
            None: the picture's name, or ``where``.
        """
        key = picture or where if id is None else id
        reason = self._reason_to_skip(key, picture)
        if reason:
            self.skip(where, reason)
            return
        document = self._documents.setdefault(key, _Document(picture))
        document.captions.update(dict.fromkeys(filter(None, map(clean_caption, captions))))
        _merge_payload(document.payload, payload)

    @property
    def n_pictures(self) -> int:
        """Documents with a picture."""
        return sum(document.picture is not None for document in self._documents.values())

    @property
    def first_skipped(self) -> Skipped:
        """The first row that was left out."""
        return next(iter(self.skipped[self._n_scanned :]), Skipped("no row", "it names one"))

    @property
    def used_pictures(self) -> set[str]:
        """Pictures that are in some document."""
        return {document.picture for document in self._documents.values() if document.picture is not None}

    def documents(self, form: str) -> RawDocuments:
        """Return the documents of all rows."""
        found = RawDocuments([], [], [], [], [], self.skipped, form)
        for id, document in self._documents.items():
            payload = _make_payload(document)
            reason = _find_payload_problem(payload)
            if reason:
                self.skip(id, reason)
                continue
            found.ids.append(id)
            found.pictures.append(self._path(document.picture))
            found.texts.append(tuple(document.captions))
            found.payloads.append(payload)
        found.groups = _label_groups(found)
        return found

    def _reason_to_skip(self, id: str, picture: str | None) -> str:
        if len(id.encode("utf-8", "replace")) > _MAX_ID_BYTES:
            return f"expected an id of at most {_MAX_ID_BYTES} bytes, got {id[:40]!r}…"
        known = self._documents.get(id)
        if known is not None and known.picture != picture:
            return f"its id {id!r} belongs to {known.picture or 'a text'} already"
        return ""

    def _path(self, picture: str | None) -> Path | None:
        return None if picture is None else self._paths[picture]


def clean_caption(text: str) -> str:
    """Normalise a caption: composed (NFC), on one line, without space around it."""
    return " ".join(normalize("NFC", text).split())


def _merge_payload(old: dict[str, Any], new: dict[str, Any]) -> None:
    for name, value in new.items():
        if name not in old:
            old[name] = value
        elif old[name] != value:
            values = _as_list(old[name])
            values += [one for one in _as_list(value) if one not in values]
            old[name] = values[:_MAX_VALUES]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _make_payload(document: _Document) -> dict[str, Any]:
    # A column with a reserved name gets another one.
    payload = {f"{key}_" if key in _RESERVED else key: value for key, value in document.payload.items()}
    if document.captions:
        payload["captions"] = list(document.captions)
    if document.picture is not None:
        payload["file"] = document.picture
    return payload


def _find_payload_problem(payload: dict[str, Any]) -> str:
    """Say why an index would refuse a payload, so that one row does not stop all others."""
    try:
        n_bytes = len(canonical_json(plain_json(payload, "payload")))
    except (InvalidInput, ValueError) as error:
        return str(error)
    if n_bytes > _MAX_PAYLOAD_BYTES:
        return f"expected at most {_MAX_PAYLOAD_BYTES} bytes of captions and other columns, got {n_bytes}"
    return ""


def loosen_groups(documents: RawDocuments) -> tuple[RawDocuments, str | None]:
    """Group by less than a shared caption where one group would swallow the pictures, as with tags.

    A caption that many pictures share says what they have in common, and holding all of them out together
    leaves nothing to learn from. Groups that are not those of :func:`crossbyte.data.captions.layout.read_raw`
    are somebody's own, and stay.

    Returns
    -------
    RawDocuments
    str or None
        What was done, in a sentence; None where the groups stay.
    """
    if not _swallow_pairs(documents, documents.groups) or documents.groups != _label_groups(documents):
        return documents, None
    shared = "Most pictures share captions, as with tags or labels: "
    told = "; captions of held-out pictures may have been learned from others, which flatters the figures."
    groups = _label_groups(documents, _all_captions)
    if not _swallow_pairs(documents, groups):
        return replace(documents, groups=groups), (
            f"{shared}those with exactly the same captions were held out together, not those that share one"
            + told
        )
    return replace(documents, groups=_label_groups(documents, _no_caption)), (
        f"{shared}each picture was held out by itself{told}"
    )


def _swallow_pairs(documents: RawDocuments, groups: Sequence[str | None]) -> bool:
    """Tell whether one group has more than half of the documents with a picture and a caption."""
    sides = zip(documents.pictures, documents.texts, groups, strict=True)
    paired = [group for picture, texts, group in sides if picture is not None and any(texts)]
    sizes = Counter(group for group in paired if group is not None)
    return max(sizes.values(), default=0) > len(paired) / 2


def _each_caption(texts: tuple[str, ...]) -> Iterable[object]:
    return texts


def _all_captions(texts: tuple[str, ...]) -> Iterable[object]:
    return [frozenset(texts)] if texts else []


def _no_caption(texts: tuple[str, ...]) -> Iterable[object]:
    return []


def _label_groups(
    found: RawDocuments, shared_of: Callable[[tuple[str, ...]], Iterable[object]] = _each_caption
) -> list[str | None]:
    """Label documents that share a picture or what is given of their texts, directly or through others."""
    parents = list(range(len(found)))
    first: dict[object, int] = {}
    for row, (picture, texts) in enumerate(zip(found.pictures, found.texts, strict=True)):
        for shared in (*shared_of(texts), *([] if picture is None else [picture])):
            one, other = _find_root(parents, first.setdefault(shared, row)), _find_root(parents, row)
            parents[max(one, other)] = min(one, other)
    roots = [_find_root(parents, row) for row in range(len(found))]
    shared_roots = {root for row, root in enumerate(roots) if root != row}
    return [found.ids[root] if root in shared_roots else None for root in roots]


def _find_root(parents: list[int], row: int) -> int:
    while parents[row] != row:
        parents[row] = parents[parents[row]]
        row = parents[row]
    return row
