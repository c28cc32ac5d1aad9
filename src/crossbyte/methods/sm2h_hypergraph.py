"""The hypergraph of SM2H: images and texts as vertices, whoever is alike in one hyperedge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float64
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers
from crossbyte.methods.graphs import neighbours

__all__ = ["EdgeWeights", "Hypergraph", "hypergraph"]


class EdgeWeights(NamedTuple):
    """How strongly a kind of hyperedge pulls at each of its vertices."""

    neighbours: float
    pairs: float
    labels: float


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Vertices 0 to N - 1 are the images, N to 2N - 1 the texts of the documents.

    Attributes
    ----------
    incidence : (2N, E) sparse float64
        1 where a vertex is in a hyperedge, 0 elsewhere; no hyperedge is empty.
    weights : (E,) float64
        Of the hyperedges.
    """

    incidence: sparse.csr_array
    weights: Float64

    @cached_property
    def degrees(self) -> Float64:
        """Sum of the weights of the hyperedges that each vertex is in: (2N,)."""
        return np.asarray(self.incidence @ self.weights)

    def laplacian_times(self, values: Float64) -> Float64:
        """L F of values F (2N, k), with L = D - H W B⁻¹ H': degrees D, incidence H, sizes B of hyperedges.

        ``tr(F'LF)`` is the sum over hyperedges of their weight times the squared distances of their
        vertices' values from the mean of these.
        """
        around: Float64 = self.incidence @ (self._shares @ values)
        return self.degrees[:, None] * values - around

    @cached_property
    def _shares(self) -> sparse.csr_array:
        """W B⁻¹ H', (E, 2N)."""
        sizes = np.asarray(self.incidence.sum(axis=0))
        return sparse.csr_array(sparse.diags_array(self.weights / sizes) @ self.incidence.T)


def hypergraph(
    sides: tuple[Rows, Rows],
    n_nearest: int,
    weights: EdgeWeights,
    workers: Workers,
    labels: NDArray[np.bool_] | None = None,
) -> Hypergraph:
    """Join what is alike within a side and across the sides.

    A row and its nearest neighbours of the same side are a hyperedge; so are the halves of a document. Labels
    leave only neighbours that share one, and make a hyperedge of all images and texts that have the same.

    Parameters
    ----------
    sides : (N, d_I) and (N, d_T)
        Prepared rows.
    n_nearest : int
        Neighbours of a row.
    weights : EdgeWeights
        A vertex is in about ``n_nearest + 1`` hyperedges of neighbours, which share their weight.
    workers : Workers
    labels : (N, C) bool, optional
    """
    one: sparse.csr_array = sparse.eye_array(sides[0].shape[0], format="csr")
    near = [sparse.csr_array((one + neighbours(side, n_nearest, workers, labels)).T) for side in sides]
    parts = [(sparse.block_diag(near), weights.neighbours / (n_nearest + 1)), (_both(one), weights.pairs)]
    if labels is not None:
        known = sparse.csr_array(labels[:, labels.any(axis=0)].astype(np.float64))
        parts.append((_both(known), weights.labels))
    incidence = sparse.hstack([part for part, _ in parts], format="csr")
    each = [np.full(part.shape[1], weight) for part, weight in parts]
    return Hypergraph(sparse.csr_array(incidence), np.concatenate(each))


def _both(members: sparse.csr_array) -> sparse.csr_array:
    """Hyperedges (2N, E) of both halves of the documents (N, E) that are in them."""
    return sparse.csr_array(sparse.kron(np.ones((2, 1)), members))
