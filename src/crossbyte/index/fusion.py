"""Fuse the ranking by vectors with the ranking by words: distance less a share of the BM25 score.

Words must never be lost, so some documents come first whatever their distance: those with a caption that is
what was asked, word by word; then those with a caption that goes on before or after it, where they are few;
then those with every phrase in quotes, those that alone have all rare words of the query, and, for a query of
few words, those with its rarest word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.calibration.calibration import N_FIRST, posterior
from crossbyte.index.lexical import (
    TermMatches,
    WordMatch,
    WordQuery,
    WordScores,
    WordSettings,
    name_as_typed,
    score_words,
)
from crossbyte.index.probabilities import CohortLevels, MatchProbability
from crossbyte.index.scan import Query, Ranking, SearchBackend, keep_first_of_groups
from crossbyte.index.segment import CODINGS
from crossbyte.index.verdict import (
    MATCH,
    USUAL,
    Evidence,
    FoundBy,
    Verdict,
    at_least,
    at_most,
    hedge,
    judge_answer,
    judge_hits,
    limit_verdict,
)
from crossbyte.model.estimator import CMCQ

MODES = ("both", "vectors", "words")

_MOST_CANDIDATES = 1_000  # of each ranking; where there are more documents, those farther down change nothing
_RARE = 50  # documents at most that have a rare word
_FEW_DOCUMENTS = 5  # that have all rare words of a short query: then they are what was meant
_FEW_WORDS = 3
_RAREST = 3  # documents that have the rarest word of a short query
_SURE = 0.9  # probability of a match from which on vectors are believed where no word is known
_IMAGE = CODINGS.index("image")
_NEUTRAL_SHARE = 0.5  # of the best BM25 score: what says as little for a document as against it
_COMMON_SHARE = 0.5  # words that more documents have tell nothing, and BM25 gives them nothing


def count_candidates(k: int) -> int:
    """Give the number of nearest documents that are fused to find the first k."""
    return max(10 * k, _MOST_CANDIDATES)


@dataclass(frozen=True, eq=False)
class Answer:
    """A ranking, and what is said of it.

    Attributes
    ----------
    ranking : Ranking
    found_by : list of {"words", "picture", "both"}, or None
    strengths : list of {"strong", "fair", "weak", "nothing"}, or None
    verdict : {"strong", "fair", "weak", "nothing"} or None
    unknown_words : list of str, or None
        Words of the query that no document has, as they were typed; None where that is not known.
    scores : (n,) float64 or None
        BM25.
    """

    ranking: Ranking
    found_by: list[FoundBy] | None = None
    strengths: list[Verdict] | None = None
    verdict: Verdict | None = None
    unknown_words: list[str] | None = None
    scores: Float64 | None = None


def are_among(numbers: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say (n,) which numbers are among others; ``np.isin`` takes several times longer for a few."""
    if not len(others):
        return np.zeros(len(numbers), dtype=np.bool_)
    known = np.sort(others)
    return np.asarray(known.take(known.searchsorted(numbers), mode="clip") == numbers)


def match_words(backend: SearchBackend, text: str, where: str | None) -> list[WordMatch]:
    """Find the documents that have any word of a text, or any phrase in quotes, best first by BM25."""
    if backend.words is None:
        return []
    terms = WordQuery.parse(text).terms
    scores = score_words(backend.match_terms(terms, where), len(backend), backend.words.mean_words)
    return scores.list_matches()


