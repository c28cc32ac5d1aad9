"""Explain why a document is near a query: codewords, examples, features and words.

Preparation and mapping are linear up to a row's length: x' = f (scale r - mean) G for a raw row r, where G
(d, D) is all matrices in one and f a number of the row. So x'·v is a sum over the features, exactly; only the
paper's image query is not linear, and there the active atoms of the dictionary take the features' place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Codes, Float32, Float64, Raw
from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import N_CODEWORDS
from crossbyte.data.preparation import Preparation
from crossbyte.errors import InvalidInput, UnknownId
from crossbyte.index.docids import Id, check_id
from crossbyte.index.explain import explanation
from crossbyte.index.query import SearchRequest, as_rows
from crossbyte.index.scan import Query, SearchBackend, Standing
from crossbyte.index.segment import scanned_sides
from crossbyte.model.estimator import CMCQ
from crossbyte.model.fit import FittedModel
from crossbyte.model.quantization.quantizer import DistanceTable, Quantizer
from crossbyte.model.space.cca import LinearSpace
from crossbyte.model.space.gaussian import GaussianSpace
from crossbyte.model.space.sparse import SparseSpace, image_lasso
from crossbyte.validation import check_features, check_integer

Names = Mapping[int, str]
"""words by column of the text features"""


def explain(
    model: CMCQ,
    backend: SearchBackend,
    id: Id,
    *,
    images: Any,
    texts: Any,
    like: Any,
    target: str | None,
    n_examples: int,
    n_features: int,
    vocabulary: Any,
) -> explanation.Explanation:
    """Say why a document is as near to one query as it is; see :meth:`crossbyte.Index.explain`."""
    examples = check_integer(n_examples, "n_examples", 0)
    features = check_integer(n_features, "n_features", 0)
    names = check_vocabulary(vocabulary, model.n_text_features_)
    query = _one_query(model, backend, images, texts, like, target)
    case = _make_case(model, backend, query, check_id(id))
    row = _feature_row(query.kind, images if texts is None else texts)
    product = _explain_inner_product(case, row, names, features)
    words = find_item_words(model.fitted_, case.towards, names, features)
    return _explain_case(case, _find_standing(case), examples, product, words)


class _Item(NamedTuple):
    """The document that is explained, and the codes (1, M) of its sides that the target asks for."""

    id: Id
    number: int
    coding: str
    codes: Mapping[str, Codes]


class _Case(NamedTuple):
    """One query and one item, which are compared.

    ``towards`` (D,) is the sum of the decoded points of the compared sides.
    """

    model: CMCQ
    backend: SearchBackend
    query: Query
    item: _Item
    sides: Sequence[CodeComparison]
    towards: Float64

    @property
    def own_offset(self) -> float:
        """Give the offset of the item's coding."""
        return self.query.offset(self.item.coding)


def _explain_case(
    case: _Case,
    standing: Standing,
    n_examples: int,
    product: explanation.InnerProduct,
    words: tuple[explanation.Word, ...],
) -> explanation.Explanation:
    item, query = case.item, case.query
    shares = tuple(share for side in case.sides for share in side.shares(n_examples))
    assert standing.distance is not None  # the document is there
    distance = standing.distance
    constants = _make_constants(case, distance, sum(share.share for share in shares))
    return explanation.Explanation(
        id=item.id,
        query=query.kind,
        target=query.target,
        coding=item.coding,
        distance=distance,
        constant=constants.total,
        constants=constants,
        shares=shares,
        rank=standing.n_before + 1,
        n_ranked=_count_ranked(case.backend, query.target),
        examples=_find_examples(case.sides, n_examples),
        query_features=product,
        item_words=words,
        to_be_nearer=_explain_nearer(case, standing),
    )


# The query and the item


def _one_query(
    model: CMCQ, backend: SearchBackend, images: Any, texts: Any, like: Any, target: str | None
) -> Query:
    request = SearchRequest(images, texts, like, target, k=1, n_probe="all").check(backend.cells)
    queries = request.queries(model, backend)
    count = sum(len(query.points) for query in queries)
    if count != 1:
        raise InvalidInput(f"explain takes one query at a time: expected 1 row or id, got {count}")
    return queries[0]


def _feature_row(kind: str, features: Any) -> Raw | None:
    """Check the features (1, d) of the query; None for a query by example."""
    return None if features is None else check_features(as_rows(features), f"{kind}s")


def _make_case(model: CMCQ, backend: SearchBackend, query: Query, id: Id) -> _Case:
    item = _find_item(backend, id, query.target)
    learned = model.fitted_
    sides = [
        CodeComparison(side, learned.quantizers[side], query.points, code, learned.reference_codes[side])
        for side, code in item.codes.items()
    ]
    towards = np.sum([side.decoded for side in sides], axis=0)
    return _Case(model, backend, query, item, sides, towards)


