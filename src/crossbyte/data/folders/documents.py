"""What a folder of pictures and captions gives: documents row by row, and a list of what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["RawDocuments", "Skipped"]


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
