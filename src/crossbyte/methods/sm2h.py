"""Sparse multi-modal hashing: sets of atoms as codes, from dictionaries learned for both sides at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from crossbyte.arrays import Float32, Float64, Raw
from crossbyte.blocks import sample_rows
from crossbyte.data.preparation import Preparation
from crossbyte.errors import InvalidInput
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import place, with_ridge
from crossbyte.methods.hamming import SeparateHashing, centred_rows
from crossbyte.methods.protocol import INTER_MODALITY, INTRA_MODALITY, About, Side
from crossbyte.methods.sm2h_hypergraph import EdgeWeights, hypergraph
from crossbyte.methods.sm2h_sets import atom_weights, jaccard_distances, large_coefficients
from crossbyte.methods.sm2h_updates import Sides, State, learn, sparse_codes, start
from crossbyte.validation import check_integer, check_number

__all__ = ["SM2H", "whitened"]

_LEAST_ATOMS = 4  # of a set, where atoms are few: smaller sets seldom meet


@dataclass(kw_only=True)
class SM2H(SeparateHashing):
    """A reconstruction: coupled dictionaries, sparse codes smooth on a hypergraph, sets of atoms as codes.

    From the paper, of which no more than the outline was at hand: intra- and inter-modality similarity
    as a hypergraph, dictionaries of both sides learned jointly by hypergraph-Laplacian sparse coding, the
    index set of the large coefficients as the code, and a "sensitive" Jaccard distance between such sets.

    Ours is everything else. The hyperedges are those of :mod:`crossbyte.methods.sm2h_hypergraph`: a row with
    its nearest neighbours, the halves of a document, and, where labels teach, whatever has the same label.
    The objective, its elastic net and its updates are those of :mod:`crossbyte.methods.sm2h_updates`. There
    is an atom per bit. A new row minimises its own part of the objective, without the hypergraph, and so are
    all training documents coded. Large are the most positive coefficients. In the distance, an atom weighs
    as much as both halves of a training document have it more often than chance
    (:func:`~crossbyte.methods.sm2h_sets.atom_weights`). Rows are centred, reduced, whitened and brought to
    unit length, in this order. The authors keep a database in inverted lists, one per atom; here every item
    is compared, with the same answers. Defaults were chosen on validation parts of the training documents of
    Wiki and Flickr8k, by their labels (protocol V).

    Attributes
    ----------
    sparsity : float
        Weight of the sum of absolute coefficients, as a share of what would leave no code at all; below 1.
    shrinkage : float
        Weight of half the sum of squared coefficients; with it, atoms that are alike are chosen together.
    neighbour_weight, pair_weight, label_weight : float
        How strongly hyperedges of neighbours, of halves and of labels pull at a code.
    n_neighbours : int
        Nearest neighbours of a row in its hyperedge.
    set_size : int or None
        Most atoms of a code; None for an eighth of them all, at least four.
    n_components : int or None
        Principal directions of each side that are kept; None for all.
    ridge : float
        Added to every variance before whitening, in units of the side's mean variance.
    max_iter : int
        Rounds.
    max_documents : int
        At most so many documents, drawn at random, are learned from; the others are coded like new ones.
    """

    about: ClassVar[About] = About(
        key="sm2h",
        name="SM2H",
        source="F. Wu, Z. Yu, Y. Yang, S. Tang, Y. Zhang, Y. Zhuang: Sparse multi-modal hashing. "
        "IEEE Transactions on Multimedia 2014",
        relations=(INTRA_MODALITY, INTER_MODALITY),
        codes="separate",
        coding="hash",
        distance="jaccard",
        similarities=("pairs", "labels"),
        reconstructed="all but the outline: which hyperedges there are, the objective with its elastic net "
        "and updates, whitening, sizes of sets, positive coefficients alone, weights of the Jaccard distance",
    )

    sparsity: float = 0.3
    shrinkage: float = 1.0
    neighbour_weight: float = 1.0
    pair_weight: float = 30.0
    label_weight: float = 3.0
    n_neighbours: int = 10
    set_size: int | None = None
    n_components: int | None = 64
    ridge: float = 0.1
    max_iter: int = 15
    max_documents: int = 5_000

    _preparations: dict[Side, Preparation] = field(init=False, repr=False, default_factory=dict)
    _dictionaries: dict[Side, Float64] = field(init=False, repr=False, default_factory=dict)
    _sparsities: dict[Side, float] = field(init=False, repr=False, default_factory=dict)
    _atom_weights: Float32 | None = field(init=False, repr=False, default=None)
    _details: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        for name in ("shrinkage", "neighbour_weight", "pair_weight", "label_weight"):
            check_number(getattr(self, name), name, 0.0)
        for name in ("sparsity", "ridge"):
            check_number(getattr(self, name), name, 0.0, open_low=True)
        if self.sparsity >= 1.0:
            raise InvalidInput(f"sparsity: expected a number below 1, got {self.sparsity!r}")
        for name, low in (("n_neighbours", 1), ("max_iter", 0), ("max_documents", 2)):
            check_integer(getattr(self, name), name, low)
        for name in ("set_size", "n_components"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, 1)

    @property
    def details(self) -> Mapping[str, Any]:
        """Objective per document and round, how many were learned from, and atoms per code of either side."""
        return dict(self._details)

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        known = self._taught_labels(labels, images.shape[0])
        rng = np.random.default_rng(self.random_state)
        chosen = sample_rows(images.shape[0], rng, self.max_documents)
        if chosen is not None:
            images, texts, known = images[chosen], texts[chosen], None if known is None else known[chosen]
        with Workers(self.n_jobs) as workers:
            sides = self._prepare("image", images, workers), self._prepare("text", texts, workers)
            state, history = self._alternate(sides, known, rng, workers)
            self._dictionaries = dict(zip(self._preparations, state.dictionaries, strict=True))
            sets = [
                self._sets(side, rows, workers) for side, rows in zip(self._dictionaries, sides, strict=True)
            ]
        self._atom_weights = atom_weights(*sets)
        sizes = [float(part.sum(axis=1).mean()) for part in sets]
        self._details = {"n_learned_from": images.shape[0], "objective": history, "atoms_per_code": sizes}

    def _prepare(self, side: Side, raw: Raw, workers: Workers) -> Any:
        """Learn how a side is prepared, and prepare its rows (n, d)."""
        self._preparations[side] = whitened(raw, self.n_components, self.ridge, f"{side}s", workers)
        return self._preparations[side].apply(raw, workers)

    def _alternate(
        self, sides: Sides, labels: NDArray[np.bool_] | None, rng: np.random.Generator, workers: Workers
    ) -> tuple[State, list[float]]:
        weights = EdgeWeights(self.neighbour_weight, self.pair_weight, self.label_weight)
        graph = hypergraph(sides, self.n_neighbours, weights, workers, labels)
        state, penalties = start(sides, self.n_bits, self.sparsity, self.shrinkage, rng, workers)
        self._sparsities = dict(zip(self._preparations, penalties.sparsities, strict=True))
        return learn(state, sides, penalties, graph, self.max_iter)

    def _sets(self, side: Side, prepared: Any, workers: Workers) -> Float64:
        dictionary, sparsity = self._dictionaries[side], self._sparsities[side]
        codes = sparse_codes(prepared, dictionary, sparsity, self.shrinkage, workers)
        return large_coefficients(codes, self.set_size or max(_LEAST_ATOMS, self.n_bits // 8))

    def _signs(self, side: Side, rows: Raw) -> Float64:
        with Workers(self.n_jobs) as workers:
            return self._sets(side, self._preparations[side].apply(rows, workers), workers)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Weighted Jaccard distances (n, N) between packed sets; ties stay ties."""
        if self._atom_weights is None:
            raise self._unfitted()
        return jaccard_distances(queries, items, self._atom_weights)


def whitened(raw: Raw, n_components: int | None, ridge: float, name: str, workers: Workers) -> Preparation:
    """Learn from (n, d) rows to centre, reduce and whiten them, before they are brought to unit length.

    Whichever of the rotations that whitening leaves open is taken does not matter: neighbours, k-means and
    sparse codes are the same after any.
    """
    learned = Preparation.fit(raw, n_components, name, workers)
    directions = np.eye(raw.shape[1]) if learned.components is None else learned.components
    placed = place(centred_rows(raw, learned), np.ascontiguousarray(directions.T), workers).astype(np.float64)
    root = linalg.cholesky(with_ridge(placed.T @ placed / len(placed), ridge), lower=True)
    return replace(learned, components=linalg.solve_triangular(root, directions, lower=True))
