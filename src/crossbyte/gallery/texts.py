"""What a document's text is, where it has several captions."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["joined", "spoken"]


def spoken(captions: Sequence[str]) -> list[str]:
    """The captions that say anything."""
    return [caption for caption in captions if caption.strip()]


def joined(captions: Sequence[str]) -> str | None:
    """All captions as one text; None if they say nothing."""
    return "\n".join(spoken(captions)) or None
