"""Fit a model on pairs: prepare the features, learn the space, alternate; and keep what was learned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.compute import kernels
from crossbyte.compute.executor import Executor, Workers, row_blocks, sample_rows
from crossbyte.compute.kernels import ScanSide
from crossbyte.data.preparation import Preparation, PreparedRows
from crossbyte.errors import InvalidInput, NumericalError
from crossbyte.model.objective import ObjectiveRecord, Points, Problem, State
from crossbyte.model.params import Settings, Trial, reduce_wide_texts
from crossbyte.model.quantization import collaborative
from crossbyte.model.quantization.codebooks import mean_cross, renumber_codewords
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space import gaussian
from crossbyte.model.space.cca import LinearSpace, canonical_correlation
from crossbyte.model.space.contrastive import refine_contrastively
from crossbyte.model.space.gaussian import GaussianSpace
from crossbyte.model.space.sparse import SparseSpace, SparseState, fold_in, initial_state
from crossbyte.model.training import (
    alternate,
    document_blocks,
    initial_document_sides,
    initial_sides,
    mapping_blocks,
    quantization_blocks,
)
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.validation import check_features, check_groups, check_rows_agree

Groups = NDArray[np.intp]

_LEAST_HELD = 20  # pairs of a fold that ridges can be compared on
_MOST_ROUNDS = 3  # of one dictionary: it starts well, and more learn the training points by heart
_COHORT_SIZE = 2_048
_COHORT_PER_NEAR = 64  # one in 64 of the cohort counts as near
_QUERIES_AT_ONCE = 1024  # bounds the memory of the tables


# What a fit has learned


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Everything that a fit has learned, as one immutable value."""

    settings: Settings
    image_preparation: Preparation
    text_preparation: Preparation
    space: SparseSpace | LinearSpace | GaussianSpace
    image_quantizer: Quantizer
    text_quantizer: Quantizer
    image_codes: Codes
    text_codes: Codes
    history: list[ObjectiveRecord]
    document_quantizer: Quantizer | None = None
    """of documents with one code; None where each half has its own dictionary"""
    document_constant: float = 0.0
    """what the likelihood adds to the distance of a document with one code, beside that of one half"""

    @property
    def quantizers(self) -> dict[str, Quantizer]:
        """Quantizers by side: "image", "text" and, where one dictionary serves both, "document"."""
        sides = {"image": self.image_quantizer, "text": self.text_quantizer}
        return sides if self.document_quantizer is None else sides | {"document": self.document_quantizer}

    @property
    def has_document_codes(self) -> bool:
        """Whether a document with both halves has one code: one dictionary serves images, texts and both."""
        return self.document_quantizer is not None

    @property
    def document_codes(self) -> Codes | None:
        """Codes (N, M) of the training documents, one each; None where each half has its own."""
        return self.image_codes if self.has_document_codes else None

    @cached_property
    def cohort(self) -> Cohort:
        """Training documents that tell how near strangers come to a query."""
        if self.document_codes is not None:
            return Cohort.of(self.quantizers, {"document": self.document_codes})
        return Cohort.of(self.quantizers, {"image": self.image_codes, "text": self.text_codes})

    def check_images(self, images: Any, min_rows: int = 0) -> Raw:
        """Check raw image features (n, d_I) that this model can place."""
        return check_features(images, "images", self.image_preparation.n_features, min_rows)

    def check_texts(self, texts: Any, min_rows: int = 0) -> Raw:
        """Check raw text features (n, d_T) that this model can place."""
        return check_features(texts, "texts", self.text_preparation.n_features, min_rows)

    def check_pairs(self, images: Any, texts: Any, groups: Any = None) -> tuple[Raw, Raw, Groups]:
        """Check new pairs that this model can measure, one at least: both sides and their numbered groups."""
        images, texts = self.check_images(images, min_rows=1), self.check_texts(texts, min_rows=1)
        check_rows_agree(images, texts)
        return images, texts, check_groups(groups, images.shape[0])

    def transform_images(self, images: Any, workers: Executor) -> Float32:
        """Place raw image features (n, d_I) in the common space: points (n, D)."""
        return self.space.transform_images(self.image_preparation.apply(images, workers), workers)

    def transform_texts(self, texts: Any, workers: Executor) -> Float32:
        """Place raw text features (n, d_T) in the common space: points (n, D)."""
        return self.space.transform_texts(self.text_preparation.apply(texts, workers), workers)

    def encode_images(self, images: Any, workers: Executor) -> Codes:
        """Code raw image features that come without their texts: (n, M)."""
        return self.image_quantizer.encode(self.item_points(images, None, workers), workers)

    def encode_texts(self, texts: Any, workers: Executor) -> Codes:
        """Code raw text features that come without their images: (n, M)."""
        return self.text_quantizer.encode(self.item_points(None, texts, workers), workers)

    def encode_documents(self, images: Any, texts: Any, workers: Executor) -> Codes:
        """Code raw features of documents with both halves, one code each: (n, M)."""
        points = self.item_points(images, texts, workers)
        assert self.document_quantizer is not None
        return self.document_quantizer.encode(points, workers)

    def item_points(self, images: Any, texts: Any, workers: Executor) -> Float32:
        """Place items in the metric of coding: points (n, D) of raw images, of texts, or (one code) of both.

        The side that is not known is None.
        """
        if not isinstance(self.space, GaussianSpace):
            if images is not None and texts is not None:
                raise InvalidInput(
                    "this model has a code for each half of a document, not one for both; fit one with "
                    "mapping='cca' and scoring='likelihood' (the defaults of CMCQ)"
                )
            return (
                self.transform_texts(texts, workers)
                if images is None
                else self.transform_images(images, workers)
            )
        return self.space.item_points(
            None if images is None else self.image_preparation.apply(images, workers),
            None if texts is None else self.text_preparation.apply(texts, workers),
            workers,
        )

    def fold_in(self, images: Any, texts: Any, workers: Executor) -> tuple[Float32, Float32]:
        """Place raw features of pairs in the common space, each half knowing the other."""
        if isinstance(self.space, GaussianSpace):
            return self.item_points(images, None, workers), self.item_points(None, texts, workers)
        rows: tuple[PreparedRows, PreparedRows] = (
            self.image_preparation.apply(images, workers),
            self.text_preparation.apply(texts, workers),
        )
        return self.space.fold_in(*rows, workers)

    def with_cross_term(self, cross_term: str, workers: Executor) -> FittedModel:
        """Return the same model with its cross terms ``"stored"``, or taken for ``"constant"``."""
        return replace(
            self,
            settings=self.settings._replace(cross_term=cross_term),
            image_quantizer=self.image_quantizer.with_cross_term(cross_term, self.image_codes, workers),
            text_quantizer=self.text_quantizer.with_cross_term(cross_term, self.text_codes, workers),
        )

    def encode_pairs(self, images: Any, texts: Any, workers: Executor) -> tuple[Codes, Codes]:
        """Code both halves of new pairs, each knowing the other."""
        image, text = self.image_quantizer, self.text_quantizer
        return collaborative.encode_pairs(
            (image.tables, text.tables),
            self.fold_in(images, texts, workers),
            (image.epsilon, text.epsilon),
            self.settings.quantization_weights._replace(cross_penalty=image.penalty.weight),
            workers,
        )


