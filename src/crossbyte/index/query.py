"""Check the arguments of a search, and turn them into queries, rankings and hits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32
from crossbyte.compute.executor import Workers
from crossbyte.errors import InvalidInput, UnknownId
from crossbyte.index.docids import check_id
from crossbyte.index.fusion import MODES, Answer, WordSearch, count_candidates, judge_by_vectors
from crossbyte.index.hits import Hits
from crossbyte.index.ivf.router import ALL_CELLS
from crossbyte.index.lexical import WordSettings
from crossbyte.index.probabilities import CohortLevels, MatchProbability, coding_offset
from crossbyte.index.scan import CellDirections, Example, Query, Ranking, SearchBackend, keep_first_of_groups
from crossbyte.index.segment import known_halves
from crossbyte.index.storage.database import has_word_search
from crossbyte.model.estimator import CMCQ
from crossbyte.validation import as_array, check_choice, check_integer, check_number

_CANDIDATES = 10  # for each of k, where distances are rescored
_LARGEST = float(np.finfo(np.float32).max)

Rescore = Callable[[int, Hits], Any]
"""Given the number of a query and its candidates: the distances that count, one per candidate."""


@dataclass(eq=False, slots=True)  # not frozen: that alone would take two microseconds of every query
class SearchRequest:
    """The arguments of a search, as they were given; :meth:`crossbyte.Index.search` explains each."""

    images: Any = None
    texts: Any = None
    like: Any = None
    target: str | None = None
    k: int = 10
    where: str | None = None
    max_distance: float | None = None
    distinct: str | None = None
    rescore: Rescore | None = None
    candidates: int | None = None
    payloads: bool = False
    min_probability: float | None = None
    prior: float | None = None
    match_threshold: float = 0.5
    n_probe: int | str | None = None
    words: str | Sequence[str] | None = None
    mode: str | None = None

    def check(self, cells: CellDirections | None) -> SearchRequest:
        """Check all arguments but the queries' features, and fill in defaults.

        Parameters
        ----------
        cells : CellDirections or None
            Those of the index; None if it has none.

        Raises
        ------
        InvalidInput
        """
        n_probe = _check_probe(self.n_probe, cells, self.target, self.like)
        if sum(value is not None for value in (self.images, self.texts, self.like)) != 1:
            raise InvalidInput("expected one kind of query: images=, texts= or like=")
        if self.target is not None:
            check_choice(self.target, "target", ("image", "text", "document"))
        if self.distinct is not None:
            check_choice(self.distinct, "distinct", ("group",))
        if self.mode is not None:
            check_choice(self.mode, "mode", MODES)
        if self.words is not None and self.texts is None:
            raise InvalidInput("words: expected texts=, the features of these words, too")
        if self.mode in ("both", "words") and (self.words is None or self.rescore is not None):
            why = "none are given; ask with a text" if self.words is None else "rescore= orders vectors alone"
            raise InvalidInput(f"mode: {self.mode!r} searches by words, but {why}")
        if self.rescore is not None and not callable(self.rescore):
            raise InvalidInput(f"rescore: expected a function, got {type(self.rescore).__name__}")
        k = check_integer(self.k, "k", 1)
        candidates, limit, least = _CANDIDATES * k, np.inf, self.min_probability
        if self.candidates is not None:
            candidates = check_integer(self.candidates, "candidates", k)
        if self.max_distance is not None:
            limit = _check_limit(self.max_distance)
        if least is not None:
            least = check_number(least, "min_probability", 0.0, 1.0)
        checked = SearchRequest(
            images=self.images,
            texts=self.texts,
            like=self.like,
            target=self.target,
            k=k,
            where=self.where,
            max_distance=limit,
            distinct=self.distinct,
            rescore=self.rescore,
            candidates=candidates,
            payloads=self.payloads,
            min_probability=least,
            prior=None if self.prior is None else check_number(self.prior, "prior", 0.0, 1.0, open_low=True),
            match_threshold=check_number(self.match_threshold, "match_threshold", 0.0, 1.0),
            n_probe=n_probe,
            words=self.words,
            mode=self.mode,
        )
        if self.min_probability is not None and (self.rescore is not None or self.like is not None):
            raise InvalidInput(
                "min_probability: only distances of crossbyte from a query's own features have one; "
                f"use max_distance with {'rescore' if self.rescore is not None else 'like'}="
            )
        return checked

    def queries(self, model: CMCQ, backend: SearchBackend) -> list[Query]:
        """Take the queries of a checked request into the common space, those of one kind together.

        Raises
        ------
        InvalidInput, UnknownId
        """
        if self.images is not None:
            points = model.transform_images(as_rows(self.images))
            target = self.target or _usual_target(backend, "text", "image")
            return [self._query(model, backend, "image", target, points)]
        if self.texts is not None:
            points = model.transform_texts(as_rows(self.texts))
            target = self.target or _usual_target(backend, "image", "text")
            return [self._query(model, backend, "text", target, points)]
        examples = _find_examples(backend, self.like)
        sides = np.array([_choose_side(example, self.target) for example in examples])
        queries = []
        for side in sorted(set(sides.tolist())):
            places = np.flatnonzero(sides == side)
            codes = np.stack([examples[place].codes[side] for place in places.tolist()])
            with Workers(model.n_jobs) as workers:
                points = model.fitted_.quantizers[side].decode(codes, workers)
            queries.append(self._query(model, backend, side, self.target or side, points, places))
        return queries

    def answer(self, model: CMCQ, backend: SearchBackend) -> list[Hits]:
        """Search in ``backend``, and give one answer per query."""
        checked = self.check(backend.cells)
        hits: dict[int, Hits] = {}
        for query in checked.queries(model, backend):
            answers = checked._rank(query, model, backend)
            if answers:
                assert query.places is not None
                found = _make_hits(backend, answers, bool(self.payloads))
                hits |= dict(zip(query.places.tolist(), found, strict=True))
        return [hits[place] for place in sorted(hits)]

    def _query(
        self,
        model: CMCQ,
        backend: SearchBackend,
        kind: str,
        target: str,
        points: Float32,
        places: NDArray[np.intp] | None = None,
    ) -> Query:
        assert self.candidates is not None and self.max_distance is not None  # it is checked
        # Where distances are rescored, groups and limits apply to the new ones.
        k, limit = (self.k, self.max_distance) if self.rescore is None else (self.candidates, np.inf)
        own = np.arange(len(points)) if places is None else places
        offset = coding_offset(model, kind, target, len(backend))
        return Query(points, target, k, limit, offset, kind, self.n_probe, own)

    def _rank(self, query: Query, model: CMCQ, backend: SearchBackend) -> list[Answer]:
        distinct = self.distinct is not None
        if self.rescore is not None:
            assert query.places is not None
            rankings = backend.rank(query, self.where, distinct=False, grouped=distinct)
            found = zip(query.places.tolist(), rankings, strict=True)
            return [Answer(self._rescore(backend, place, ranking)) for place, ranking in found]
        if self.like is not None:
            return list(map(Answer, backend.rank(query, self.where, distinct=distinct, grouped=False)))
        probability = MatchProbability(self.k, self.min_probability, self.prior, self.match_threshold)
        settings = backend.words
        words = self._list_words(len(query.points), settings)
        deep = query if model.calibration_ is None else query._replace(k=probability.depth)
        if words is not None:
            deep = query._replace(k=count_candidates(self.k))
        rankings = backend.rank(
            deep, self.where, distinct=distinct and words is None, grouped=distinct and words is not None
        )
        if not rankings:
            return []
        levels = CohortLevels(model, query.points, backend.n_threads)
        judged = probability.judge(rankings, model, backend, query.kind, query.target, levels)
        if words is None:
            known = backend.word_settings if query.kind == "text" else None
            prior = probability.prior_of(len(backend))
            return [judge_by_vectors(each, known, prior, probability) for each in judged]
        assert settings is not None  # there are words
        search = WordSearch(model, backend, settings, self.mode or "both", self.where, distinct, probability)
        return [
            search.answer(query.take([place]), near, text, levels.take(place))
            for place, (near, text) in enumerate(zip(judged, words, strict=True))
        ]

    def _list_words(self, n_queries: int, settings: WordSettings | None) -> list[str] | None:
        """List the texts that are searched by their words; None where vectors are asked alone.

        Raises
        ------
        InvalidInput
            Words are asked for that the index does not keep, or not one text is given per query.
        """
        if settings is None and self.mode in ("both", "words"):
            why = (
                "this index keeps no words (of captions, say); search by vectors, or fit it again from "
                "pictures with captions, or make it with Index.create(…, words=[…])"
                if has_word_search()
                else "this SQLite cannot search words (it was built without FTS5); search by vectors, or use "
                "a Python whose SQLite has FTS5"
            )
            raise InvalidInput(f'mode: expected "vectors", got {self.mode!r}: {why}')
        if settings is None or self.words is None or self.mode == "vectors":
            return None
        words = [self.words] if isinstance(self.words, str) else list(self.words)
        if len(words) != n_queries or not all(isinstance(each, str) for each in words):
            raise InvalidInput(f"words: expected {n_queries} texts, one per query, got {len(words)}")
        return words

    def _rescore(self, backend: SearchBackend, number: int, ranking: Ranking) -> Ranking:
        """Order candidates by the caller's distances, and keep the nearest of them."""
        assert self.rescore is not None
        candidates = _make_hits(backend, [Answer(ranking)], bool(self.payloads))[0]
        finer = _rescore_ranking(number, self.rescore, ranking, candidates)
        near = finer.take(np.flatnonzero(finer.distances <= np.float32(self.max_distance)))
        chosen = near if self.distinct is None else keep_first_of_groups(near, backend.groups(near))
        return chosen.take(slice(self.k))


