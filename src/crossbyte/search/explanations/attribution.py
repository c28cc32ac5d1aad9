"""Which features of a query, and which words, lead towards a point of the common space.

Preparation and mapping are linear up to a row's length: x' = f (scale r - mean) G for a raw row r, where G
(d, D) is all matrices in one and f a number of the row. So x'·v is a sum over the features, exactly; only the
paper's image query is not linear, and there the active atoms of the dictionary take the features' place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32, Float64, Raw
from crossbyte.data.preparation import Preparation
from crossbyte.errors import InvalidInput
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import LinearSpace
from crossbyte.mapping.sparse import image_lasso
from crossbyte.model.learned import Learned
from crossbyte.search.explanations.explanation import Feature, InnerProduct, Word
from crossbyte.validation import check_integer

__all__ = ["Names", "check_vocabulary", "inner_product", "item_words", "unknown_inner_product"]

Names = Mapping[int, str]
"""words by column of the text features"""


class _Parts(NamedTuple):
    """An inner product as a sum: of features that are not zero, and of the mean."""

    kind: str
    columns: NDArray[np.intp]
    values: Float64
    shares: Float64
    mean: float


def check_vocabulary(vocabulary: Any, n_features: int) -> Names:
    """Names of text features: a sequence of as many, or a mapping of words to columns (scikit-learn's)."""
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


def unknown_inner_product(total: float) -> InnerProduct:
    """The inner product of a query that came without features."""
    return InnerProduct(total, (), 0.0, total)


def inner_product(
    learned: Learned, side: str, raw: Raw, point: Float32, towards: Float64, names: Names, n_features: int
) -> InnerProduct:
    """Take x'·v apart.

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
        parts = _atoms(learned, raw, towards)
    else:
        parts = _linear(side, _preparation(learned, side), matrix, raw, point, towards)
    listed = np.argsort(-np.abs(parts.shares), kind="stable")[:n_features]
    others = np.delete(parts.shares, listed)
    known = names if parts.kind == "text" else {}
    features = tuple(_feature(parts, place, known) for place in listed.tolist() if parts.shares[place])
    return InnerProduct(float(point.astype(np.float64) @ towards), features, parts.mean, float(others.sum()))


def item_words(learned: Learned, towards: Float64, names: Names, n_words: int) -> tuple[Word, ...]:
    """The text features that pull most towards a point (D,); those that push away are never listed."""
    matrix = _matrix(learned, "text")
    assert matrix is not None  # texts are always placed by a matrix
    pulls = _directions(learned.text_preparation, matrix, towards)[0]
    strengths = pulls * _usual_sizes(learned.text_preparation)
    best = np.argsort(-strengths, kind="stable")[:n_words].tolist()
    return tuple(
        Word(column, names.get(column), float(pulls[column])) for column in best if strengths[column] > 0
    )


def _usual_sizes(preparation: Preparation) -> Float64 | float:
    """What a unit of each feature is worth: for words, the root of how often they come.

    That is about the standard deviation of rare words. Without it, words that hardly anybody uses crowd out
    the others: their directions are long, and hardly learned. Features that are no counts are all worth 1.
    """
    mean = preparation.mean
    return np.sqrt(mean) if (mean >= 0).all() else 1.0


def _feature(parts: _Parts, place: int, names: Names) -> Feature:
    column = int(parts.columns[place])
    value, share = float(parts.values[place]), float(parts.shares[place])
    return Feature(parts.kind, column, names.get(column), value, share)


def _preparation(learned: Learned, side: str) -> Preparation:
    return learned.image_preparation if side == "image" else learned.text_preparation


def _matrix(learned: Learned, side: str) -> Float64 | None:
    """The (d, D) matrix that places prepared rows of a side; None for the paper's image query."""
    space = learned.space
    if isinstance(space, LinearSpace):
        return space.image_matrix if side == "image" else space.text_matrix
    ridge = space.image_ridge if side == "image" else space.text_ridge
    if space.query_map == "ridge" and ridge is not None:
        return ridge
    return None if side == "image" else space._text_map


def _directions(preparation: Preparation, matrix: Float64, towards: Float64) -> tuple[Float64, float]:
    """What a unit of each raw feature, and what the mean, add to z·v: scale G v, and -mean G v.

    Where values are taken to a power, it is a unit of that.
    """
    prepared = matrix @ towards
    raw = prepared if preparation.components is None else prepared @ preparation.components
    return preparation.scale * raw, -float(preparation.mean @ raw)


def _linear(
    side: str, preparation: Preparation, matrix: Float64, raw: Raw, point: Float32, towards: Float64
) -> _Parts:
    columns, values = _filled(raw)
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


def _atoms(learned: Learned, raw: Raw, towards: Float64) -> _Parts:
    space = learned.space
    assert not isinstance(space, LinearSpace)
    with Workers(1) as workers:
        rows = learned.image_preparation.apply(raw, workers)
        codes = image_lasso(rows, space.image_dictionary, space.weights, workers)
    columns, values = _filled(codes)
    return _Parts("atom", columns, values, values * (space.image_map[columns] @ towards), 0.0)


def _filled(raw: Raw) -> tuple[NDArray[np.intp], Float64]:
    """Columns and values of one row where it is not zero."""
    row = raw.toarray()[0] if sparse.issparse(raw) else np.asarray(raw)[0]
    columns = np.flatnonzero(row)
    return columns, row[columns].astype(np.float64)