def _find_item(backend: SearchBackend, id: Id, target: str) -> _Item:
    found = backend.examples([id])[0]
    if found is None:
        raise UnknownId(f"no document has the id {id!r}")
    codes = {side: found.codes[side][None] for side in scanned_sides(found.coding, target)}
    if not codes:
        has = " and ".join(found.codes)
        raise InvalidInput(f"target={target!r}: the document {id!r} has only: {has}; ask for target={has!r}")
    return _Item(id, found.number, found.coding, codes)


# The distance and the rank


def _canonical_distance(distances: Sequence[np.float32], offset: float) -> np.float32:
    """Add the sides' distances and the offset, in the order of the search and in float32."""
    total = distances[0] if len(distances) == 1 else distances[0] + distances[1]
    return np.float32(total + np.float32(offset))


def _find_standing(case: _Case) -> Standing:
    """Find the position of the item among all that a search would find."""
    limit = _canonical_distance([side.distance for side in case.sides], case.own_offset)
    return case.backend.standing(case.query._replace(max_distance=float(limit)), case.item.number)


def _make_constants(case: _Case, distance: float, shares: float) -> explanation.Constants:
    squared_length = sum(side.squared_length for side in case.sides)
    cross_term = sum(side.cross_term for side in case.sides)
    exact = explanation.Constants(squared_length, cross_term, case.own_offset, 0.0)
    return replace(exact, rounding=distance - shares - exact.total)


def _count_ranked(backend: SearchBackend, target: str) -> int:
    codings = backend.codings.items()
    return sum(count for coding, count in codings if scanned_sides(coding, target))


# The reasons


def _find_examples(sides: Sequence[CodeComparison], n_examples: int) -> tuple[explanation.Example, ...]:
    together = np.sum([side.n_shared for side in sides], axis=0)
    best = np.argsort(-together, kind="stable")[:n_examples].tolist()
    return tuple(
        explanation.Example(row, {side.side: int(side.n_shared[row]) for side in sides})
        for row in best
        if together[row] > 0
    )


def _explain_inner_product(
    case: _Case, row: Raw | None, names: Names, n_features: int
) -> explanation.InnerProduct:
    point = case.query.points[0]
    if row is None:
        return omit_inner_product(float(point.astype(np.float64) @ case.towards))
    learned = case.model.fitted_
    return attribute_inner_product(learned, case.query.kind, row, point, case.towards, names, n_features)


def _explain_nearer(case: _Case, standing: Standing) -> explanation.Nearer:
    best = _canonical_distance([side.best_distance for side in case.sides], case.own_offset)
    swaps = tuple(swap for side in case.sides for swap in side.swaps)
    return explanation.Nearer(swaps, float(best), _find_ahead(standing))


def _find_ahead(standing: Standing) -> explanation.Ahead | None:
    other = standing.before
    if other is None or standing.distance is None:
        return None
    return explanation.Ahead(other.id, other.distance, standing.distance - other.distance)


# The codes