def _usual_target(backend: SearchBackend, other: str, own: str) -> str:
    """Give what a query is compared with: the other half, or its own kind where no document has the other."""
    halves = {half for coding in backend.codings for half in known_halves(coding)}
    return own if own in halves and other not in halves else other


def _check_probe(
    n_probe: Any, cells: CellDirections | None, target: str | None, like: Any
) -> int | str | None:
    """Check how many cells to visit: None (as built), "all", or a number."""
    known = () if cells is None else {side for _, side in cells.directions}
    whole = like is not None or (target == "document" and target not in known)
    if n_probe is None or (isinstance(n_probe, str) and n_probe == ALL_CELLS):
        return ALL_CELLS if whole or cells is None else n_probe
    if isinstance(n_probe, str):
        raise InvalidInput(f'n_probe: expected a number of cells, "all" or None, got {n_probe!r}')
    count = check_integer(n_probe, "n_probe", 1)
    if cells is None:
        raise InvalidInput('n_probe: this index has no cells; call build_cells(), or leave it "all" or None')
    if whole:
        asked = "like=" if like is not None else 'target="document"'
        raise InvalidInput(f'n_probe: {asked} looks at everything; leave n_probe "all" or None')
    return count


def _check_limit(max_distance: Any) -> float:
    """Check a limit, and bring it into the range of float32, which distances are compared in."""
    return min(max(check_number(max_distance, "max_distance", -np.inf), -_LARGEST), _LARGEST)


