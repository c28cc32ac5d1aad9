"""Try a gallery on pairs that it has not seen: choose its bytes, the weight of words, its verdicts.

Some documents with two captions and more are held out, and a gallery is made of the others as ever. The
held-out documents join it with one caption hidden; the hidden captions ask for them, by words alone, by
vectors alone and by both, through the same search that users have. Where documents have one caption each,
held-out ones join as pictures alone, which only vectors can find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from crossbyte.arrays import Float64, Raw
from crossbyte.calibration.calibration import N_FIRST, prior_odds
from crossbyte.compute.executor import Workers
from crossbyte.encoders.base import Encoder
from crossbyte.gallery import encode
from crossbyte.index.index import Index
from crossbyte.index.lexical import USUAL_WEIGHT, WordSettings
from crossbyte.index.verdict import MATCH, Evidence
from crossbyte.metrics.auroc import auroc
from crossbyte.metrics.chance import chance_recall
from crossbyte.model.estimator import CMCQ
from crossbyte.model.fit import SharedFits
from crossbyte.model.selection import MIN_GROUPS
from crossbyte.progress import Progress, ProgressCallback

LENGTHS = (4, 8, 16, 32, 64)
"""Bytes per document that are tried, each after the one before it, until nothing is lost by compression."""
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0)
"""Of words, that are tried; the last ones leave nearly nothing to vectors that know little."""
_HELD_SHARE = 0.25
_MOST_HELD = 500
_MOST_LEARNED = 2_000
_MIN_HELD = MIN_GROUPS
_DEPTH = 50  # hits that verdicts are learned from
_WANTED_PRECISION = 0.9  # of "strong"
_ONE_SIDED = 1.28  # standard errors: the share is that high in nine of ten such samples
_NEVER = 1.01  # no probability is as high
_NO_EVIDENCE = -50.0
_PERCENTILES = (25.0, 5.0)  # of the evidence of true partners: above, a hit is strong; above, it is fair


class HeldOut(NamedTuple):
    """Documents that a trial learns from, and those that it asks for.

    Attributes
    ----------
    learned, held : list of int
        Rows of documents.
    asked : list of str
        The hidden caption of every held-out document.
    rest : list of list of str
        Their other captions; none of documents with one caption.
    """

    learned: list[int]
    held: list[int]
    asked: list[str]
    rest: list[list[str]]

    @property
    def modes(self) -> tuple[str, ...]:
        """The ways of searching that can find held-out documents: those without a caption have no words."""
        return ("both", "vectors", "words") if all(self.rest) else ("vectors",)


def hold_out(encoded: encode.EncodedDocuments, rows: Sequence[int], seed: int) -> HeldOut | None:
    """Choose held-out documents among those with both halves; None where there are too few.

    Documents with several captions are preferred: of these, one is hidden and the others stay.
    """
    rng = np.random.default_rng(seed)
    groups = encoded.group_numbers(rows)
    captions = {row: encode.drop_empty_captions(encoded.documents.texts[row]) for row in rows}
    alone = np.bincount(groups)[groups] == 1
    single = [row for row, is_alone in zip(rows, alone.tolist(), strict=True) if is_alone]
    most = min(int(_HELD_SHARE * len(rows)), _MOST_HELD)
    usable = [row for row in single if len(captions[row]) > 1]
    if min(most, len(usable)) < _MIN_HELD:
        usable = [row for row in single if len(captions[row]) == 1]
    n_held = min(most, len(usable))
    if n_held < _MIN_HELD:
        return None
    held = sorted(usable[at] for at in rng.permutation(len(usable))[:n_held].tolist())
    left = sorted(set(rows) - set(held))
    learned = left if len(left) <= _MOST_LEARNED else sorted(rng.permutation(left)[:_MOST_LEARNED].tolist())
    hidden = [int(rng.integers(len(captions[row]))) for row in held]
    asked = [captions[row][at] for row, at in zip(held, hidden, strict=True)]
    rest = [
        [text for place, text in enumerate(captions[row]) if place != at]
        for row, at in zip(held, hidden, strict=True)
    ]
    return HeldOut(learned, held, asked, rest)


@dataclass(frozen=True, eq=False)
class LengthTrial:
    """What was measured with some number of bytes.

    Attributes
    ----------
    n_bytes : int
    weight : float
        What one unit of BM25 takes from a distance: the best of those tried.
    ranks : dict of mode to (n,) int
        Rank of every held-out document, from 1; of "vectors" at least.
    uncompressed : (n,) int or None
        The same by vectors that are not compressed; None where documents have no code of their own.
    n_documents : int
        In the gallery that was asked.
    """

    n_bytes: int
    weight: float
    ranks: dict[str, NDArray[np.int64]]
    uncompressed: NDArray[np.int64] | None
    n_documents: int

    @property
    def loses_nothing(self) -> bool:
        """Whether no loss to uncompressed vectors can be shown, by two standard errors."""
        if self.uncompressed is None:
            return False
        return not _is_more(np.log(self.ranks["vectors"]) - np.log(self.uncompressed), errors=2.0)

    @property
    def log_ranks(self) -> Float64:
        """Logarithm (n,) of the ranks by both, or by vectors where words could not be measured."""
        return np.log(self.ranks.get("both", self.ranks["vectors"]))

    def recall(self, mode: str) -> float:
        """Give the share of held-out documents among the first ten."""
        return _recall(self.ranks[mode])


class TrialResult(NamedTuple):
    """The number of bytes that was chosen, and how words and vectors are fused.

    Attributes
    ----------
    n_bytes : int
    settings : WordSettings
        With what was measured.
    """

    n_bytes: int
    settings: WordSettings


@dataclass(frozen=True, eq=False)
class TrialRunner:
    """Makes galleries of a few documents, and asks them.

    Attributes
    ----------
    session : EncodingSession
    encoded : EncodedDocuments
    held_out : HeldOut
    text_encoder : Encoder
    make_model : callable
        Gives an estimator of so many bytes.
    folder : Path
        For files of the trial, which are removed.
    words : WordSettings
        What is searched by words, before anything is measured.
    """

    session: encode.EncodingSession
    encoded: encode.EncodedDocuments
    held_out: HeldOut
    text_encoder: Encoder
    make_model: Callable[[int], CMCQ]
    folder: Path
    words: WordSettings

    def run(self, lengths: Sequence[int], callback: ProgressCallback) -> TrialResult:
        """Try lengths until more bytes cannot help, choose one, and learn its verdicts."""
        trials: list[LengthTrial] = []
        models: dict[int, CMCQ] = {}
        for place, n_bytes in enumerate(lengths):
            models[n_bytes] = self._fit(n_bytes)
            trials.append(self._try_length(models[n_bytes]))
            callback(Progress("trial", f"{n_bytes} bytes", place + 1, len(lengths) + 1))
            if trials[-1].loses_nothing or (place and not _helps(trials[-1], trials[-2])):
                break
        chosen = choose_trial(trials)
        result = self._learn_verdicts(chosen, models[chosen.n_bytes], trials)
        callback(Progress("trial", "verdicts", len(lengths) + 1, len(lengths) + 1))
        return result

    def _fit(self, n_bytes: int) -> CMCQ:
        return self.make_model(n_bytes).fit(*self._pairs, shared=self._shared)

    @cached_property
    def _pairs(self) -> encode.Pairs:
        """Features of the documents to learn from, caption by caption."""
        return self.encoded.pair_captions(self.session.cache, self.held_out.learned)

    @cached_property
    def _shared(self) -> SharedFits:
        """What the fits of all lengths have in common."""
        return SharedFits()

    @cached_property
    def _documents(self) -> list[tuple[Raw, Raw | None]]:
        """Images and texts of learned documents, and of held-out ones without what is hidden."""
        cache, held_out = self.session.cache, self.held_out
        images, texts, _ = self.encoded.pairs(cache, held_out.learned)
        rest = None
        if all(held_out.rest):
            captions = self._encode([caption for each in held_out.rest for caption in each])
            rest = encode.mean_rows(captions, list(map(len, held_out.rest)))
        return [
            (images, texts),
            (self.encoded.features(cache, "image", held_out.held), rest),
        ]

    def _make_index(self, model: CMCQ, settings: WordSettings) -> Index:
        """Make an index of all these documents, the held-out ones last."""
        held_out = self.held_out
        learned, held = self._documents
        remove_index(self._path())  # left behind by a trial that was killed
        index = Index.create(self._path(), model, words=settings, n_jobs=model.n_jobs)
        names = [f"learned {row}" for row in held_out.learned]
        payloads = self.encoded.values("payloads", held_out.learned)
        index.add(names, images=learned[0], texts=learned[1], payloads=payloads)
        names = [f"held {row}" for row in held_out.held]
        payloads = [{"captions": each} for each in held_out.rest]
        index.add(names, images=held[0], texts=held[1], payloads=payloads)
        return index

    @cached_property
    def _asked(self) -> Raw:
        """Features of the hidden captions."""
        return self._encode(self.held_out.asked)

    def _encode(self, texts: Sequence[str]) -> Raw:
        found = encode.encode_texts(self.session, self.text_encoder, texts)
        return self.session.cache.get(found.encoder, [digest for digest in found.digests if digest])

    def _path(self) -> Path:
        return self.folder / "trial.cb"

    def _try_length(self, model: CMCQ) -> LengthTrial:
        try:
            with self._make_index(model, self.words) as index:
                distances, scores, partners = self._measure_all(index)
        finally:
            remove_index(self._path())
        best, by_mode = self.words.weight, {"vectors": _rank(distances, partners)}
        if "both" in self.held_out.modes:
            ranks = {weight: _rank(distances - weight * scores, partners) for weight in WEIGHTS}
            best = choose_weight(ranks)
            by_words = _rank(np.where(scores > 0, -scores, np.inf), partners)
            by_mode |= {"both": ranks[best], "words": by_words}
        whole = self._measure_uncompressed(model)
        uncompressed = None if whole is None else _rank(whole, partners)
        return LengthTrial(model.n_bits // 8, best, by_mode, uncompressed, distances.shape[1])

    def _measure_uncompressed(self, model: CMCQ) -> Float64 | None:
        """Compute distances (n, N) to what would be coded, but for what is the same of all documents."""
        learned = model.fitted_
        quantizer = learned.document_quantizer
        if quantizer is None or "both" not in self.held_out.modes:
            return None
        with Workers(model.n_jobs) as workers:
            parts = [learned.item_points(*pairs, workers) for pairs in self._documents]
        items = quantizer.from_coding(np.concatenate(parts)).astype(np.float64)
        queries = model.transform_texts(self._asked).astype(np.float64)
        return np.asarray(np.einsum("nd,nd->n", items, items) - 2.0 * (queries @ items.T))

    def _measure_all(self, index: Index) -> tuple[Float64, Float64, NDArray[np.intp]]:
        """Compute distances and BM25 scores (n, N) of all documents, and the column of every partner."""
        features = self._asked
        n = len(index)
        distances, scores = np.empty((len(self.held_out.held), n)), np.zeros((len(self.held_out.held), n))
        for row, hits in enumerate(index.search(texts=features, k=n)):
            distances[row, hits.numbers] = hits.distances
        for row, text in enumerate(self.held_out.asked):
            for match in index.match_words(text):
                scores[row, match.number] = match.score
        return distances, scores, np.arange(n - len(self.held_out.held), n)

    def _learn_verdicts(self, chosen: LengthTrial, model: CMCQ, trials: Sequence[LengthTrial]) -> TrialResult:
        """Ask the gallery of the chosen length, calibrated, and learn how sure its answers are."""
        if self._pairs.n_groups >= MIN_GROUPS:
            model.calibrate(*self._pairs, curve=None)
        settings = replace(self.words, weight=chosen.weight)
        evidence: dict[str, Evidence] = {}
        told: dict[str, Any] = {}
        try:
            with self._make_index(model, settings) as index:
                for mode in self.held_out.modes:
                    asked = self._ask(index, mode)
                    told[mode] = {"recall": asked.recall}
                    if asked.has_ratios:
                        evidence[mode], told[mode]["match_auroc"] = learn_evidence(asked, mode)
        finally:
            remove_index(self._path())
        measured = {
            "n_held_out": len(self.held_out.held),
            "n_documents": chosen.n_documents,
            "chance": chance_recall(chosen.n_documents, N_FIRST),
            "n_bytes": chosen.n_bytes,
            "recall": {mode: each["recall"] for mode, each in told.items()},
            "match_auroc": {mode: each.get("match_auroc") for mode, each in told.items()},
            "curve": [
                {"n_bytes": each.n_bytes, "weight": each.weight}
                | {mode: each.recall(mode) for mode in each.ranks}
                # of the chosen length, as its answers were: some documents come first by their words
                | ({mode: asked["recall"] for mode, asked in told.items()} if each is chosen else {})
                | ({} if each.uncompressed is None else {"uncompressed": _recall(each.uncompressed)})
                for each in trials
            ],
        }
        return TrialResult(chosen.n_bytes, replace(settings, evidence=evidence, measured=measured))

    def _ask(self, index: Index, mode: str) -> AskedAnswers:
        features = self._asked
        asked = AskedAnswers([], [], [], 1.0 / max(len(index), 2))
        answers = index.search(texts=features, words=self.held_out.asked, mode=mode, k=_DEPTH)
        for row, hits in zip(self.held_out.held, answers, strict=True):
            name = f"held {row}"
            asked.partners.append(hits.ids.index(name) if name in hits.ids else None)
            asked.log_ratios.append(hits.log_ratios)
            scores = np.zeros(len(hits)) if hits.word_scores is None else hits.word_scores
            asked.scores.append(scores)
        return asked


def remove_index(path: Path) -> None:
    """Remove the files of an index, where there is one."""
    for suffix in ("", "-journal", "-wal", "-shm", ".lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _rank(scores: Float64, partners: NDArray[np.intp]) -> NDArray[np.int64]:
    """Rank the partner (column) of every row, from 1; ties count half of what they hide."""
    own = np.take_along_axis(scores, partners[:, None], 1)
    before, equal = (scores < own).sum(axis=1), (scores == own).sum(axis=1) - 1
    return np.asarray(1 + before + equal // 2, dtype=np.int64)


def _recall(ranks: NDArray[np.int64]) -> float:
    return float((ranks <= N_FIRST).mean())


def _is_more(differences: Float64, errors: float = 1.0) -> bool:
    """Say whether differences are more than nothing, by more than so many standard errors."""
    return bool(differences.mean() > errors * differences.std() / np.sqrt(len(differences)))


def _helps(longer: LengthTrial, shorter: LengthTrial) -> bool:
    """Say whether more bytes rank partners better, by more than a standard error."""
    return _is_more(shorter.log_ranks - longer.log_ranks)


def choose_weight(ranks: Mapping[float, NDArray[np.int64]]) -> float:
    """Choose the weight of words: of those that no other beats by more than a standard error, the most usual.

    A few hundred held-out captions cannot tell weights apart that are near each other; and they find fewer
    words than later queries do, as one caption of their document is hidden.
    """
    log_ranks = {weight: np.log(each) for weight, each in ranks.items()}
    best = min(log_ranks.values(), key=lambda each: float(each.mean()))
    good = [weight for weight, each in log_ranks.items() if not _is_more(each - best)]
    return min(good, key=lambda weight: abs(weight - USUAL_WEIGHT))


def choose_trial(trials: Sequence[LengthTrial]) -> LengthTrial:
    """Choose the fewest bytes that no other length beats by more than a standard error."""
    best = min(trials, key=lambda trial: float(trial.log_ranks.mean()))
    return next(trial for trial in trials if trial is best or not _helps(best, trial))


# Verdicts


@dataclass(frozen=True, eq=False)
class AskedAnswers:
    """Answers to hidden captions: the place of the partner, and what is known of every hit, best first."""

    partners: list[int | None]
    log_ratios: list[Float64 | None]
    scores: list[Float64]
    prior: float

    @property
    def has_ratios(self) -> bool:
        """Whether the model was calibrated."""
        return all(ratios is not None for ratios in self.log_ratios)

    @property
    def recall(self) -> float:
        """The share of partners among the first ten."""
        return float(np.mean([place is not None and place < N_FIRST for place in self.partners]))

    def join(self, how: Evidence) -> JoinedEvidence:
        """Join the evidence of answers: as they are, without their partner, without all that is near it."""
        found = np.array([place is not None and place < N_FIRST for place in self.partners])
        whole, others = self._tables(how, keep_partner=True), self._tables(how, keep_partner=False)
        return JoinedEvidence(
            _join_columns(whole, 0), _join_columns(others, 0), _join_columns(others, N_FIRST), found
        )

    def _tables(self, how: Evidence, *, keep_partner: bool) -> Float64:
        """Compute the evidence (n, m) of all hits, best first; -inf where there are no more."""
        ratios, scores = self.with_partner if keep_partner else self.without_partner
        known: Any = 0.0 if how.ratio_weight == 0.0 else how.ratio_weight * ratios
        evidence = known + how.word_weight * scores + prior_odds(self.prior)
        return np.where(np.isnan(scores), -np.inf, evidence)

    @cached_property
    def with_partner(self) -> tuple[Float64, Float64]:
        """Log-likelihood ratios and BM25 scores (n, m) of all hits; NaN where there are no more."""
        return _pad(self.log_ratios, len(self.partners)), _pad(self.scores, len(self.partners))

    @cached_property
    def without_partner(self) -> tuple[Float64, Float64]:
        """The same without the partners."""
        ratios, scores = (
            [each if place is None or each is None else np.delete(each, place) for each, place in zipped]
            for zipped in (
                list(zip(self.log_ratios, self.partners, strict=True)),
                list(zip(self.scores, self.partners, strict=True)),
            )
        )
        return _pad(ratios, len(self.partners)), _pad(scores, len(self.partners))

    def partner_evidence(self, how: Evidence) -> Float64:
        """List the evidence of partners among the first ten."""
        return np.array(
            [
                how.of_hits(ratios, scores, self.prior)[place]
                for place, ratios, scores in zip(self.partners, self.log_ratios, self.scores, strict=True)
                if place is not None and place < N_FIRST
            ]
        )


class JoinedEvidence(NamedTuple):
    """The evidence (n,) that anything matches, by what an answer still has.

    Attributes
    ----------
    whole : (n,) float64
        Of answers as they are.
    alone : (n,) float64
        Without the partner; others that fit the words as well are still there.
    far : (n,) float64
        Without the partner and the ten nearest others: what is left of a collection that has nothing of the
        kind.
    found : (n,) bool
        Whether the partner is among the first ten.
    """

    whole: Float64
    alone: Float64
    far: Float64
    found: NDArray[np.bool_]


def _join_columns(evidence: Float64, first: int) -> Float64:
    """Join the evidence (n, m) of ten hits of every answer, from this column on."""
    some = evidence[:, first : first + N_FIRST]
    if not some.shape[1]:
        return np.full(len(evidence), _NO_EVIDENCE)
    return np.maximum(np.logaddexp.reduce(some, axis=1), _NO_EVIDENCE)


def _pad(rows: Sequence[Float64 | None], n: int) -> Float64:
    """Put rows of several lengths into one table (n, m), NaN where there are no more; zeros for None."""
    width = max((len(each) for each in rows if each is not None), default=0)
    table = np.full((n, width), np.nan)
    for own, row in zip(table, rows, strict=True):
        if row is None:
            own[:] = 0.0
        else:
            own[: len(row)] = row
    return table


def learn_evidence(asked: AskedAnswers, mode: str) -> tuple[Evidence, float]:
    """Learn how sure answers are, from those that found their partner and from what is far from the query.

    Returns the evidence, and how well it tells answers from the same ones without their partner (AUROC).
    """
    ratio_weight = 0.0 if mode == "words" else 1.0
    start = (1.0, 0.0, 0.3 if mode != "vectors" else 0.0)

    def make(values: Any) -> Evidence:
        slope, intercept, word_weight = map(float, values)
        return Evidence(ratio_weight, 0.0 if mode == "vectors" else abs(word_weight), abs(slope), intercept)

    def loss(values: Any) -> float:
        how = make(values)
        joined = asked.join(how)
        right = how.slope * joined.whole[joined.found] + how.intercept
        wrong = how.slope * joined.far + how.intercept
        surprise = np.logaddexp(0, -right).mean() if len(right) else 0.0
        return float(surprise + np.logaddexp(0, wrong).mean() + 0.01 * (np.log(how.slope + 1e-9)) ** 2)

    found = optimize.minimize(loss, start, method="Nelder-Mead", options={"maxiter": 300})
    how = make(found.x)
    joined = asked.join(how)
    log_odds = how.slope * np.concatenate([joined.whole, joined.far]) + how.intercept
    truth = np.concatenate([joined.found, np.zeros(len(joined.far), dtype=bool)])
    partners = asked.partner_evidence(how)
    strong, fair = np.percentile(partners, _PERCENTILES) if len(partners) else (np.inf, np.inf)
    told = how._replace(
        strong_at=find_strong(1.0 / (1.0 + np.exp(-np.clip(log_odds, -500, 500))), truth),
        strong_hit=float(strong),
        fair_hit=float(fair),
    )
    kinds = np.repeat([True, False], [len(joined.whole), len(joined.alone)])
    return told, float(auroc(np.concatenate([joined.whole, joined.alone]), kinds))


def find_strong(probabilities: Float64, truth: NDArray[np.bool_]) -> float:
    """Find the least probability from which on answers are right in nine of ten; above 1 where none are."""
    order = np.argsort(-probabilities, kind="stable")
    count = np.arange(1, len(order) + 1)
    share = np.cumsum(truth[order]) / count
    error = np.sqrt(np.maximum(share * (1 - share), 1e-9) / count) + 1.0 / count
    good = np.flatnonzero((share - _ONE_SIDED * error >= _WANTED_PRECISION) & (probabilities[order] >= MATCH))
    return float(probabilities[order][good[-1]]) if len(good) else _NEVER
