"""Hash by sets of dictionary atoms, smooth on a hypergraph (SM2H: Wu and others, IEEE Multimedia 2014).

Both halves of N documents are coded with as many atoms, S = [A; B] below one another::

    ½ ‖X - A D‖² + ½ ‖Y - B E‖² + λ |A|₁ + λ' |B|₁ + ½ ρ ‖S‖² + ½ tr(S'LS)

with rows of D and E in the unit ball and L the Laplacian of a hypergraph of all images and texts. A state is
a value; neither update can raise the objective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from crossbyte.arrays import Float32, Float64, Raw
from crossbyte.compute.executor import Workers, row_blocks, sample_rows
from crossbyte.data.preparation import DenseRows, Preparation, PreparedRows
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods.hashing import SeparateHashing, centre_rows
from crossbyte.lab.methods.method import INTER_MODALITY, INTRA_MODALITY, About, Side
from crossbyte.lab.methods.neighbours import nearest_neighbours
from crossbyte.model.quantization.codebooks import kmeans
from crossbyte.model.space.cca import add_ridge, project_rows, unit_rows
from crossbyte.model.space.sparse import SparseWeights, bounded_least_squares, dictionary_gram, image_lasso
from crossbyte.validation import check_codes, check_integer, check_number

_STEPS = 20  # on the codes in a round; the next one starts from there
Sides = tuple[PreparedRows, PreparedRows]
Dictionaries = tuple[Float64, Float64]
_BLOCK_ENTRIES = 2**20  # distances computed at a time
_FINEST = 64  # weights are counted in this fraction of the largest, so that sums of them are exact
_LEAST_ATOMS = 4  # of a set, where atoms are few: smaller sets seldom meet


@dataclass(kw_only=True)
class SM2H(SeparateHashing):
    """A reconstruction: coupled dictionaries, sparse codes smooth on a hypergraph, sets of atoms as codes.

    From the paper, of which no more than the outline was at hand: intra- and inter-modality similarity
    as a hypergraph, dictionaries of both sides learned jointly by hypergraph-Laplacian sparse coding, the
    index set of the large coefficients as the code, and a "sensitive" Jaccard distance between such sets.

    Ours is everything else. The hyperedges are those of :func:`build_hypergraph`: a row with its
    nearest neighbours, the halves of a document, and, where labels teach, whatever has the same label.
    The objective, its elastic net and its updates are :func:`objective` and what follows it. There is an
    atom per bit. A new row minimises its own part of the objective, without the hypergraph, and so are
    all training documents coded. Large are the most positive coefficients. In the distance, an atom weighs
    as much as both halves of a training document have it more often than chance
    (:func:`atom_weights`). Rows are centred, reduced, whitened and brought to
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
        Most documents to learn from, drawn at random; the others are coded like new ones.
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
        known = self._check_taught_labels(labels, images.shape[0])
        rng = np.random.default_rng(self.random_state)
        chosen = sample_rows(images.shape[0], rng, self.max_documents)
        if chosen is not None:
            images, texts, known = images[chosen], texts[chosen], None if known is None else known[chosen]
        with Workers(self.n_jobs) as workers:
            sides = self._prepare("image", images, workers), self._prepare("text", texts, workers)
            state, history = self._alternate(sides, known, rng, workers)
            self._dictionaries = dict(zip(self._preparations, state.dictionaries, strict=True))
            sets = [
                self._atom_sets(side, rows, workers)
                for side, rows in zip(self._dictionaries, sides, strict=True)
            ]
        self._atom_weights = atom_weights(*sets)
        sizes = [float(part.sum(axis=1).mean()) for part in sets]
        self._details = {"n_learned_from": images.shape[0], "objective": history, "atoms_per_code": sizes}

    def _prepare(self, side: Side, raw: Raw, workers: Workers) -> Any:
        """Learn how a side is prepared, and prepare its rows (n, d)."""
        self._preparations[side] = learn_whitening(raw, self.n_components, self.ridge, f"{side}s", workers)
        return self._preparations[side].apply(raw, workers)

    def _alternate(
        self, sides: Sides, labels: NDArray[np.bool_] | None, rng: np.random.Generator, workers: Workers
    ) -> tuple[State, list[float]]:
        weights = EdgeWeights(self.neighbour_weight, self.pair_weight, self.label_weight)
        graph = build_hypergraph(sides, self.n_neighbours, weights, workers, labels)
        state, penalties = initial_state(sides, self.n_bits, self.sparsity, self.shrinkage, rng, workers)
        self._sparsities = dict(zip(self._preparations, penalties.sparsities, strict=True))
        return alternate_updates(state, sides, penalties, graph, self.max_iter)

    def _atom_sets(self, side: Side, prepared: Any, workers: Workers) -> Float64:
        dictionary, sparsity = self._dictionaries[side], self._sparsities[side]
        codes = sparse_codes(prepared, dictionary, sparsity, self.shrinkage, workers)
        return mark_large_coefficients(codes, self.set_size or max(_LEAST_ATOMS, self.n_bits // 8))

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        with Workers(self.n_jobs) as workers:
            return self._atom_sets(side, self._preparations[side].apply(rows, workers), workers)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Weighted Jaccard distances (n, N) between packed sets; ties stay ties."""
        if self._atom_weights is None:
            raise self._not_fitted_error()
        return jaccard_distances(queries, items, self._atom_weights)


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
        Weights of the hyperedges.
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


def build_hypergraph(
    sides: tuple[PreparedRows, PreparedRows],
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
    near = [
        sparse.csr_array((one + nearest_neighbours(side, n_nearest, workers, labels)).T) for side in sides
    ]
    parts = [
        (sparse.block_diag(near), weights.neighbours / (n_nearest + 1)),
        (_repeat_for_both_sides(one), weights.pairs),
    ]
    if labels is not None:
        known = sparse.csr_array(labels[:, labels.any(axis=0)].astype(np.float64))
        parts.append((_repeat_for_both_sides(known), weights.labels))
    incidence = sparse.hstack([part for part, _ in parts], format="csr")
    each = [np.full(part.shape[1], weight) for part, weight in parts]
    return Hypergraph(sparse.csr_array(incidence), np.concatenate(each))


def _repeat_for_both_sides(members: sparse.csr_array) -> sparse.csr_array:
    """Hyperedges (2N, E) of both halves of the documents (N, E) that are in them."""
    return sparse.csr_array(sparse.kron(np.ones((2, 1)), members))


class Penalties(NamedTuple):
    """λ of either side, and ρ."""

    sparsities: tuple[float, float]
    shrinkage: float


@dataclass(frozen=True, eq=False)
class State:
    """What the alternation changes."""

    codes: Float64  # (2N, c), S
    dictionaries: Dictionaries  # (c, d_I) and (c, d_T), D and E


def sparse_codes(
    rows: PreparedRows, dictionary: Float64, sparsity: float, shrinkage: float, workers: Workers
) -> Float64:
    """Codes (n, c) of rows (n, d) by themselves alone: argmin ½ |x - s D|² + λ |s|₁ + ½ ρ |s|²."""
    gram = dictionary_gram(dictionary) + np.float32(shrinkage) * np.eye(len(dictionary), dtype=np.float32)
    weights = SparseWeights(2.0 * sparsity)  # of an objective twice as large
    return np.asarray(image_lasso(rows, dictionary, weights, workers, gram).toarray(), dtype=np.float64)


def initial_state(
    sides: Sides, n_atoms: int, sparsity: float, shrinkage: float, rng: np.random.Generator, workers: Workers
) -> tuple[State, Penalties]:
    """Start from k-means of documents, both halves beside each other, and one code for both halves.

    Atoms beyond the number of documents have random directions. The sparsity is a share of the penalty that
    would leave a row without any code, in the mean over the rows of a side with these atoms, so that codes of
    both sides are about as sparse whatever the features are.
    """
    documents = np.hstack([side.dense() for side in sides]).astype(np.float32)
    halves = np.split(_initial_centres(documents, n_atoms, rng, workers), [sides[0].shape[1]], axis=1)
    D, E = (np.ascontiguousarray(unit_rows(half)) for half in halves)
    lam = sparsity * _largest_product(sides[0], D), sparsity * _largest_product(sides[1], E)
    shared = sparse_codes(DenseRows(documents), np.hstack([D, E]), sum(lam), 2.0 * shrinkage, workers)
    return State(np.vstack([shared, shared]), (D, E)), Penalties(lam, shrinkage)


def _initial_centres(documents: Float32, n_atoms: int, rng: np.random.Generator, workers: Workers) -> Float64:
    """Centres (c, d), at random where there are fewer documents."""
    found = kmeans(documents, min(n_atoms, len(documents)), rng, workers)
    return np.vstack([found, rng.standard_normal((n_atoms - len(found), documents.shape[1]))])


def _largest_product(rows: PreparedRows, dictionary: Float64) -> float:
    """Mean over the rows of the largest product with an atom."""
    return float(np.abs(rows.times(dictionary.T)).max(axis=1).mean())


def alternate_updates(
    state: State, sides: Sides, penalties: Penalties, graph: Hypergraph, max_iter: int
) -> tuple[State, list[float]]:
    """Take both updates in turn; the objective per document comes before the first and after each round."""
    history = [objective(state, sides, penalties, graph)]
    for _ in range(max_iter):
        state = update_dictionaries(update_codes(state, sides, penalties, graph), sides)
        history.append(objective(state, sides, penalties, graph))
    return state, history


def objective(state: State, sides: Sides, penalties: Penalties, graph: Hypergraph) -> float:
    """The whole objective, over the number of documents."""
    problem = _Problem.of(state.dictionaries, sides, penalties, graph)
    squares = sum(float(side.squares().sum()) for side in sides)
    return (problem.value(state.codes, problem.curved(state.codes)) + 0.5 * squares) / sides[0].shape[0]


def update_codes(
    state: State, sides: Sides, penalties: Penalties, graph: Hypergraph, n_steps: int = _STEPS
) -> State:
    """Accelerated proximal gradient steps on all codes together, none of which may raise the objective.

    The curvature is at most G + (ρ + degree) I for each vertex, G the products of its side's atoms, so
    every vertex has a step length of its own. A step that would raise the objective is not taken: the
    momentum is given up instead, and a step without any cannot raise it.
    """
    problem = _Problem.of(state.dictionaries, sides, penalties, graph)
    S = look = state.codes
    curved = curved_look = problem.curved(S)  # linear in S, so that one product serves value and gradient
    value, momentum = problem.value(S, curved), 1.0
    for _ in range(n_steps):
        new = problem.step(look, curved_look)
        curved_new = problem.curved(new)
        value_new = problem.value(new, curved_new)
        if value_new > value:
            if look is S:
                break  # nothing is left but rounding
            look, curved_look, momentum = S, curved, 1.0
            continue
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = (momentum - 1.0) / following
        look, curved_look = new + ahead * (new - S), curved_new + ahead * (curved_new - curved)
        S, curved, value, momentum = new, curved_new, value_new, following
    return replace(state, codes=S)


def update_dictionaries(state: State, sides: Sides) -> State:
    """D and E given the codes: least squares with rows in the unit ball."""
    halves = np.split(state.codes, 2)
    D, E = (
        bounded_least_squares(half.T @ half, side.cross(half), dictionary)
        for half, side, dictionary in zip(halves, sides, state.dictionaries, strict=True)
    )
    return replace(state, dictionaries=(D, E))


@dataclass(frozen=True, eq=False)
class _Problem:
    """The objective in the codes alone: ½ <S, Q(S)> - <S, q> + |λ S|₁, Q linear, and a constant."""

    grams: tuple[Float64, Float64]  # (c, c), of the atoms
    products: Float64  # (2N, c), q
    sparsities: Float64  # (2N, 1), λ
    shrinkage: float
    graph: Hypergraph
    steps: Float64  # (2N, 1), step lengths

    @classmethod
    def of(
        cls, dictionaries: Dictionaries, sides: Sides, penalties: Penalties, graph: Hypergraph
    ) -> _Problem:
        D, E = dictionaries
        grams = D @ D.T, E @ E.T
        products: Any = np.vstack([sides[0].times(D.T), sides[1].times(E.T)])  # as precise as the atoms
        largest = np.repeat([np.linalg.eigvalsh(gram)[-1] for gram in grams], len(products) // 2)
        steps = 1.0 / (largest + penalties.shrinkage + graph.degrees)
        sparsities = np.repeat(penalties.sparsities, len(products) // 2)
        return cls(grams, products, sparsities[:, None], penalties.shrinkage, graph, steps[:, None])

    def curved(self, S: Float64) -> Float64:
        """Q(S): the codes times the products of their atoms, plus ρ S + L S."""
        A, B = np.split(S, 2)
        own = np.vstack([A @ self.grams[0], B @ self.grams[1]])
        return own + self.shrinkage * S + self.graph.laplacian_times(S)

    def value(self, S: Float64, curved: Float64) -> float:
        """The objective but for its constant; ``curved`` is Q(S)."""
        return float(np.vdot(S, 0.5 * curved - self.products) + np.sum(self.sparsities * np.abs(S)))

    def step(self, S: Float64, curved: Float64) -> Float64:
        """Gradient step and soft threshold."""
        moved = S - self.steps * (curved - self.products)
        return np.sign(moved) * np.maximum(np.abs(moved) - self.sparsities * self.steps, 0.0)


def mark_large_coefficients(codes: Float64, size: int) -> Float64:
    """1 at the ``size`` largest coefficients above zero of each row (n, c), equal ones in order; 0 elsewhere.

    A coefficient below zero says that a row is unlike an atom, which is no reason to find it by that atom.
    """
    order = np.argsort(-codes, axis=1, kind="stable")[:, :size]
    large = np.zeros_like(codes)
    np.put_along_axis(large, order, 1.0, axis=1)
    large[codes <= 0.0] = 0.0
    return large


def atom_weights(images: Float64, texts: Float64) -> Float32:
    """Whole numbers (c,): how much more often an atom is in both sets of a document than chance has it.

    With shares p of images, q of texts and r of documents that have an atom (in both halves), it is
    log(r / (p q)), in units of a fraction of the largest; 0 where that is below 0. A document that has all
    atoms and one that has none are counted beside the others.

    Parameters
    ----------
    images, texts : (n, c) float64
        Sets of both halves of the training documents: 1 where an atom is in, 0 elsewhere.
    """
    p, q, r = ((part.sum(axis=0) + 1.0) / (len(images) + 2.0) for part in (images, texts, images * texts))
    excess = np.maximum(np.log(r / (p * q)), 0.0)
    if not excess.any():
        return np.ones(len(excess), dtype=np.float32)  # all atoms are as good, or as bad
    return np.rint(excess / excess.max() * _FINEST).astype(np.float32)


def jaccard_distances(queries: Any, items: Any, weights: Float32) -> Float32:
    """One minus the weight of what two sets share over the weight of what either has.

    Parameters
    ----------
    queries : (n, B) uint8
        Packed, a bit per atom.
    items : (N, B) uint8
    weights : (c,) float32
        Whole numbers of a sum below 2**24: all sums are exact, in whatever order they are taken.

    Returns
    -------
    (n, N) float32
        1 where there is nothing in common, also for two sets without any weight.
    """
    n_bytes = -(-len(weights) // 8)
    left, right = (
        np.unpackbits(check_codes(sets, n_bytes), axis=1, count=len(weights)).astype(np.float32)
        for sets in (queries, items)
    )
    weighted, sizes = left * weights, right @ weights
    distances = np.empty((len(left), len(right)), dtype=np.float32)
    for rows in row_blocks(len(left), max(1, _BLOCK_ENTRIES // max(1, len(right)))):
        shared = weighted[rows] @ right.T
        either = weighted[rows].sum(axis=1)[:, None] + sizes - shared
        distances[rows] = 1.0 - shared / np.maximum(either, 1.0)
    return distances


def learn_whitening(
    raw: Raw, n_components: int | None, ridge: float, name: str, workers: Workers
) -> Preparation:
    """Learn from (n, d) rows to centre, reduce and whiten them, before they are brought to unit length.

    Whichever of the rotations that whitening leaves open is taken does not matter: neighbours, k-means and
    sparse codes are the same after any.
    """
    learned = Preparation.fit(raw, n_components, name, workers)
    directions = np.eye(raw.shape[1]) if learned.components is None else learned.components
    placed = project_rows(centre_rows(raw, learned), np.ascontiguousarray(directions.T), workers).astype(
        np.float64
    )
    root = linalg.cholesky(add_ridge(placed.T @ placed / len(placed), ridge), lower=True)
    return replace(learned, components=linalg.solve_triangular(root, directions, lower=True))