@dataclass(frozen=True, eq=False)
class KnownWords:
    """The words of a query, how many documents have each, and which.

    Attributes
    ----------
    query : WordQuery
    counts : dict of str to int
        Documents that have a word or phrase; of words that most have, about as many.
    matches : dict of str to TermMatches
        Of phrases, and of words that tell documents apart.
    captions, sentence : TermMatches
        The documents with a caption that is the query, word by word; and that says it.
    n_documents : int
    """

    query: WordQuery
    counts: dict[str, int]
    matches: dict[str, TermMatches]
    captions: TermMatches
    sentence: TermMatches
    n_documents: int

    @classmethod
    def of(cls, text: str, backend: SearchBackend, where: str | None) -> KnownWords:
        """Look up the documents that have each word."""
        query, n_documents = WordQuery.parse(text), len(backend)
        most = max(_RARE, int(_COMMON_SHARE * n_documents))
        counts = {term: backend.count_term(term, most + 1) for term in query.terms}
        known = [term for term, count in counts.items() if count]
        telling = [term for term in known if counts[term] <= most] or known
        wanted = list(dict.fromkeys([*telling, *(each for each in query.phrases if counts[each])]))
        matches = dict(zip(wanted, backend.match_terms(wanted, where), strict=True))
        counts |= {term: len(each.numbers) for term, each in matches.items()}  # without deleted ones
        captions = sentence = TermMatches.none()
        is_said = bool(query.sentence) and all(counts.values())
        if is_said and " " in query.sentence:
            [sentence] = backend.match_terms([query.sentence], where)
            is_said = len(sentence.numbers) > 0
        if is_said:
            [captions] = backend.match_terms([query.caption], where)
        return cls(query, counts, matches, captions, sentence, n_documents)

    @property
    def unknown(self) -> list[str]:
        """Words and phrases that no document has."""
        return [term for term, count in self.counts.items() if not count]

    @property
    def distinctive(self) -> list[str]:
        """Terms that some documents have and not most."""
        most = _COMMON_SHARE * self.n_documents
        return [term for term in self.matches if 0 < self.counts[term] <= most]

    @property
    def telling(self) -> list[str]:
        """Distinctive terms; all that are known, if there is none such."""
        return self.distinctive or [term for term in self.matches if self.counts[term]]

    def scores(self, mean_words: float) -> WordScores:
        """Score the documents that have any telling word."""
        return score_words([self.matches[term] for term in self.telling], self.n_documents, mean_words)

    def told_word_by_word(self) -> set[int]:
        """List the numbers of the documents that say the very sentence, where they are few."""
        found = self.sentence.found
        return found if len(found) <= _FEW_DOCUMENTS else set()

    def limit(self, verdict: Verdict, *, is_sure: bool) -> Verdict:
        """Limit what is measured of an answer to a query half of whose words no document has.

        Words that most documents have do not count. Where nothing else is known, vectors must be sure by
        themselves (``is_sure``): they may know a synonym, and they are often wrong.
        """
        unknown, known = len(self.unknown), len(self.distinctive)
        if unknown and not known:
            return at_most(verdict, "weak" if is_sure else "nothing")
        return at_most(verdict, "weak") if unknown and unknown >= known else verdict

    def promoted(self) -> set[int]:
        """List the numbers of documents that must come next."""
        chosen: set[int] = set()
        if self.query.phrases:
            chosen |= self._having(self.query.phrases)
        telling = self.telling
        most = min(_RARE, max(1, self.n_documents // 4))
        rare = sorted((each for each in telling if self.counts[each] <= most), key=self.counts.__getitem__)
        if rare:
            every, is_short = self._having(rare), len(telling) <= _FEW_WORDS
            # a sentence says more than its rare words: only what one document alone has is surely meant
            chosen |= every if len(every) <= (_FEW_DOCUMENTS if is_short else 1) else set()
            if is_short and self.counts[rare[0]] <= _RAREST:
                chosen |= self._having(rare[:1])
        return chosen

    def least_strengths(
        self, numbers: NDArray[np.int64], exact: set[int], measured: Verdict
    ) -> list[Verdict]:
        """Say what words alone make of hits, whatever vectors know of them.

        What says the very sentence is strong; what has every telling word is as sure as the answer was
        measured to be; and of a word or two, vectors know little.
        """
        every, some = np.zeros((2, len(numbers)), dtype=bool)
        if self.telling and not self.unknown:
            every = np.logical_and.reduce([self._has(term, numbers) for term in self.telling])
        if len(self.counts) <= _FEW_WORDS and self.distinctive:
            some = np.logical_or.reduce([self._has(term, numbers) for term in self.distinctive])
        sure = at_least(measured, "weak")
        return [
            "strong" if number in exact else sure if has_every else "weak" if has_some else "nothing"
            for number, has_every, has_some in zip(
                numbers.tolist(), every.tolist(), some.tolist(), strict=True
            )
        ]

    def _has(self, term: str, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say (n,) which of these documents have a term."""
        found = self.matches[term]
        return are_among(numbers, found.numbers[found.allowed])

    def _having(self, terms: Sequence[str]) -> set[int]:
        """List the numbers of the allowed documents that have all of these."""
        return set.intersection(
            *(self.matches[term].found if term in self.matches else set() for term in terms)
        )


N_TIERS = 3
"""Ranks of documents that come before all others; these have this number for theirs."""


class Tiers(NamedTuple):
    """Documents that come first whatever their distance, and the rank of each: 0 is the very first.

    Word by word, from the first word to the last; within a longer caption; by phrases and rare words.

    Attributes
    ----------
    numbers : (n,) int64
        Ascending.
    ranks : (n,) intp
    """

    numbers: NDArray[np.int64]
    ranks: NDArray[np.intp]

    @classmethod
    def of(cls, known: KnownWords) -> Self:
        """Rank the documents that have to come first for what a query says."""
        tiers = known.captions.found, known.told_word_by_word(), known.promoted()
        rank_of = {number: rank for rank in reversed(range(N_TIERS)) for number in tiers[rank]}
        numbers = np.array(sorted(rank_of), dtype=np.int64)
        return cls(numbers, np.array([rank_of[number] for number in numbers.tolist()], dtype=np.intp))

    def ranks_of(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """Look up the ranks (m,) of some documents."""
        if not len(self.numbers):
            return np.full(len(numbers), N_TIERS, dtype=np.intp)
        places = self.numbers.searchsorted(numbers)
        same = self.numbers.take(places, mode="clip") == numbers
        return np.where(same, self.ranks.take(places, mode="clip"), N_TIERS)


@dataclass(frozen=True, eq=False)
class WordSearch:
    """Searches by words, or by words and vectors, for one query at a time.

    Attributes
    ----------
    model : CMCQ
    backend : SearchBackend
    settings : WordSettings
    mode : {"both", "words"}
    where : str or None
    distinct : bool
        Whether every group counts once.
    probability : MatchProbability
    """

    model: CMCQ
    backend: SearchBackend
    settings: WordSettings
    mode: str
    where: str | None
    distinct: bool
    probability: MatchProbability

    def answer(self, query: Query, near: Ranking, text: str, levels: CohortLevels) -> Answer:
        """Answer one query, given its nearest documents, judged, and its levels."""
        known = KnownWords.of(text, self.backend, self.where)
        words = known.scores(self.settings.mean_words)
        tiers = Tiers.of(known)
        whole = self._with_matches(query, near, self._choose_by_words(words, tiers), levels)
        bm25, later = words.of(whole.numbers), tiers.ranks_of(whole.numbers)
        order = self._order(whole, bm25, later)
        if self.distinct:
            ranked = whole.take(order)
            kept = keep_first_of_groups(ranked, self.backend.groups(ranked))
            order = order[are_among(ranked.numbers, kept.numbers)]
        order = order[: self.probability.depth]  # nothing is said of a hit by those after it
        fused, bm25 = whole.take(order), bm25[order]
        answer = self._judge(fused, bm25, known, later[order] < N_TIERS)
        is_near = are_among(fused.numbers, near.numbers[:N_FIRST]).tolist()
        found_by = [_name_source(*each) for each in zip(is_near, (bm25 > 0.0).tolist(), strict=True)]
        unknown = name_as_typed(text, known.unknown)
        whole_answer = replace(answer, found_by=found_by, scores=bm25, unknown_words=unknown)
        return cut_answer(whole_answer, self.probability)

    def _choose_by_words(self, words: WordScores, tiers: Tiers) -> NDArray[np.int64]:
        """Choose the documents that words bring in: the best, and of those that must come first the best."""
        best = words.numbers[words.best_first()]
        is_chosen = tiers.ranks_of(best) < N_TIERS
        is_chosen &= np.cumsum(is_chosen) <= count_candidates(self.probability.k)
        is_chosen[:_MOST_CANDIDATES] = True
        return best[is_chosen]

    def _with_matches(
        self, query: Query, near: Ranking, numbers: NDArray[np.int64], levels: CohortLevels
    ) -> Ranking:
        """Add the documents that words alone have found, at their own distances."""
        missing = numbers[~are_among(numbers, near.numbers)]
        if not len(missing):
            return near
        only = query._replace(k=len(missing), numbers=missing, n_probe="all")
        far = self.backend.rank(only, self.where, distinct=False, grouped=self.distinct)
        [judged] = self.probability.judge(far, self.model, self.backend, query.kind, query.target, levels)
        whole = Ranking.join([near, judged])
        if near.log_ratios is None or judged.log_ratios is None:
            return replace(whole, match_probability=near.match_probability)
        ratios = np.concatenate([near.log_ratios, judged.log_ratios])
        return replace(
            whole,
            log_ratios=ratios,
            probabilities=posterior(ratios, self.probability.prior_of(len(self.backend))),
            match_probability=near.match_probability,
        )

    def _order(self, whole: Ranking, bm25: Float64, later: NDArray[np.intp]) -> NDArray[np.intp]:
        """Order documents: those that must come first, then by the fused score; words alone by BM25.

        Unless every group counts once, no more than are wanted are put in order.
        """
        if self.mode == "words":
            some = np.flatnonzero(bm25)
            return some[np.lexsort((whole.numbers[some], whole.distances[some], -bm25[some], later[some]))]
        # Of pictures without words nothing is known: neither that words fit, nor that they do not.
        wordless = (whole.codings == _IMAGE) & (bm25 == 0.0)
        told = np.where(wordless, _NEUTRAL_SHARE * bm25.max(initial=0.0), bm25)
        fused = whole.distances - self.settings.weight * told
        depth = self.probability.depth
        some = np.arange(len(fused))
        if not self.distinct and depth < len(fused):
            some = np.flatnonzero((fused <= np.partition(fused, depth - 1)[depth - 1]) | (later < N_TIERS))
        return some[np.lexsort((whole.numbers[some], fused[some], later[some]))]

    def _judge(
        self, fused: Ranking, bm25: Float64, known: KnownWords, is_promoted: NDArray[np.bool_]
    ) -> Answer:
        """Judge hits as measured, then let words say more, or less."""
        how, threshold = evidence_of(self.settings, self.mode), self.probability.threshold
        nothing = (
            fused.match_probability == 0.0 and not bm25[:N_FIRST].any()
        )  # neither ranking knows the query
        if fused.log_ratios is None and self.mode != "words":
            return Answer(fused, verdict="nothing" if nothing else None)
        evidence = how.of_hits(fused.log_ratios, bm25, self.probability.prior_of(known.n_documents))
        probability = 0.0 if nothing else how.match_probability(evidence)
        is_sure = probability >= _SURE or threshold < MATCH
        judged = judge_answer(probability, threshold, how.strong_at)
        if is_guess(self.settings, self.mode, self.probability) and not nothing:
            judged = hedge(judged)
        measured = known.limit(judged, is_sure=is_sure)
        verdict, strengths = measured, judge_hits(evidence, how, measured)
        if threshold <= MATCH or measured != "nothing":  # words alone do not pass a threshold that is set
            exact = known.captions.found | known.told_word_by_word()
            least = known.least_strengths(fused.numbers, exact, measured)
            strengths = list(map(at_least, strengths, least))
            verdict = at_least(measured, least[0] if least else "nothing")
        if is_promoted[:1].any():
            verdict = at_most(verdict, strengths[0])
        strengths = _limit_strengths(strengths, is_promoted, verdict)
        answered = replace(fused, match_probability=probability)
        return Answer(answered, None, strengths, limit_verdict(verdict, strengths))


def _limit_strengths(
    strengths: Sequence[Verdict], is_promoted: NDArray[np.bool_], verdict: Verdict
) -> list[Verdict]:
    """Call no hit surer than the answer, nor than what its words have put above it."""
    limited, most = [], verdict
    for strength, stands_by_words in zip(strengths, is_promoted.tolist(), strict=True):
        limited.append(at_most(strength, most))
        if stands_by_words:
            most = limited[-1]
    return limited


def _name_source(is_near: bool, has_words: bool) -> FoundBy:
    """Name what found a document, whatever k is: words that it has, its vector, which is near, or both."""
    return "both" if has_words and is_near else "words" if has_words else "picture"


def evidence_of(settings: WordSettings | None, mode: str) -> Evidence:
    """Give the evidence of a way of searching: as measured, or the usual one."""
    measured = {} if settings is None else settings.evidence
    return measured.get(mode, USUAL[mode])


def is_guess(settings: WordSettings | None, mode: str, probability: MatchProbability) -> bool:
    """Say whether how sure answers are was neither measured, in an index with words, nor set by who asks."""
    is_usual = probability.threshold == MATCH and probability.prior is None
    return is_usual and settings is not None and mode not in settings.evidence


def judge_by_vectors(
    ranking: Ranking, settings: WordSettings | None, prior: float, probability: MatchProbability
) -> Answer:
    """Judge a ranking that vectors alone have made, and keep its first k."""
    likely = ranking.match_probability
    if ranking.log_ratios is None:
        return cut_answer(Answer(ranking, verdict="nothing" if likely == 0.0 else None), probability)
    assert likely is not None  # it is calibrated
    how = evidence_of(settings, "vectors")
    evidence = how.of_hits(ranking.log_ratios, np.zeros(len(ranking.numbers)), prior)
    if likely > 0.0:
        likely = how.match_probability(evidence)
    verdict = judge_answer(likely, probability.threshold, how.strong_at)
    if likely > 0.0 and is_guess(settings, "vectors", probability):
        verdict = hedge(verdict)
    judged = replace(ranking, match_probability=likely)
    strengths = judge_hits(evidence, how, verdict)
    return cut_answer(Answer(judged, None, strengths, limit_verdict(verdict, strengths)), probability)


def cut_answer(answer: Answer, probability: MatchProbability) -> Answer:
    """Keep the first k, and of these what is probable enough."""
    n_hits, least = len(answer.ranking.numbers), probability.min_probability
    if 0 < n_hits <= probability.k and least is None:
        return answer
    keep, probabilities = np.arange(min(probability.k, n_hits)), answer.ranking.probabilities
    if least is not None and probabilities is not None:
        keep = keep[probabilities[keep] >= least]
    nothing = answer.verdict is not None and not len(keep)  # an answer without hits is sure of none
    return replace(
        answer,
        verdict="nothing" if nothing else answer.verdict,
        ranking=answer.ranking.take(keep),
        found_by=None if answer.found_by is None else [answer.found_by[at] for at in keep.tolist()],
        scores=None if answer.scores is None else answer.scores[keep],
        strengths=None if answer.strengths is None else [answer.strengths[at] for at in keep.tolist()],
    )
