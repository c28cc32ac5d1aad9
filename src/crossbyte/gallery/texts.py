"""What a document's text is, where it has several captions."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["joined"]


def joined(captions: Sequence[str]) -> str | None:
    """All captions as one text; None if they say nothing."""
    said = [caption for caption in captions if caption.strip()]
    return "\n".join(said) if said else None
