"""Hash by linear codes that are smooth over neighbours (IMH: Song and others, SIGMOD 2013)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.data.preparation import PreparedRows, row_signs
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods.hashing import LinearBits, LinearHashing
from crossbyte.lab.methods.method import INTRA_DOCUMENT, INTRA_MODALITY, About
from crossbyte.lab.methods.neighbours import laplacian, neighbour_graph, row_products
from crossbyte.lab.methods.regression import cut_at_medians, fit_regression_bits, fit_ridge
from crossbyte.validation import check_integer, check_number


@dataclass(kw_only=True)
class IMH(LinearHashing):
    """Relaxed codes F of images and G of texts, and the linear functions V and W that come nearest to them.

    Over N documents with images X and texts Y it minimises, under F'F = I,

        λ tr(F'L_X F) + λ tr(G'L_Y G) + μ ‖F - G‖² + ‖XV - F‖² + β‖V‖² + ‖YW - G‖² + β‖W‖²

    where L_X and L_Y are the Laplacians of graphs of nearest neighbours. V and W are ridge regressions, which
    leaves quadratic forms A = I - X(X'X + βI)⁻¹X' of F, and alike of G. With B_X = A_X + λ L_X and
    B_Y = A_Y + λ L_Y, the best G is E F with E = μ(B_Y + μI)⁻¹, and what remains of the objective is
    tr(F'(B_X + E B_Y)F): F is made of the eigenvectors with the least eigenvalues. A bit is set where a
    half's function is above its median over the training documents, never over a batch of queries.

    All this is the published algorithm, in a form without differences of large numbers. Two settings of it
    are in use: λ = β = 10⁻³, 10 neighbours, μ = 10⁴ without the first eigenvector, and λ = β = 1, one
    neighbour, μ = 10¹⁰ with it. The first eigenvector there is about the constant one, of which no code can
    be made. With rows centred, as here, the constant is an eigenvector too, though not the first, and left
    out by F'1 = 0. Where μ is large, F and G are equal, and all columns beyond the rank of the narrower side
    (on Wiki 9) are outside of what that side can express: its functions of them are noise. A small μ lets
    each side keep of F what it can express, so by default it is small; all defaults were chosen on
    validation parts of the training documents of Wiki and Flickr8k.

    Ours: β in units of the mean variance; a subsample of the documents, from which F, G, V and W are learned;
    and, where labels teach, neighbours are sought among documents that share a label.

    Attributes
    ----------
    n_neighbours : int
        Neighbours of each row in the graph of its side.
    smoothness : float
        Weight of the graphs (λ).
    ridge : float
        Ridge of the regressions, in units of the side's mean variance (β).
    pair_weight : float
        Weight of the difference between the halves of a document (μ).
    skip_constant : bool
        Whether codes that are constant are left out.
    max_documents : int
        Documents to learn from; time grows with the third power of their number.
    """

    about: ClassVar[About] = About(
        key="imh",
        name="IMH",
        source="J. Song, Y. Yang, Y. Yang, Z. Huang, H. T. Shen: Inter-media hashing for large-scale "
        "retrieval from heterogeneous data sources. SIGMOD 2013",
        relations=(INTRA_MODALITY, INTRA_DOCUMENT),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed="the units of the ridge, the subsample, and that labels, where they teach, limit who "
        "is a neighbour",
    )

    n_neighbours: int = 10
    smoothness: float = 0.01
    ridge: float = 0.1
    pair_weight: float = 0.01
    skip_constant: bool = True
    max_documents: int = 3000

    _n_learned_from: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        for name, low in (("n_neighbours", 1), ("max_documents", 2)):
            check_integer(getattr(self, name), name, low)
        check_number(self.smoothness, "smoothness", 0.0)
        if not isinstance(self.skip_constant, bool):
            raise InvalidInput(f"skip_constant: expected True or False, got {self.skip_constant!r}")
        for name in ("ridge", "pair_weight"):
            check_number(getattr(self, name), name, 0.0, open_low=True)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many documents the functions were learned from."""
        return {"n_learned_from": self._n_learned_from}

    def _learn_functions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        chosen = sample_rows(images.shape[0], np.random.default_rng(self.random_state), self.max_documents)
        some = (images, texts) if chosen is None else (images[chosen], texts[chosen])
        known = labels if labels is None or chosen is None else labels[chosen]
        self._n_learned_from = some[0].shape[0]
        forms = [self._quadratic_form(rows, known, workers) for rows in some]
        F, G = solve_relaxed_codes(forms[0], forms[1], self.pair_weight, self.n_bits, self.skip_constant)
        return self._regress_bits(images, some[0], F, workers), self._regress_bits(texts, some[1], G, workers)

    def _quadratic_form(
        self, rows: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> Float64:
        """B = A + λL of one side: what its relaxed codes F cost is tr(F'BF)."""
        graph = neighbour_graph(rows, self.n_neighbours, workers, labels)
        return residual_form(rows, self.ridge, workers) + self.smoothness * laplacian(graph).toarray()

    def _regress_bits(
        self, all_rows: PreparedRows, rows: PreparedRows, values: Float64, workers: Workers
    ) -> LinearBits:
        """Functions learned from some rows, cut at the medians of all; bits without a value are never set."""
        values = np.pad(values, ((0, 0), (0, self.n_bits - values.shape[1])))
        return cut_at_medians(fit_regression_bits(rows, values, self.ridge, workers), all_rows, workers)


def residual_form(X: PreparedRows, ridge: float, workers: Workers) -> Float64:
    """A = I - X(X'X + βI)⁻¹X' = β(XX' + βI)⁻¹, (n, n): the least ‖XV - F‖² + β‖V‖² over V is tr(F'AF).

    Of the two forms, the one with the smaller matrix to be inverted is taken.
    """
    (n, d), identity = X.shape, np.eye(X.shape[0])
    if n < d:
        products = row_products(X, workers)
        beta = ridge * np.trace(products) / d
        return beta * np.linalg.inv(products + beta * identity)
    return identity - np.asarray(X.times(fit_ridge(X, identity, ridge, workers)))


def solve_relaxed_codes(
    image_form: Float64, text_form: Float64, mu: float, n_bits: int, skip_constant: bool
) -> tuple[Float64, Float64]:
    """F and G with the least tr(F'B_X F) + tr(G'B_Y G) + μ‖F - G‖² under F'F = I, and F'1 = 0 if asked.

    Parameters
    ----------
    image_form, text_form : (n, n) float64
        B_X and B_Y, symmetric and never negative.
    mu : float
        μ.
    n_bits : int
        Wanted columns.
    skip_constant : bool

    Returns
    -------
    F, G : (n, c) float64
        c is ``n_bits``, or what there is where that is fewer.
    """
    coupling = linalg.cho_factor(np.eye(len(text_form)) + text_form / mu)  # E⁻¹
    D = image_form + linalg.cho_solve(coupling, text_form)
    D, n_codes = (D + D.T) / 2, len(D)
    if skip_constant:
        D, n_codes = move_constant_last(D), n_codes - 1
    F = linalg.eigh(D, subset_by_index=[0, min(n_bits, n_codes) - 1])[1]
    F = F * row_signs(F.T)
    return F, linalg.cho_solve(coupling, F)


def move_constant_last(D: Float64) -> Float64:
    """HDH + s 11' with H = I - 11'/n and s so large that the constant eigenvector has the largest value."""
    means = D.mean(axis=0)
    return D - means - means[:, None] + means.mean() + (1.0 + np.trace(D)) / len(D)
