"""Hash by sparse codes of images and factors of texts (LSSH: Zhou, Ding and Guo, SIGIR 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float32, Float64, Raw
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.data.preparation import Preparation, PreparedRows
from crossbyte.lab.methods.hashing import UnifiedHashing
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.model.space import sparse as mapping
from crossbyte.model.space.cca import project_rows
from crossbyte.model.space.sparse import SparseState, SparseWeights
from crossbyte.validation import check_integer, check_number


@dataclass(kw_only=True)
class LSSH(UnifiedHashing):
    """Images by sparse codes, texts by factors, one space for both, whose signs are the code.

    ``|X - S B|² + ρ |S|₁ + λ |A - S R|² + μ |Y - A U|²`` with the rows of B, R and U in the unit ball is
    minimised block by block. It is the common space that CMCQ took over, so the updates are those of
    :mod:`crossbyte.model.space.sparse`. A document is coded by the sign of
    ``(μ y U' + λ s R) (μ U U' + λ I)⁻¹`` with s from its image alone, a text by the same
    without s, an image by the sign of ``s R``.

    Attributes
    ----------
    sparsity : float
        ρ, as the authors' solver takes it: a share of the penalty that would leave no code at all, row by
        row.
    text_weight : float
        μ.
    alignment : float
        λ.
    n_atoms : int
        Rows of the dictionary B.
    image_components : int or None
        Principal directions of the images that are kept; None for all.
    max_iter : int
        Rounds.
    max_pairs : int
        Most pairs to learn from, drawn at random; the others are coded like new ones.

    Notes
    -----
    Images are centred, reduced and brought to unit length in this order, texts centred and brought to unit
    length. B and R start random and U as a random tight frame of the texts' directions, all in the unit ball;
    the authors start from Gaussian matrices outside it. The lasso is solved to its optimum instead of for
    30 steps.
    """

    about: ClassVar[About] = About(
        key="lssh",
        name="LSSH",
        source="Zhou, Ding and Guo, SIGIR 2014",
        relations=(INTRA_DOCUMENT,),
        codes="unified",
        coding="hash",
        distance="hamming",
        reconstructed="a start in the unit ball; the lasso solved to its optimum",
    )

    sparsity: float = 0.2
    text_weight: float = 0.5
    alignment: float = 1.0
    n_atoms: int = 512
    image_components: int | None = 64
    max_iter: int = 20
    max_pairs: int = 10_000

    _preparations: dict[Side, Preparation] = field(init=False, repr=False, default_factory=dict)
    _learned: Dictionaries | None = field(init=False, repr=False, default=None)
    _details: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse weights without a minimum."""
        super().__post_init__()
        check_number(self.sparsity, "sparsity", 0.0, 1.0, open_low=True)
        check_number(self.text_weight, "text_weight", 0.0, open_low=True)
        check_number(self.alignment, "alignment", 0.0, open_low=True)
        for name, low in (("n_atoms", 1), ("max_iter", 0), ("max_pairs", 2)):
            check_integer(getattr(self, name), name, low)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many pairs were learned from, and how many atoms an image of them has."""
        return dict(self._details)

    @property
    def _weights(self) -> SparseWeights:
        return SparseWeights(self.sparsity, self.text_weight, self.alignment, ratio=True)

    def _learn(self, images: Raw, texts: Raw, workers: Workers) -> None:
        rng = np.random.default_rng(self.random_state)
        self._preparations = {
            "image": Preparation.fit(images, self.image_components, "images", workers),
            "text": Preparation.fit(texts, None, "texts", workers),
        }
        chosen = sample_rows(images.shape[0], rng, self.max_pairs)
        if chosen is not None:
            images, texts = images[chosen], texts[chosen]
        X, Y = self._prepare("image", images, workers), self._prepare("text", texts, workers)
        state = mapping.initial_state(X, Y, self.n_atoms, self.n_bits, self._weights, rng, workers)
        for _ in range(self.max_iter):
            state = update_all_blocks(state, X, Y, self._weights, workers)
        self._learned = Dictionaries(state.B, state.U, state.R)
        self._details = {"n_learned_from": X.shape[0], "atoms_per_image": state.S.nnz / X.shape[0]}

    def _prepare(self, side: Side, rows: Raw, workers: Workers) -> PreparedRows:
        return self._preparations[side].apply(rows, workers)

    def _bit_values(self, side: Side, rows: Raw, workers: Workers) -> Float32:
        assert self._learned is not None
        prepared = self._prepare(side, rows, workers)
        if side == "text":
            return project_rows(prepared, text_projection(self._learned.U, self._weights), workers)
        return self._image_state(prepared, workers).image_points

    def _pair_bit_values(self, images: Raw, texts: Raw, workers: Workers) -> Float32:
        state = self._image_state(self._prepare("image", images, workers), workers)
        Y = self._prepare("text", texts, workers)
        return mapping.update_text_points(state, Y, None, self._weights, workers).text_points

    def _image_state(self, X: PreparedRows, workers: Workers) -> SparseState:
        """Sparse codes of images alone, and where they lie; the texts are left at zero."""
        assert self._learned is not None
        B, U, R = self._learned
        S = mapping.image_lasso(X, B, self._weights, workers)
        return mapping.make_state(B, U, R, S, np.zeros((X.shape[0], len(U)), dtype=np.float32), workers)


class Dictionaries(NamedTuple):
    """What is kept of a fit."""

    B: Float64
    """(n_atoms, d_I)"""
    U: Float64
    """(c, d_T)"""
    R: Float64
    """(n_atoms, c)"""


def update_all_blocks(
    state: SparseState, X: PreparedRows, Y: PreparedRows, weights: SparseWeights, workers: Workers
) -> SparseState:
    """A, U, S, B and R, each optimal with the others fixed (A is the mapping's Y')."""
    state = mapping.update_text_points(state, Y, None, weights, workers)
    state = mapping.update_text_basis(state, Y, workers)
    state = mapping.update_sparse_codes(state, X, None, weights, workers)
    state = mapping.update_image_dictionary(state, X, workers)
    return mapping.update_image_map(state, None, weights, workers)


def text_projection(U: Float64, weights: SparseWeights) -> Float64:
    """The (d_T, c) map μ U' (μ U U' + λ I)⁻¹ of texts alone: a ridge regression on the basis."""
    inner = weights.text_weight * U @ U.T + weights.alignment * np.eye(len(U))
    return np.ascontiguousarray(linalg.solve(inner, weights.text_weight * U, assume_a="pos").T)