def as_rows(features: Any) -> Any:
    """Give queries as rows: a single one may come without its second dimension."""
    array: Any = features if sparse.issparse(features) else as_array(features, "queries")
    return array.reshape(1, -1) if array.ndim == 1 else array


def _find_examples(backend: SearchBackend, like: Any) -> list[Example]:
    """Look up the documents that are the queries."""
    many = isinstance(like, Iterable) and not isinstance(like, str | bytes | Mapping)
    names = [check_id(name) for name in (like if many else [like])]
    examples = backend.examples(names)
    for name, example in zip(names, examples, strict=True):
        if example is None:
            raise UnknownId(f"like: no document has the id {name!r}")
    return [example for example in examples if example is not None]


def _choose_side(example: Example, target: str | None) -> str:
    sides = list(example.codes)
    return target if target is not None and target in sides else sides[0]


def _rescore_ranking(number: int, rescore: Rescore, ranking: Ranking, candidates: Hits) -> Ranking:
    """Order the candidates of a query by the distances that the caller gives."""
    given = rescore(number, candidates)
    try:
        distances = np.asarray(given)
    except ValueError as error:
        raise InvalidInput(f"rescore: expected one number per candidate ({error})") from error
    if distances.shape != (len(candidates),) or distances.dtype.kind not in "fiu":
        raise InvalidInput(
            f"rescore: expected {len(candidates)} distances, one per candidate, got "
            f"{distances.dtype} of shape {distances.shape}"
        )
    if not (np.abs(distances) <= np.finfo(np.float32).max).all():
        raise InvalidInput("rescore: expected finite distances of float32; leave out no candidate")
    finer: NDArray[np.float32] = distances.astype(np.float32)
    changed = Ranking(finer, ranking.numbers, ranking.codings, ranking.rows)
    return changed.nearest(len(candidates))


def _make_hits(backend: SearchBackend, answers: Sequence[Answer], payloads: bool) -> list[Hits]:
    """Give the ranked documents of several queries as a user knows them; all ids are resolved at once."""
    rankings = [answer.ranking for answer in answers]
    whole = rankings[0] if len(rankings) == 1 else Ranking.join(rankings)
    ids = backend.ids(whole)
    bodies = backend.payloads(whole) if payloads else None
    hits, start = [], 0
    for answer, ranking in zip(answers, rankings, strict=True):
        rows = slice(start, start + len(ranking.rows))
        own = None if bodies is None else bodies[rows]
        hits.append(
            Hits(
                ids[rows],
                ranking.distances,
                ranking.numbers,
                own,
                ranking.probabilities,
                None if answer.verdict is None else answer.verdict == "nothing",
                backend.partial,
                answer.verdict,
                answer.strengths,
                answer.found_by,
                answer.unknown_words,
                ranking.log_ratios,
                answer.scores,
                ranking.codings,
            )
        )
        start = rows.stop
    return hits