@dataclass(frozen=True, eq=False)
class CodeComparison:
    """A query and one side of an item.

    Attributes
    ----------
    side : {"image", "text", "document"}
    quantizer : Quantizer
        Of that side.
    point : (1, D) float32
        The query.
    code : (1, M) uint8
        The item.
    training : (N, M) uint8
        Codes of the training pairs on that side.
    """

    side: str
    quantizer: Quantizer
    point: Float32
    code: Codes
    training: Codes

    @cached_property
    def table(self) -> DistanceTable:
        """The distance table of this query, as a search makes it."""
        return self.quantizer.table(self.point)

    @cached_property
    def distance(self) -> np.float32:
        """The distance of this side, as a search computes it."""
        return self._distances(self.code)[0]

    @cached_property
    def squared_length(self) -> float:
        """|x'|² of the query, summed as the search does."""
        return float(np.add.accumulate(self.point * self.point, axis=1)[0, -1])

    @property
    def cross_term(self) -> float:
        """The constant that stands for the cross term; zero where each item has its own."""
        return self.quantizer.epsilon if self.quantizer.cross_levels is None else 0.0

    @property
    def decoded(self) -> Float64:
        """The point (D,) that the item's code stands for."""
        with Workers(1) as workers:
            return self.quantizer.decode(self.code, workers)[0].astype(np.float64)

    @cached_property
    def n_shared(self) -> NDArray[np.int64]:
        """How many codewords each training pair (N,) shares with the item."""
        return np.asarray((self.training == self.code).sum(axis=1))

    # Shares

    def shares(self, n_examples: int) -> list[explanation.Share]:
        """One per codebook, and one for a stored cross term."""
        codewords = self._scan(self.code)[0].tolist()
        return [self._share(m, codeword, n_examples) for m, codeword in enumerate(codewords)]

    def _share(self, m: int, codeword: int, n_examples: int) -> explanation.Share:
        entries = self.table.tables[0, m]
        entry, best = float(entries[codeword]), int(entries.argmin())
        if m == len(self.quantizer.codewords):
            return explanation.Share(
                self.side, None, codeword, entry, entry, best, float(entries[best]), None, ()
            )
        alike = np.flatnonzero(self.training[:, m] == codeword)
        rows = alike[np.argsort(-self.n_shared[alike], kind="stable")[:n_examples]]
        share = entry - self.squared_length
        values = share, entry, best, float(entries[best]), len(alike), tuple(rows.tolist())
        return explanation.Share(self.side, m, codeword, *values)

    # What would be nearer

    @cached_property
    def swaps(self) -> list[explanation.Swap]:
        """For each codebook, the codeword that would bring the item nearest with the others as they are."""
        n_codebooks = len(self.quantizer.codewords)
        codes = np.tile(self.code, (n_codebooks, N_CODEWORDS, 1))
        codes[range(n_codebooks), :, range(n_codebooks)] = np.arange(N_CODEWORDS)
        distances = self._distances(codes.reshape(-1, n_codebooks)).reshape(n_codebooks, N_CODEWORDS)
        return [self._swap(m, each) for m, each in enumerate(distances)]

    def _swap(self, m: int, distances: Float32) -> explanation.Swap:
        own, best = int(self.code[0, m]), int(distances.argmin())
        if distances[best] == distances[own]:
            best = own
        return explanation.Swap(self.side, m, best, float(distances[own]) - float(distances[best]))

    @property
    def best_distance(self) -> np.float32:
        """Distance of the best code for this query: see ``Nearer``."""
        if self.quantizer.cross_levels is None:
            n_codebooks = len(self.quantizer.codewords)
            nearest = self.table.tables[:, :n_codebooks].argmin(axis=2).astype(np.uint8)
            return self._distances(nearest)[0]
        with Workers(1) as workers:
            best = self.quantizer.encode(self.quantizer.to_coding(self.point), workers)
        found = self._distances(best)[0]
        swapped = min(float(self.distance) - swap.gain for swap in self.swaps)
        return np.float32(min(float(found), swapped))

    def _distances(self, codes: Codes) -> Float32:
        return self.table.distances(self._scan(codes))[0]

    def _scan(self, codes: Codes) -> Codes:
        with Workers(1) as workers:
            return self.quantizer.scan_codes(codes, workers)


# The features of the query and the words of the item


class _Parts(NamedTuple):
    """An inner product as a sum: of features that are not zero, and of the mean."""

    kind: str
    columns: NDArray[np.intp]
    values: Float64
    shares: Float64
    mean: float


def check_vocabulary(vocabulary: Any, n_features: int) -> Names:
    """Check names of text features: one per column, or a mapping of words to columns (scikit-learn's)."""
    if vocabulary is None:
        return {}
    if isinstance(vocabulary, Mapping):
        columns = [check_integer(value, "vocabulary", 0, n_features - 1) for value in vocabulary.values()]
        return dict(zip(columns, map(str, vocabulary), strict=True))
    if isinstance(vocabulary, str | bytes) or not hasattr(vocabulary, "__len__"):
        kind = type(vocabulary).__name__
        raise InvalidInput(f"vocabulary: expected a sequence of words or a mapping to columns, got {kind}")
    if len(vocabulary) != n_features:
        raise InvalidInput(
            f"vocabulary: expected {n_features} words, one per text feature, got {len(vocabulary)}"
        )
    return dict(enumerate(map(str, vocabulary)))


def omit_inner_product(total: float) -> explanation.InnerProduct:
    """Give the inner product as a total only, for a query that came without features."""
    return explanation.InnerProduct(total, (), 0.0, total)


def attribute_inner_product(
    learned: FittedModel, side: str, raw: Raw, point: Float32, towards: Float64, names: Names, n_features: int
) -> explanation.InnerProduct:
    """Split x'·v into the shares of the query's features.

    Parameters
    ----------
    side : {"image", "text"}
        Kind of the query.
    raw : (1, d) features
    point : (D,) float32
        x', where the model has placed them.
    towards : (D,) float64
        v, the item's decoded point.
    n_features : int
        How many are listed.
    """
    matrix = _matrix(learned, side)
    if matrix is None:
        parts = _attribute_atoms(learned, raw, towards)
    else:
        parts = _attribute_linear(side, _preparation(learned, side), matrix, raw, point, towards)
    listed = np.argsort(-np.abs(parts.shares), kind="stable")[:n_features]
    others = np.delete(parts.shares, listed)
    known = names if parts.kind == "text" else {}
    features = tuple(_feature(parts, place, known) for place in listed.tolist() if parts.shares[place])
    return explanation.InnerProduct(
        float(point.astype(np.float64) @ towards), features, parts.mean, float(others.sum())
    )


