"""Score how well numbers tell true items from false ones: the area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np


def auroc(scores: Any, truth: Any) -> float:
    """Return the chance that a true item scores above a false one; equal scores count half.

    Of one kind alone, 0.5.
    """
    scores, truth = np.asarray(scores), np.asarray(truth, dtype=bool)
    n_true, n_false = int(truth.sum()), int((~truth).sum())
    if not n_true or not n_false:
        return 0.5
    values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return float((ranks[truth].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))
