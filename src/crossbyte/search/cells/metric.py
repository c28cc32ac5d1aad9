"""Distances for cells that pairs teach: documents lie together that the same queries look for.

A text says more about some properties of its image than about others. Cells that tell images apart by what
texts are silent about are of no use to them: the image of a text may then be in any of many. Of a query q
that looks for the document x pairs tell what to expect, q = xA + a, and how far it is off, with the
covariance S. The likelihood of q falls with the squared distance of qT and (xA + a)T, where TT' is the
inverse of S: in that space the documents are put into cells, and the queries choose.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float32
from crossbyte.mapping.linear import with_ridge
from crossbyte.search.cells.chooser import Chooser

__all__ = ["Metric"]

_PAIRS_PER_DIMENSION = 10  # fewer teach rounding errors
_RIDGE = 1e-3  # of the mean variance of documents
_LEAST = 1e-2  # of the mean variance of queries: no property is told more surely


class Metric(NamedTuple):
    """Place documents and queries of the other kind so that those are near that belong together.

    Attributes
    ----------
    matrix : (D, D) float32
    shift : (D,) float32
        A document at x of the common space is at ``x @ matrix + shift``.
    asking : (D, D) float32
        A query at q is at ``q @ asking``.
    """

    matrix: Float32
    shift: Float32
    asking: Float32

    @classmethod
    def taught(cls, documents: Float32, queries: Float32) -> Self | None:
        """Learn from documents (n, D) and what asked for them (n, D); None from too few."""
        n, n_dims = documents.shape
        if n < _PAIRS_PER_DIMENSION * n_dims:
            return None
        centre, middle = documents.mean(axis=0, dtype=np.float64), queries.mean(axis=0, dtype=np.float64)
        X, Q = documents - centre, queries - middle
        A = linalg.solve(with_ridge(X.T @ X, _RIDGE), X.T @ Q, assume_a="pos")
        variances, axes = linalg.eigh(with_ridge(np.cov(Q - X @ A, rowvar=False, bias=True), _LEAST))
        T = axes / np.sqrt(variances)
        shift = middle @ T - centre @ A @ T
        return cls((A @ T).astype(np.float32), shift.astype(np.float32), T.astype(np.float32))

    def place(self, documents: Float32) -> Float32:
        """Place documents (n, D) of the common space."""
        return np.asarray(documents @ self.matrix + self.shift, dtype=np.float32)

    def asked(self, centres: Float32) -> Chooser:
        """Route queries of the other kind to the cells with the nearest centres (n, D)."""
        return _seen_from(centres, self.asking)

    def compared(self, centres: Float32) -> Chooser:
        """Route queries that are documents themselves."""
        return _seen_from(centres - self.shift, self.matrix)

    def to_array(self) -> Float32:
        """Give all of it as (2 D + 1, D) little-endian float32."""
        return np.concatenate([self.matrix, self.shift[None], self.asking]).astype("<f4")

    @classmethod
    def from_array(cls, values: Float32) -> Self:
        """Take back what :meth:`to_array` gave."""
        n_dims = values.shape[1]
        return cls(values[:n_dims], values[n_dims], values[n_dims + 1 :])


def _seen_from(centres: Float32, matrix: Float32) -> Chooser:
    """Order by ``|xM - c|²``, that is by ``-2 x·Mc + |c|²``, from distances of x itself."""
    points = centres.astype(np.float64) @ matrix.T
    offsets = np.square(centres, dtype=np.float64).sum(axis=1) - np.square(points).sum(axis=1)
    return Chooser(points.astype(np.float32), offsets.astype(np.float32))