@dataclass(frozen=True, eq=False)
class Cohort:
    """Training documents that tell how near strangers come to a query.

    A distance of 0.4 is near for a query of the crowd's fringe and far for one in its midst. The cohort is a
    sample of the training documents, which are strangers to any new query; the mean distance to the nearest
    of them says what a stranger can reach. (Speaker verification calls this adaptive score normalisation.)

    Attributes
    ----------
    quantizers : dict of side to Quantizer
    packed : dict of side to (blocks, M', 64) uint8
        Scan codes, packed for the scan.
    n_items : int
    """

    quantizers: Mapping[str, Quantizer]
    packed: Mapping[str, Codes]
    n_items: int

    @classmethod
    def of(cls, quantizers: Mapping[str, Quantizer], codes: Mapping[str, Codes]) -> Cohort:
        """Take at most 2,048 training documents, evenly over their rows; both arguments are by side."""
        n_rows = len(next(iter(codes.values())))
        rows = np.linspace(0, n_rows - 1, min(n_rows, _COHORT_SIZE)).astype(np.intp)
        with Workers(1) as workers:
            packed = {
                side: kernels.pack_codes(quantizers[side].scan_codes(each[rows], workers))
                for side, each in codes.items()
            }
        return cls(quantizers, packed, len(rows))

    def levels(self, points: Float32, target: str, n_threads: int = 1) -> NDArray[np.float64]:
        """Compute the mean distance (n,) of query points (n, D) to the nearest of the cohort."""
        blocks = row_blocks(len(points), _QUERIES_AT_ONCE)
        parts = [self._block_levels(points[rows], target, n_threads) for rows in blocks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])

    def _block_levels(self, points: Float32, target: str, n_threads: int) -> NDArray[np.float64]:
        sides = (target,) if target in self.packed else tuple(self.packed)
        tables = {side: self.quantizers[side].table(points) for side in sides}
        scans = [
            ScanSide(self.packed[side], np.ascontiguousarray(table.tables), table.offsets)
            for side, table in tables.items()
        ]
        near = max(1, self.n_items // _COHORT_PER_NEAR)
        found = kernels.scan(scans, self.n_items, near, n_threads=n_threads)
        return found.distances.reshape(len(points), near).mean(axis=1, dtype=np.float64)


# Fitting


def fit_pairs(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    trials: list[Trial] | None = None,
) -> FittedModel:
    """Fit on checked raw pairs; what the fit tries on its way is appended to ``trials``."""
    images, texts = workers.hold(images), workers.hold(texts)
    if settings.one_dictionary:
        settings = reduce_wide_texts(settings, texts.shape[1])
    preparations, rows = prepare_pairs(settings, images, texts, workers)
    report(Progress("prepare", "features", 1, 1))
    return fit_prepared(
        settings, preparations, rows, groups, rng, report=report, workers=workers, trials=trials
    )


def prepare_pairs(
    settings: Settings, images: Any, texts: Any, workers: Executor
) -> tuple[tuple[Preparation, Preparation], tuple[PreparedRows, PreparedRows]]:
    """Learn both preparations and apply them to the training rows."""
    image = Preparation.fit(images, settings.image_components, "images", workers, settings.image_power)
    text = Preparation.fit(texts, settings.text_components, "texts", workers, settings.text_power)
    return (image, text), (image.apply(images, workers), text.apply(texts, workers))


def fit_prepared(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    *,
    workers: Executor,
    report: ProgressCallback = ignore_progress,
    space: LinearSpace | None = None,
    trials: list[Trial] | None = None,
) -> FittedModel:
    """Fit on prepared pairs; a linear space that was learned before may be given."""
    if settings.one_dictionary:
        tried = [] if trials is None else trials
        return _fit_one_dictionary(settings, preparations, rows, groups, rng, report, workers, tried)
    problem = Problem(*rows, settings.weights, settings.quantization_weights, workers)
    if settings.mapping == "sparse":
        mapping: Any = initialise_sparse(problem, settings, rng, report)
        blocks = mapping_blocks(settings.weights.ratio)
    else:
        space = space or fit_linear_space(settings, *rows, groups, rng, workers)
        mapping, blocks = Points(*space.fold_in(*rows, workers)), []
        report(Progress("space", settings.mapping, 1, 1))
    state = initial_sides(problem, State(mapping), settings.n_codebooks, settings.shared_codebooks, rng)
    report(Progress("codebooks", "initialised", 1, 1))
    blocks = blocks + quantization_blocks(settings.shared_codebooks)
    tell = _report_updates("alternate", settings, len(blocks), report)
    state, history = alternate(problem, state, blocks, settings.max_iter, settings.tol, tell)
    return _make_fitted_model(settings, preparations, problem, state, space, history)


def _fit_one_dictionary(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    trials: list[Trial],
) -> FittedModel:
    """Fit canonical coordinates that are scored by likelihood, and one dictionary for all that is coded.

    Everything about points is learned out of fold, from a sample of at most 20,000 pairs; the coordinates
    themselves are learned from all pairs. Equal pairs are in one fold, whatever their groups.
    """
    apart, n_equal = gaussian.join_equal_pairs(*rows, groups, workers)
    if n_equal:
        warnings.warn(
            f"{n_equal} of {len(groups)} pairs are equal, once prepared, to a pair of another group; these "
            "are held out together where the fit measures itself; give the copies of a pair one group",
            UserWarning,
            stacklevel=5,
        )
    moments = gaussian.FoldMoments.of(*rows, apart, rng, workers)
    settings = _choose_ridges(settings, moments, rows, groups, workers, trials)
    sample = sample_rows(len(groups), rng)
    ridges = settings.ridge, settings.ridge if settings.text_ridge is None else settings.text_ridge
    space, unseen = gaussian.fit_gaussian_space(
        moments, *rows, settings.n_components, ridges, sample, workers
    )
    report(Progress("space", settings.mapping, 1, 1))
    points = Points(*unseen.coding_points(space))
    weights = settings.quantization_weights._replace(correlation=0.0, cross_penalty=0.0)
    problem = Problem(*rows, settings.weights, weights, workers.local)
    state = initial_document_sides(problem, State(points), settings.n_codebooks, rng)
    report(Progress("codebooks", "initialised", 1, 1))
    blocks = document_blocks()
    tell = _report_updates("alternate", settings, len(blocks), report)
    n_rounds = min(settings.max_iter, _MOST_ROUNDS)
    state, history = alternate(problem, state, blocks, n_rounds, settings.tol, tell)
    assert state.sides is not None
    halves = gaussian.regress_queries(unseen, [side.decoded for side in state.sides[:2]])
    whole = gaussian.regress_expectations(unseen, space.correlations, state.sides[2].decoded)
    space = space.with_query_scales(1.0 / np.sqrt(halves.variances))
    scales = halves.slopes * space.query_scales
    codewords, half_codes = renumber_codewords(
        (state.sides[0].codewords * scales).astype(np.float32),
        np.concatenate([side.codes for side in state.sides[:2]]),
    )
    half = Quantizer(codewords, 0.0, 0.0, None, 1.0 / scales)
    document = half.rescale(whole.slopes / halves.slopes)
    codes = np.asarray(document.encode(space.item_points(*rows, workers), workers))
    half, document = (
        replace(
            each.with_cross_term(settings.cross_term, own, workers.local),
            epsilon=mean_cross(each.codewords, own, workers.local),
        )
        for each, own in ((half, half_codes), (document, codes))
    )
    learned = FittedModel(
        settings._replace(n_components=space.n_dims),
        *preparations,
        space,
        half,
        half,
        codes,
        codes,
        history,
        document,
        gaussian.likelihood_constant(whole, halves),
    )
    _check_finite(learned)
    return learned


def _choose_ridges(
    settings: Settings,
    moments: gaussian.FoldMoments,
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    workers: Executor,
    trials: list[Trial],
) -> Settings:
    """Choose the ridges that are open on the pairs of one fold; with too few pairs, keep them as they are."""
    if not any(settings.open_ridges) or (moments.folds == 0).sum() < _LEAST_HELD:
        return settings._replace(open_ridges=(False, False))
    start = settings.ridge, settings.ridge if settings.text_ridge is None else settings.text_ridge
    tried = gaussian.try_ridges(
        moments, *rows, groups, settings.n_components, start, settings.open_ridges, workers
    )
    for trial in tried:
        params = {"ridge": trial.ridges[0], "text_ridge": trial.ridges[1], "compressed": False}
        error = float(trial.log_ranks.std()) / np.sqrt(len(trial.log_ranks))
        trials.append(Trial(params, -float(trial.log_ranks.mean()), float(error)))
    image, text = gaussian.choose_ridges(tried)
    return settings._replace(ridge=image, text_ridge=text, open_ridges=(False, False))


def fit_linear_space(
    settings: Settings,
    X: PreparedRows,
    Y: PreparedRows,
    groups: Groups,
    rng: np.random.Generator,
    workers: Executor,
) -> LinearSpace:
    """Learn a space by canonical correlation, refined contrastively where that is the mapping."""
    space = canonical_correlation(X, Y, settings.n_components, settings.ridge, workers, settings.text_ridge)
    return refine_contrastively(space, X, Y, rng, groups) if settings.mapping == "contrastive" else space


def initialise_sparse(
    problem: Problem, settings: Settings, rng: np.random.Generator, report: ProgressCallback
) -> SparseState:
    """Learn the mapping alone, before any quantizer; of many pairs, a sample teaches B, U and R enough."""
    X, Y, weights, workers = problem.images, problem.texts, problem.weights, problem.workers
    rows = sample_rows(X.shape[0], rng)
    some = problem
    if rows is not None:
        some = problem._replace(images=X[rows], texts=Y[rows], workers=workers.local)
    start = initial_state(
        some.images, some.texts, settings.n_atoms, settings.n_components, weights, rng, some.workers
    )
    blocks = mapping_blocks(weights.ratio)
    tell = _report_updates("space", settings, len(blocks), report)
    state, _ = alternate(some, State(start), blocks, settings.max_iter, settings.tol, tell)
    assert isinstance(state.mapping, SparseState)
    if rows is None:
        return state.mapping
    return fold_in(state.mapping.B, state.mapping.U, state.mapping.R, X, Y, weights, workers)


def _report_updates(
    stage: str, settings: Settings, n_blocks: int, report: ProgressCallback
) -> Callable[[ObjectiveRecord], None]:
    """Return a function that reports every block update as progress."""
    done = 0

    def tell(record: ObjectiveRecord) -> None:
        nonlocal done
        done += 1
        detail = f"round {record.round}, {record.block}"
        report(Progress(stage, detail, done, settings.max_iter * n_blocks, record.total))

    return tell


def _make_fitted_model(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    problem: Problem,
    state: State,
    space: LinearSpace | None,
    history: list[ObjectiveRecord],
) -> FittedModel:
    assert state.sides is not None
    learned_space: SparseSpace | LinearSpace | None = space
    if isinstance(state.mapping, SparseState):
        pairs = problem.images, problem.texts
        learned_space = SparseSpace.of(
            state.mapping, *pairs, settings.weights, settings.query_map, problem.workers
        )
    assert learned_space is not None
    penalty = settings.quantization_weights.cross_penalty
    image, text = (
        Quantizer(side.codewords.astype(np.float32), side.epsilon, penalty, None) for side in state.sides
    )
    image_codes, text_codes = (np.asarray(side.codes) for side in state.sides)
    learned = FittedModel(
        settings._replace(n_components=learned_space.n_dims),
        *preparations,
        learned_space,
        image,
        text,
        image_codes,
        text_codes,
        history,
    )
    _check_finite(learned)
    return _renumber_model(learned).with_cross_term(settings.cross_term, problem.workers.local)


def _check_finite(learned: FittedModel) -> None:
    codewords = (learned.image_quantizer.codewords, learned.text_quantizer.codewords)
    if not all(np.isfinite(side).all() for side in codewords) or not np.isfinite(learned.history[-1].total):
        raise NumericalError(
            "the fit ended with values that are not finite; please report it with the parameters: "
            f"{learned.settings}"
        )


def _renumber_model(learned: FittedModel) -> FittedModel:
    """Renumber codewords, and codes with them, so that the scan is fast."""
    image_codewords, image_codes = renumber_codewords(learned.image_quantizer.codewords, learned.image_codes)
    text_codewords, text_codes = renumber_codewords(learned.text_quantizer.codewords, learned.text_codes)
    return replace(
        learned,
        image_quantizer=replace(learned.image_quantizer, codewords=image_codewords),
        text_quantizer=replace(learned.text_quantizer, codewords=text_codewords),
        image_codes=image_codes,
        text_codes=text_codes,
    )