def find_item_words(
    learned: FittedModel, towards: Float64, names: Names, n_words: int
) -> tuple[explanation.Word, ...]:
    """Find the text features that pull most towards a point (D,); those that push away are never listed.

    Where features have names, those without one (hashed n-grams) tell a reader nothing, and are left out.
    """
    matrix = _matrix(learned, "text")
    assert matrix is not None  # texts are always placed by a matrix
    pulls = _directions(learned.text_preparation, matrix, towards)[0]
    strengths = pulls * _feature_scales(learned.text_preparation)
    order = np.argsort(-strengths, kind="stable").tolist()
    best = [column for column in order if not names or names.get(column) is not None][:n_words]
    return tuple(
        explanation.Word(column, names.get(column), float(pulls[column]))
        for column in best
        if strengths[column] > 0
    )


def _feature_scales(preparation: Preparation) -> Float64 | float:
    """Compute the weight of a unit of each feature: for words, the root of how often they occur.

    That is about the standard deviation of rare words. Without it, words that hardly anybody uses crowd out
    the others: their directions are long, and hardly learned. Features that are no counts are all worth 1.
    """
    mean = preparation.mean
    return np.sqrt(mean) if (mean >= 0).all() else 1.0


def _feature(parts: _Parts, place: int, names: Names) -> explanation.Feature:
    column = int(parts.columns[place])
    value, share = float(parts.values[place]), float(parts.shares[place])
    return explanation.Feature(parts.kind, column, names.get(column), value, share)


def _preparation(learned: FittedModel, side: str) -> Preparation:
    return learned.image_preparation if side == "image" else learned.text_preparation


def _matrix(learned: FittedModel, side: str) -> Float64 | None:
    """The (d, D) matrix that places prepared rows of a side; None for the paper's image query."""
    space = learned.space
    if isinstance(space, LinearSpace):
        return space.image_matrix if side == "image" else space.text_matrix
    if isinstance(space, GaussianSpace):
        return space.query_matrix(side)
    ridge = space.image_ridge if side == "image" else space.text_ridge
    if space.query_map == "ridge" and ridge is not None:
        return ridge
    return None if side == "image" else space._text_map


def _directions(preparation: Preparation, matrix: Float64, towards: Float64) -> tuple[Float64, float]:
    """Compute what a unit of each raw feature, and what the mean, add to z·v: scale G v, and -mean G v.

    Where values are taken to a power, it is a unit of that.
    """
    prepared = matrix @ towards
    raw = prepared if preparation.components is None else prepared @ preparation.components
    return preparation.scale * raw, -float(preparation.mean @ raw)


def _attribute_linear(
    side: str, preparation: Preparation, matrix: Float64, raw: Raw, point: Float32, towards: Float64
) -> _Parts:
    columns, values = _nonzero_features(raw)
    pulls, mean = _directions(preparation, matrix, towards)
    factor = _factor(preparation, matrix, columns, values, point)
    taken = preparation.units._replace(scale=1.0).of(values)
    return _Parts(side, columns, values, factor * taken * pulls[columns], factor * mean)


def _factor(
    preparation: Preparation, matrix: Float64, columns: NDArray[np.intp], values: Float64, point: Float32
) -> float:
    """Find f of x' = f z: lengths were divided by after preparation, after mapping, or both."""
    centred = -preparation.mean
    centred[columns] += preparation.units.of(values)
    placed = (centred if preparation.components is None else preparation.components @ centred) @ matrix
    square = float(placed @ placed)
    return float(point.astype(np.float64) @ placed) / square if square > 0 else 0.0


def _attribute_atoms(learned: FittedModel, raw: Raw, towards: Float64) -> _Parts:
    space = learned.space
    assert isinstance(space, SparseSpace)
    with Workers(1) as workers:
        rows = learned.image_preparation.apply(raw, workers)
        codes = image_lasso(rows, space.image_dictionary, space.weights, workers)
    columns, values = _nonzero_features(codes)
    return _Parts("atom", columns, values, values * (space.image_map[columns] @ towards), 0.0)


def _nonzero_features(raw: Raw) -> tuple[NDArray[np.intp], Float64]:
    """Give columns and values of one row where it is not zero."""
    row = raw.toarray()[0] if sparse.issparse(raw) else np.asarray(raw)[0]
    columns = np.flatnonzero(row)
    return columns, row[columns].astype(np.float64)
