"""From a query and an id to the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from crossbyte.arrays import Codes, Float64, Raw
from crossbyte.errors import InvalidInput, UnknownId
from crossbyte.model.cmcq import CMCQ
from crossbyte.search.asking import SearchRequest, as_rows
from crossbyte.search.explanations.attribution import (
    Names,
    check_vocabulary,
    inner_product,
    item_words,
    unknown_inner_product,
)
from crossbyte.search.explanations.comparison import Comparison
from crossbyte.search.explanations.explanation import (
    Ahead,
    Constants,
    Example,
    Explanation,
    InnerProduct,
    Nearer,
    Word,
)
from crossbyte.search.ids import Id, check_id
from crossbyte.search.loading import quantizers_of
from crossbyte.search.ranking import Query
from crossbyte.search.searched import Searched, Standing
from crossbyte.search.segment import SIDES
from crossbyte.validation import check_features, check_integer

__all__ = ["explain"]


def explain(
    model: CMCQ,
    backend: Searched,
    id: Id,
    *,
    images: Any,
    texts: Any,
    like: Any,
    target: str | None,
    n_examples: int,
    n_features: int,
    vocabulary: Any,
) -> Explanation:
    """Say why a document is as near to one query as it is; see :meth:`crossbyte.Index.explain`."""
    examples = check_integer(n_examples, "n_examples", 0)
    features = check_integer(n_features, "n_features", 0)
    names = check_vocabulary(vocabulary, model.n_text_features_)
    asked = _one_query(model, backend, images, texts, like, target)
    case = _case(model, backend, asked, check_id(id))
    row = _feature_row(asked.kind, images if texts is None else texts)
    product = _inner_product(case, row, names, features)
    words = item_words(model._current(), case.towards, names, features)
    return _explanation(case, _standing(case), examples, product, words)


class _Item(NamedTuple):
    """The document that is explained, and the codes (1, M) of its sides that the target asks for."""

    id: Id
    number: int
    coding: str
    codes: Mapping[str, Codes]


class _Case(NamedTuple):
    """One query beside one item.

    ``towards`` (D,) is the sum of the decoded points of the compared sides.
    """

    model: CMCQ
    backend: Searched
    asked: Query
    item: _Item
    sides: Sequence[Comparison]
    towards: Float64

    @property
    def own_offset(self) -> float:
        """Give the offset of the item's coding."""
        return self.asked.offset(self.item.coding)


def _explanation(
    case: _Case, standing: Standing, n_examples: int, product: InnerProduct, words: tuple[Word, ...]
) -> Explanation:
    item, asked = case.item, case.asked
    shares = tuple(share for side in case.sides for share in side.shares(n_examples))
    assert standing.distance is not None  # the document is there
    distance = standing.distance
    constants = _constants(case, distance, sum(share.share for share in shares))
    return Explanation(
        id=item.id,
        query=asked.kind,
        target=asked.target,
        coding=item.coding,
        distance=distance,
        constant=constants.total,
        constants=constants,
        shares=shares,
        rank=standing.n_before + 1,
        n_ranked=_n_ranked(case.backend, asked.target),
        examples=_examples(case.sides, n_examples),
        query_features=product,
        item_words=words,
        to_be_nearer=_nearer(case, standing),
    )


# The query and the item


def _one_query(
    model: CMCQ, backend: Searched, images: Any, texts: Any, like: Any, target: str | None
) -> Query:
    request = SearchRequest(images, texts, like, target, k=1, probe="all").check(backend.cells)
    queries = request.queries(model, backend)
    count = sum(len(query.points) for query in queries)
    if count != 1:
        raise InvalidInput(f"explain takes one query at a time: expected 1 row or id, got {count}")
    return queries[0]


def _feature_row(kind: str, features: Any) -> Raw | None:
    """The features (1, d) of the query; None for a query by example."""
    return None if features is None else check_features(as_rows(features), f"{kind}s")


def _case(model: CMCQ, backend: Searched, asked: Query, id: Id) -> _Case:
    item = _item(backend, id, asked.target)
    training = {"image": model.image_codes_, "text": model.text_codes_}
    sides = [
        Comparison(side, quantizer, asked.points, item.codes[side], training[side])
        for side, quantizer in quantizers_of(model).items()
        if side in item.codes
    ]
    towards = np.sum([side.decoded for side in sides], axis=0)
    return _Case(model, backend, asked, item, sides, towards)


def _item(backend: Searched, id: Id, target: str) -> _Item:
    found = backend.examples([id])[0]
    if found is None:
        raise UnknownId(f"no document has the id {id!r}")
    codes = {side: code[None] for side, code in found.codes.items() if target in (side, "document")}
    if not codes:
        has = " and ".join(found.codes)
        raise InvalidInput(f"target={target!r}: the document {id!r} has only: {has}; ask for target={has!r}")
    return _Item(id, found.number, found.coding, codes)


# The distance and the rank


def _canonical(distances: Sequence[np.float32], offset: float) -> np.float32:
    """The sum of the sides' distances and the offset, in the order of the search and in float32."""
    total = distances[0] if len(distances) == 1 else distances[0] + distances[1]
    return np.float32(total + np.float32(offset))


def _standing(case: _Case) -> Standing:
    """Where the item stands among all that a search would find."""
    asked = case.asked
    limit = _canonical([side.distance for side in case.sides], case.own_offset)
    return case.backend.standing(asked._replace(max_distance=float(limit)), case.item.number)


def _constants(case: _Case, distance: float, shares: float) -> Constants:
    squared_length = sum(side.squared_length for side in case.sides)
    cross_term = sum(side.cross_term for side in case.sides)
    exact = Constants(squared_length, cross_term, case.own_offset, 0.0)
    return replace(exact, rounding=distance - shares - exact.total)


def _n_ranked(backend: Searched, target: str) -> int:
    codings = backend.codings.items()
    return sum(count for coding, count in codings if target == "document" or target in SIDES[coding])


# The reasons


def _examples(sides: Sequence[Comparison], n_examples: int) -> tuple[Example, ...]:
    together = np.sum([side.n_shared for side in sides], axis=0)
    best = np.argsort(-together, kind="stable")[:n_examples].tolist()
    return tuple(
        Example(row, {side.side: int(side.n_shared[row]) for side in sides})
        for row in best
        if together[row] > 0
    )


def _inner_product(case: _Case, row: Raw | None, names: Names, n_features: int) -> InnerProduct:
    point = case.asked.points[0]
    if row is None:
        return unknown_inner_product(float(point.astype(np.float64) @ case.towards))
    learned = case.model._current()
    return inner_product(learned, case.asked.kind, row, point, case.towards, names, n_features)


def _nearer(case: _Case, standing: Standing) -> Nearer:
    best = _canonical([side.best_distance for side in case.sides], case.own_offset)
    swaps = tuple(swap for side in case.sides for swap in side.swaps)
    return Nearer(swaps, float(best), _ahead(standing))


def _ahead(standing: Standing) -> Ahead | None:
    other = standing.before
    if other is None or standing.distance is None:
        return None
    return Ahead(other.id, other.distance, standing.distance - other.distance)
