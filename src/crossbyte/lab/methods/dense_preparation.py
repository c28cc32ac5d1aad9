"""Prepare rows densely for the compared systems, learned on training rows: centre, PCA, unit length.

It is the preparation of the common space (:mod:`crossbyte.data.preparation`) in the units of the data, in
double precision, and with PCA and unit length as choices: most published systems only centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers, deterministic_product, row_blocks
from crossbyte.data.preparation import Preparation
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_features

_ROUNDING = 1e-12  # of the largest training value


@dataclass(frozen=True, eq=False)
class CentredPreparation:
    """What was learned about one side.

    Attributes
    ----------
    mean : (d,) float64
        Mean of the training rows.
    directions : (d, k) float64 or None
        Principal directions as columns, strongest first; None where PCA is off.
    unit : bool
        Whether rows are brought to unit length at the end. Then, as in the common space, rows that are zero
        before centring (a text without a known word) stay zero; otherwise they are rows like any other.
    name : str
        What messages call the rows.
    shortest : float
        Length below which a row is the mean itself, but for rounding.
    """

    mean: Float64
    directions: Float64 | None
    unit: bool
    name: str
    shortest: float

    @classmethod
    def fit(
        cls,
        rows: Any,
        *,
        unit: bool = False,
        n_components: int | None = None,
        name: str = "rows",
        n_jobs: int | None = 1,
    ) -> CentredPreparation:
        """Learn the mean, and ``n_components`` directions if asked, from (n, d) rows, dense or sparse.

        Fewer directions are kept where the rows have fewer, and none are used (no PCA) where ``n_components``
        is None or not below d.
        """
        raw = check_features(rows, name, min_rows=2)
        with Workers(n_jobs) as workers:
            learned = Preparation.fit(raw, n_components, name, workers)
        turned = None if learned.components is None else np.ascontiguousarray(learned.components.T)
        return cls(learned.mean / learned.scale, turned, unit, name, _ROUNDING / learned.scale)

    @property
    def n_dims(self) -> int:
        """Width of the prepared rows."""
        return len(self.mean) if self.directions is None else self.directions.shape[1]

    def apply(self, rows: Any) -> Float64:
        """Prepare (n, d) rows, dense or sparse, as a dense (n, k) array; each row by itself alone."""
        raw = self._check_rows(rows)
        prepared = np.empty((raw.shape[0], self.n_dims))
        for block in row_blocks(raw.shape[0]):
            prepared[block] = self._prepare(to_dense_rows(raw[block]))
        return prepared

    def _check_rows(self, rows: Any) -> Raw:
        raw = check_features(rows, self.name)
        if raw.shape[1] != len(self.mean):
            raise InvalidInput(
                f"{self.name}: expected {len(self.mean)} features as in training, got {raw.shape[1]}; "
                "use the encoder that made the training features"
            )
        return raw

    def _prepare(self, block: Float64) -> Float64:
        known = np.asarray(block.any(axis=1))
        values = block - self.mean
        if self.directions is not None:
            values = deterministic_product(values, self.directions)
        return self._unit_length(values, known) if self.unit else values

    def _unit_length(self, values: Float64, known: NDArray[np.bool_]) -> Float64:
        """Rows over their length; unknown rows, and rows that are the mean itself, become zero."""
        lengths = np.sqrt(np.einsum("nd,nd->n", values, values))
        keep = known & (lengths > self.shortest)
        return values * np.divide(1.0, lengths, out=np.zeros_like(lengths), where=keep)[:, None]


def to_dense_rows(block: Any) -> Float64:
    """Rows (n, d), dense or sparse, as a dense array of their own."""
    values = block.toarray() if hasattr(block, "toarray") else block
    return np.array(values, dtype=np.float64, order="C")
