"""What a document's text is, where it has several captions."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["joined", "spoken"]


def spoken(captions: Sequence[str]) -> list[str]:
    """Give the captions that are not blank."""
    return [caption for caption in captions if caption.strip()]


def joined(captions: Sequence[str]) -> str | None:
    """Join all captions to one text; None if all are blank."""
    return "\n".join(spoken(captions)) or None
