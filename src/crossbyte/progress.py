"""Report the progress of long work by callback, never by printing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """One step of a long call.

    Attributes
    ----------
    stage : str
        ``"prepare"``, ``"space"``, ``"codebooks"``, ``"alternate"`` or ``"select"``.
    detail : str
        The block or candidate just finished.
    done, total : int
        Steps of this stage; a fit that settles early ends before ``total``.
    objective : float or None
        Value of the objective after the step, where there is one.
    """

    stage: str
    detail: str
    done: int
    total: int
    objective: float | None = None


ProgressCallback = Callable[[Progress], object]


def ignore_progress(_: Progress) -> None:
    """Ignore the progress of a call."""


class Watch:
    """Passes progress on, and remembers how far it was for the message of an interruption."""

    def __init__(self, callback: ProgressCallback) -> None:
        self.callback = callback
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Remember one step, and pass it on; so a watch is a callback itself."""
        self.last = progress
        self.callback(progress)

    def __str__(self) -> str:
        return (
            "before its first step" if self.last is None else f"after {self.last.stage}: {self.last.detail}"
        )
