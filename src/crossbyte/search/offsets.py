"""What is added to the distances of each coding, so that items of all codings compete fairly."""

from __future__ import annotations

from collections.abc import Callable

from crossbyte.model.cmcq import CMCQ

__all__ = ["coding_offset"]


def coding_offset(model: CMCQ, query: str, target: str, n_items: int) -> Callable[[str], float]:
    """The offset of a coding as a function; zero for a model that was never calibrated.

    Parameters
    ----------
    model : CMCQ
    query : {"image", "text"}
        Kind of the query.
    target : {"image", "text", "document"}
    n_items : int
        Live documents of the index, all codings together.
    """
    calibration = model.calibration_

    def offset(coding: str) -> float:
        return 0.0 if calibration is None else calibration.offset(query, target, coding, n_items)

    return offset
