"""A search from its arguments to its answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np
from scipy import sparse

from crossbyte.arrays import Float32
from crossbyte.errors import InvalidInput, UnknownId
from crossbyte.model.cmcq import CMCQ
from crossbyte.search.choosing import Rescore, answers, first_of_groups, rescored
from crossbyte.search.hits import Hits
from crossbyte.search.ids import check_id
from crossbyte.search.judging import Judgement
from crossbyte.search.offsets import coding_offset
from crossbyte.search.ranking import Query, Ranking
from crossbyte.search.searched import Example, Searched
from crossbyte.validation import as_array, check_choice, check_integer, check_number

__all__ = ["Asked", "Question", "Request", "as_rows"]

_CANDIDATES = 10  # for each of k, where distances are refined
_LARGEST = float(np.finfo(np.float32).max)


class Question(TypedDict, total=False):
    """What may be asked of an index; :meth:`crossbyte.Index.search` explains each."""

    images: Any
    texts: Any
    like: Any
    target: str | None
    k: int
    where: str | None
    max_distance: float | None
    distinct: str | None
    rescore: Any
    candidates: int | None
    min_probability: float | None
    prior: float | None
    match_threshold: float


class Asked(NamedTuple):
    """Queries of one kind for one target: their places among all queries, and their points."""

    kind: str
    target: str
    places: list[int]
    points: Float32
    by_example: bool = False


class Request(NamedTuple):
    """A search that has passed every check."""

    model: CMCQ
    asked: Sequence[Asked]
    k: int
    where: str | None
    max_distance: float
    distinct: bool
    rescore: Rescore | None
    candidates: int
    judgement: Judgement
    probe: int | str | None = "all"

    @classmethod
    def check(
        cls,
        model: CMCQ,
        searched: Searched,
        *,
        images: Any = None,
        texts: Any = None,
        like: Any = None,
        target: Any = None,
        k: Any = 10,
        where: Any = None,
        max_distance: Any = None,
        distinct: Any = None,
        rescore: Any = None,
        candidates: Any = None,
        min_probability: Any = None,
        prior: Any = None,
        match_threshold: Any = 0.5,
        probe: int | str | None = "all",
    ) -> Self:
        """Judge the arguments; the meaning of each is said in :meth:`crossbyte.Index.search`."""
        if sum(value is not None for value in (images, texts, like)) != 1:
            raise InvalidInput("expected one kind of query: images=, texts= or like=")
        if target is not None:
            check_choice(target, "target", ("image", "text", "document"))
        if distinct is not None:
            check_choice(distinct, "distinct", ("group",))
        if rescore is not None and not callable(rescore):
            raise InvalidInput(f"rescore: expected a function, got {type(rescore).__name__}")
        wanted = check_integer(k, "k", 1)
        more = _CANDIDATES * wanted if candidates is None else check_integer(candidates, "candidates", wanted)
        limit = np.inf if max_distance is None else _limit(max_distance)
        judgement = _judgement(min_probability, prior, match_threshold)
        if min_probability is not None and (rescore is not None or like is not None):
            raise InvalidInput(
                "min_probability: only distances of crossbyte from a query's own features have one; "
                f"use max_distance with {'rescore' if rescore is not None else 'like'}="
            )
        asked = _asked(model, searched, images, texts, like, target)
        return cls(model, asked, wanted, where, limit, distinct is not None, rescore, more, judgement, probe)

    def answers(self, searched: Searched, payloads: bool) -> list[Hits]:
        """Search, one answer per query."""
        hits: dict[int, Hits] = {}
        for asked in self.asked:
            rankings = self._rankings(searched, asked)
            if self.rescore is not None:
                found = zip(asked.places, rankings, strict=True)
                rankings = [self._refined(searched, place, ranking, payloads) for place, ranking in found]
            elif rankings and not asked.by_example:
                rest = asked.kind, asked.target, asked.points
                rankings = self.judgement.of(rankings, self.model, searched, *rest)
            if rankings:
                hits |= dict(zip(asked.places, answers(searched, rankings, payloads), strict=True))
        return [hits[place] for place in sorted(hits)]

    def _rankings(self, searched: Searched, asked: Asked) -> list[Ranking]:
        offset = coding_offset(self.model, asked.kind, asked.target, len(searched))
        if self.rescore is not None:  # groups are chosen by the finer distances
            query = Query(asked.points, asked.target, self.candidates, np.inf, offset, asked.kind, self.probe)
            return searched.rank(query, self.where, distinct=False, grouped=self.distinct)
        query = Query(asked.points, asked.target, self.k, self.max_distance, offset, asked.kind, self.probe)
        return searched.rank(query, self.where, distinct=self.distinct, grouped=False)

    def _refined(self, searched: Searched, number: int, ranking: Ranking, payloads: bool) -> Ranking:
        assert self.rescore is not None
        finer = rescored(number, self.rescore, ranking, answers(searched, [ranking], payloads)[0])
        near = finer.take(np.flatnonzero(finer.distances <= np.float32(self.max_distance)))
        return (first_of_groups(near, searched.groups(near)) if self.distinct else near).take(slice(self.k))


def _judgement(min_probability: Any, prior: Any, match_threshold: Any) -> Judgement:
    return Judgement(
        None if min_probability is None else check_number(min_probability, "min_probability", 0.0, 1.0),
        None if prior is None else check_number(prior, "prior", 0.0, 1.0, open_low=True),
        check_number(match_threshold, "match_threshold", 0.0, 1.0),
    )


def _limit(max_distance: Any) -> float:
    """A number that float32, and so every distance, can be compared with."""
    return min(max(check_number(max_distance, "max_distance", -np.inf), -_LARGEST), _LARGEST)


def _asked(
    model: CMCQ, searched: Searched, images: Any, texts: Any, like: Any, target: str | None
) -> list[Asked]:
    if images is not None:
        points = model.transform_images(as_rows(images))
        return [Asked("image", target or "text", list(range(len(points))), points)]
    if texts is not None:
        points = model.transform_texts(as_rows(texts))
        return [Asked("text", target or "image", list(range(len(points))), points)]
    return _examples(model, searched, like, target)


def as_rows(features: Any) -> Any:
    """One query may come without its second dimension."""
    array: Any = features if sparse.issparse(features) else as_array(features, "queries")
    return array.reshape(1, -1) if array.ndim == 1 else array


def _examples(model: CMCQ, searched: Searched, like: Any, target: str | None) -> list[Asked]:
    """Ask with the decoded vectors of documents, those of one side together."""
    many = isinstance(like, Iterable) and not isinstance(like, str | bytes | Mapping)
    names = [check_id(name) for name in (like if many else [like])]
    examples = searched.examples(names)
    for name, example in zip(names, examples, strict=True):
        if example is None:
            raise UnknownId(f"like: no document has the id {name!r}")
    found = [example for example in examples if example is not None]
    sides = [_own_side(example, target) for example in found]
    return [
        _example(model, side, target, [i for i, own in enumerate(sides) if own == side], found)
        for side in sorted(set(sides))
    ]


def _own_side(example: Example, target: str | None) -> str:
    sides = list(example.codes)
    return target if target is not None and target in sides else sides[0]


def _example(
    model: CMCQ, side: str, target: str | None, places: list[int], examples: Sequence[Example]
) -> Asked:
    decode = model.decode_images if side == "image" else model.decode_texts
    codes = np.stack([examples[place].codes[side] for place in places])
    return Asked(side, target or side, places, decode(codes), by_example=True)
