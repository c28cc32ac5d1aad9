"""Labels of the training documents, for the systems that are taught with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_features

__all__ = ["check_labels", "shared_label", "unit_labels"]


def check_labels(labels: Any, n_rows: int, who: str) -> NDArray[np.bool_]:
    """Return (N, C) labels, dense or sparse, as booleans, or say what is wrong with them.

    Parameters
    ----------
    labels : (N, C) array or sparse matrix of 0 and 1
        One column per label; a document may have several, or none.
    n_rows : int
        Number of training documents N.
    who : str
        Name of the system that asks.
    """
    if labels is None:
        raise InvalidInput(f"{who} learns from labels here and got none; pass fit(images, texts, labels)")
    rows: Any = check_features(labels, "labels")
    values = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
    if len(values) != n_rows:
        raise InvalidInput(f"labels: expected one row per document ({n_rows}), got {len(values)} rows")
    if not ((values == 0) | (values == 1)).all():
        raise InvalidInput("labels: expected only 0 and 1, one column per label; got other values")
    return values.astype(bool)


def unit_labels(labels: NDArray[np.bool_]) -> Float64:
    """Rows (N, C) of unit length, so that products are cosines; a document without labels is all zeros."""
    counts = np.maximum(labels.sum(axis=1, dtype=np.float64), 1.0)
    return labels / np.sqrt(counts)[:, None]


def shared_label(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether documents have a label in common: (n, m) booleans for (n, C) and (m, C) labels of 0 and 1."""
    # float32: counts below 2^24 are exact, and integer products are slow
    return np.asarray(left.astype(np.float32) @ right.T.astype(np.float32) > 0)
