"""Fit a model on pairs: prepare the features, learn the space, alternate; and keep what was learned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Codes, Float32, Float64, Raw
from crossbyte.compute import kernels
from crossbyte.compute.executor import Executor, Workers, row_blocks, sample_rows
from crossbyte.compute.kernels import ScanSide
from crossbyte.data.preparation import Preparation, PreparedRows
from crossbyte.errors import InvalidInput, NumericalError
from crossbyte.model.objective import ObjectiveRecord, Points, Problem, State
from crossbyte.model.params import Settings, Trial, reduce_wide_texts, take_roots
from crossbyte.model.quantization import collaborative
from crossbyte.model.quantization.codebooks import BeamStages, mean_cross, renumber_codewords
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space import gaussian, joint, memory
from crossbyte.model.space.cca import LinearSpace, canonical_correlation
from crossbyte.model.space.contrastive import refine_contrastively
from crossbyte.model.space.gaussian import GaussianSpace
from crossbyte.model.space.sparse import SparseSpace, SparseState, fold_in, initial_state
from crossbyte.model.training import (
    alternate,
    document_blocks,
    initial_item_sides,
    initial_own_sides,
    initial_sides,
    item_blocks,
    mapping_blocks,
    own_blocks,
    quantization_blocks,
)
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.validation import check_features, check_groups, check_rows_agree

T = TypeVar("T")
Groups = NDArray[np.intp]

_LEAST_HELD = 20  # pairs of a fold that ridges can be compared on
_MOST_ROUNDS = 3  # with one code per document: codewords start well, and more rounds learn points by heart
_CROSS_MARGIN = 1.0  # of the range of cross terms, for items that are added
_COHORT_SIZE = 4_096
_COHORT_PER_NEAR = 64  # one in 64 of the cohort counts as near
_COHORT_PER_COUNTED = 8  # one in 8 counts in a level with a temperature; the others are too far to matter
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
        """Quantizers by side: "image", "text" and, where documents have one code, "document"."""
        sides = {"image": self.image_quantizer, "text": self.text_quantizer}
        return sides if self.document_quantizer is None else sides | {"document": self.document_quantizer}

    @property
    def has_document_codes(self) -> bool:
        """Whether a document with both halves has one code, in a dictionary of documents."""
        return self.document_quantizer is not None

    @property
    def document_codes(self) -> Codes | None:
        """Codes (N, M) of the training documents, one each; None where each half has its own."""
        return self.image_codes if self.has_document_codes and self.settings.paired else None

    @cached_property
    def codes_by_side(self) -> dict[str, Codes]:
        """Codes (N, M) of the training documents by side, each in that side's own dictionary.

        Where a document has one code, the dictionary of the halves codes what that code stands for.
        """
        document, codes = self.document_quantizer, self.document_codes
        if document is None or codes is None:
            return {"image": self.image_codes, "text": self.text_codes}
        image, text = self.image_quantizer, self.text_quantizer
        with Workers(1) as workers:
            points = document.to_coding(document.decode(codes, workers))
            images = image.encode(points, workers)
            texts = images if text is image else text.encode(points, workers)
        return {"image": images, "text": texts, "document": codes}

    @cached_property
    def reference_codes(self) -> dict[str, Codes]:
        """Codes (N, M) by side that codes are compared with; of images, where training had no such items."""
        known = dict(self.codes_by_side)
        with Workers(1) as workers:
            image = self.image_quantizer
            points = image.to_coding(image.decode(known["image"], workers))
            for side, quantizer in self.quantizers.items():
                if side not in known or not len(known[side]):
                    known[side] = quantizer.encode(points, workers)
        return known

    @cached_property
    def cohort(self) -> Cohort:
        """Training documents that tell how near strangers come to a query."""
        if self.document_codes is not None:
            return Cohort.of(self.quantizers, {"document": self.document_codes}, self.settings.group_size)
        known = {"image": self.image_codes, "text": self.text_codes}
        return Cohort.of(self.quantizers, {side: codes for side, codes in known.items() if len(codes)})

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
    sample of the training documents, which are strangers to any new query; their distances, those of the
    nearest most, say what a stranger can reach. (Speaker verification: adaptive score normalisation.)

    Attributes
    ----------
    quantizers : dict of side to Quantizer
    packed : dict of side to (blocks, M', 64) uint8
        Scan codes, packed for the scan.
    n_items : int
    n_left_out : int
        Nearest ones that may be the query's own document, once for each of its rows.
    """

    quantizers: Mapping[str, Quantizer]
    packed: Mapping[str, Codes]
    n_items: int
    n_left_out: int = 1

    @classmethod
    def of(
        cls, quantizers: Mapping[str, Quantizer], codes: Mapping[str, Codes], group_size: int = 1
    ) -> Cohort:
        """Take at most 4,096 training documents, evenly over their rows; quantizers and codes are by side."""
        n_rows = min(len(each) for each in codes.values())
        n_taken = min(n_rows, _COHORT_SIZE)
        with Workers(1) as workers:
            packed = {}
            for side, each in codes.items():
                rows = np.linspace(0, len(each) - 1, n_taken).astype(np.intp)
                packed[side] = kernels.pack_codes(quantizers[side].scan_codes(each[rows], workers))
        return cls(quantizers, packed, n_taken, max(1, round(group_size * n_taken / n_rows)))

    def levels(
        self, points: Float32, target: str, temperature: float = 0.0, n_threads: int = 1
    ) -> NDArray[np.float64]:
        """Say how near the cohort comes to query points (n, D): (n,).

        With a temperature, log mean exp(-distance / temperature); 0 for the mean distance to the nearest.
        """
        if temperature:
            return cohort_levels(self.nearest(points, target, n_threads), self.n_items, temperature)
        near = max(1, self.n_items // _COHORT_PER_NEAR)
        return np.asarray(self._scan(points, target, near, n_threads).mean(axis=1, dtype=np.float64))

    def nearest(self, points: Float32, target: str, n_threads: int = 1) -> Float32:
        """Compute the distances (n, c) of query points (n, D) to the nearest eighth of the cohort, ascending.

        Without the very nearest: of a query for a training document, they may be the partner itself.
        """
        near = max(self.n_left_out + 1, self.n_items // _COHORT_PER_COUNTED)
        found = self._scan(points, target, min(near, self.n_items), n_threads)
        return found[:, min(self.n_left_out, found.shape[1] - 1) :]

    def _scan(self, points: Float32, target: str, near: int, n_threads: int) -> Float32:
        blocks = row_blocks(len(points), _QUERIES_AT_ONCE)
        parts = [self._scan_block(points[rows], target, near, n_threads) for rows in blocks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, near), np.float32), *parts])

    def _scan_block(self, points: Float32, target: str, near: int, n_threads: int) -> Float32:
        sides = (target,) if target in self.packed else tuple(self.packed)
        tables = {side: self.quantizers[side].table(points) for side in sides}
        scans = [
            ScanSide(self.packed[side], np.ascontiguousarray(table.tables), table.offsets)
            for side, table in tables.items()
        ]
        n_threads = kernels.count_worthwhile_threads(n_threads, self.n_items, len(points))
        found = kernels.scan(scans, self.n_items, near, n_threads=n_threads)
        return np.asarray(found.distances.reshape(len(points), near))


def cohort_levels(cohort: Any, n_cohort: int, temperature: float) -> NDArray[np.float64]:
    """Compute the log of the mean of exp(-distance / temperature), (n,), over a cohort of ``n_cohort``.

    ``cohort`` are the distances (n, c) that count, :meth:`Cohort.nearest`; all others count for 0.
    """
    logs = -np.asarray(cohort, dtype=np.float64) / temperature
    highest = logs.max(axis=1, initial=-np.inf)
    return np.asarray(highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1) / n_cohort))


# Fitting


class _SharedStep(NamedTuple):
    """What a step was given, what it has learned, and the generator after it."""

    sources: tuple[Any, ...]
    choices: Any
    before: Any
    value: Any
    after: Any


class SharedFits:
    """Keeps the last result of every step of a fit, for the next fit that begins it in the same way.

    The models are the same to the last bit as those of fits on their own: a step is taken over only where it
    is given the very same arrays, equal choices, and a generator in the same state, which is then set to
    where the step has left it.
    """

    def __init__(self) -> None:
        self._steps: dict[str, _SharedStep] = {}

    def once(
        self,
        step: str,
        sources: tuple[Any, ...],
        choices: Any,
        rng: np.random.Generator,
        learn: Callable[[], T],
    ) -> T:
        """Do a step, or give what it has learned before.

        Parameters
        ----------
        step : str
            Its name.
        sources : tuple of arrays and other objects
            What it learns from: compared by identity, and never written to.
        choices : Any
            What else decides: compared by value.
        rng : Generator
        learn : callable
            Does the step.
        """
        held, before = tuple(map(_hold, sources)), rng.bit_generator.state
        known = self._steps.get(step)
        if (
            known is None
            or known.choices != choices
            or not _are_same(known.before, before)
            or not all(mine is other for mine, other in zip(known.sources, held, strict=True))
        ):
            value = learn()
            known = _SharedStep(held, choices, before, value, rng.bit_generator.state)
            self._steps[step] = known
        rng.bit_generator.state = known.after
        learned: T = known.value
        return learned


def _hold(source: Any) -> Any:
    """Give what tells a source apart: of a sparse matrix its values, as checks make new matrices of them."""
    return source.data if isinstance(source, sparse.csr_matrix) else source


def _are_same(one: Any, other: Any) -> bool:
    """Compare two states of a generator: some hold arrays."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_same(one[name], other[name]) for name in one)
    return bool(np.array_equal(one, other))


def fit_pairs(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    trials: list[Trial] | None = None,
    shared: SharedFits | None = None,
) -> FittedModel:
    """Fit on checked raw pairs; what the fit tries on its way is appended to ``trials``.

    What other fits have learned is taken over where rows are in memory; scratch files end with their fit.
    """
    if shared is None or not isinstance(workers, Workers):
        shared = SharedFits()
    if settings.one_code and settings.mapping != "joint":
        settings = reduce_wide_texts(take_roots(settings, images, texts), texts.shape[1])
        settings = settings._replace(open_powers=(False, False))
    images, texts = workers.hold(images), None if texts is None else workers.hold(texts)
    preparations, rows = shared.once(
        "prepare",
        (images, texts),
        settings._replace(n_codebooks=0),
        rng,
        lambda: prepare_pairs(settings, images, texts, workers),
    )
    report(Progress("prepare", "features", 1, 1))
    return fit_prepared(
        settings,
        preparations,
        rows,
        groups,
        rng,
        report=report,
        workers=workers,
        trials=trials,
        shared=shared,
    )


def prepare_pairs(
    settings: Settings, images: Any, texts: Any, workers: Executor
) -> tuple[tuple[Preparation, Preparation], tuple[PreparedRows, PreparedRows]]:
    """Learn both preparations and apply them to the training rows.

    Of a shared space, texts may be None: then there are no rows of them, and neither side is centred, as one
    centred side alone ranks worse than none: the texts' mean would favour some images in every answer.
    """
    if settings.mapping == "joint":
        image = Preparation.fit_unit(images, "images", workers, centred=texts is not None)
        if texts is None:
            return (image, image), (image.apply(images, workers), image.apply(images[:0], workers))
        text = Preparation.fit_unit(texts, "texts", workers, centred=True)
        return (image, text), (image.apply(images, workers), text.apply(texts, workers))
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
    shared: SharedFits | None = None,
) -> FittedModel:
    """Fit on prepared pairs; a linear space that was learned before may be given."""
    if settings.one_code:
        tried = [] if trials is None else trials
        shared = SharedFits() if shared is None else shared
        if settings.mapping == "joint":
            return _fit_joint(settings, preparations, rows, groups, rng, report, workers, tried)
        return _fit_one_code(settings, preparations, rows, groups, rng, report, workers, tried, shared)
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
    tell = _report_updates("alternate", settings.max_iter * len(blocks), report)
    state, history = alternate(problem, state, blocks, settings.max_iter, settings.tol, tell)
    return _make_fitted_model(settings, preparations, problem, state, space, history)


def _fit_one_code(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    trials: list[Trial],
    shared: SharedFits,
) -> FittedModel:
    """Fit canonical coordinates that are scored by likelihood, a dictionary of halves and one of documents.

    Everything about points is learned out of fold, from a sample of at most 20,000 pairs; the coordinates
    themselves are learned from all pairs. Equal pairs are in one fold, whatever their groups.
    """
    choices = settings._replace(n_codebooks=0), groups.tobytes()
    chosen, learned, tried = shared.once(
        "points", rows, choices, rng, lambda: _choose_points(settings, rows, groups, rng, workers)
    )
    settings = chosen._replace(n_codebooks=settings.n_codebooks)
    trials += tried
    report(Progress("space", settings.mapping, 1, 1))
    weights = settings.quantization_weights._replace(correlation=0.0, cross_penalty=0.0)
    tables = collaborative.LastTables()
    problem = Problem(*rows, settings.weights, weights, workers.local, tables)
    stages = shared.once("codebooks", (learned,), None, rng, BeamStages)
    state = initial_item_sides(problem, State(learned.points), settings.n_codebooks, rng, stages)
    report(Progress("codebooks", "initialised", 1, 1))
    n_rounds = min(settings.max_iter, _MOST_ROUNDS)
    tell = _report_updates("alternate", n_rounds * (len(item_blocks()) + len(document_blocks())), report)
    # one dictionary of everything first; from it, one of documents alone: fitted ones are coded best so, and
    # it still serves those that are added later
    state, history = alternate(problem, state, item_blocks(), n_rounds, settings.tol, tell)
    state, further = alternate(problem, state, document_blocks(), n_rounds, settings.tol, tell)
    history += [record._replace(round=record.round + history[-1].round) for record in further[1:]]
    return _make_one_code_model(settings, preparations, rows, learned, state, history, workers)


def _choose_points(
    settings: Settings,
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    workers: Executor,
) -> tuple[Settings, LearnedPoints, list[Trial]]:
    """Choose what is open on held-out pairs, and learn the points; also returns what was tried."""
    trials: list[Trial] = []
    apart, n_equal = gaussian.join_equal_pairs(*rows, groups, workers)
    if n_equal:
        warnings.warn(
            f"{n_equal} of {len(groups)} pairs are equal, once prepared, to a pair of another group; these "
            "are held out together where the fit measures itself; give the copies of a pair one group",
            UserWarning,
            stacklevel=8,
        )
    settings = settings._replace(group_size=max(1, round(len(groups) / (int(groups.max()) + 1))))
    moments = gaussian.FoldMoments.of(*rows, apart, rng, workers)
    settings = _choose_ridges(settings, moments, rows, groups, workers, trials)
    settings, learned = learn_points(settings, moments, rows, groups, rng, workers, trials)
    return settings, learned, trials


class LearnedPoints(NamedTuple):
    """A space, and what its dictionaries are learned from."""

    space: GaussianSpace
    unseen: gaussian.PairCoordinates
    """training pairs, out of fold"""
    expected: Float64
    """(n_groups, D) where queries of whole groups are expected, out of fold"""
    variances: Float64
    """(D,) of queries around that"""
    points: Points
    """what is coded: images, texts, and documents out of fold and in sample"""


def learn_points(
    settings: Settings,
    moments: gaussian.FoldMoments,
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    workers: Executor,
    trials: list[Trial],
) -> tuple[Settings, LearnedPoints]:
    """Learn the coordinates, the memory of pairs, and where queries of documents are expected."""
    sample = sample_rows(len(groups), rng)
    ridges = settings.ridge, settings.ridge if settings.text_ridge is None else settings.text_ridge
    space, unseen = gaussian.fit_gaussian_space(
        moments, *rows, settings.n_components, ridges, sample, workers
    )
    if not space.n_dims:
        raise InvalidInput(
            "images and texts: expected pairs that differ, but no feature of the images goes with one of the "
            "texts (the same texts for every image, for example); give texts that tell the images apart"
        )
    folds, own_groups = (each if sample is None else each[sample] for each in (moments.folds, groups))
    settings, remembered = _remember_pairs(
        settings, space, unseen, folds, own_groups, rng, workers.local, trials
    )
    queries = gaussian.learn_document_queries(unseen, space.correlations, own_groups)
    space = replace(
        space,
        document_weights=queries.weights,
        memory=None if remembered is None else remembered.memory,
    )
    expected, known = (
        gaussian.group_means(each.expected(queries.weights), own_groups)
        for each in (unseen, _place_pairs(space, rows, sample, workers))
    )
    documents = gaussian.coding_points(np.vstack([expected, known]), space.coding_metric)
    points = Points(*unseen.half_points(space, remembered), documents)
    return settings, LearnedPoints(space, unseen, expected, queries.variances, points)


def _make_one_code_model(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[PreparedRows, PreparedRows],
    learned: LearnedPoints,
    state: State,
    history: list[ObjectiveRecord],
    workers: Executor,
) -> FittedModel:
    """Learn what codes tell of queries, bring codewords into the metric of that, and code the documents."""
    assert state.sides is not None
    images, texts, both = state.sides
    halves = gaussian.regress_queries(learned.unseen, [images.decoded, texts.decoded])
    whole = gaussian.regress_expectations(
        learned.expected, learned.variances, both.decoded[: len(learned.expected)]
    )
    # Where groups have told how queries of documents vary, these are measured in that metric; halves then
    # keep their inner products with a query, and lose only the exact weight of their own length.
    common = halves if settings.group_size == 1 else whole
    space = learned.space.with_query_scales(1.0 / np.sqrt(common.variances))
    half, half_codes = _scale_quantizer(
        images.codewords,
        np.vstack([images.codes, texts.codes]),
        halves.slopes * space.query_scales * (common.variances / halves.variances),
    )
    document, both_codes = _scale_quantizer(both.codewords, both.codes, whole.slopes * space.query_scales)
    codes = np.asarray(document.encode(space.item_points(*rows, workers), workers))
    # cross terms of what is added later are as those out of fold, which spread more, or still farther out
    half, document = (
        replace(
            each.with_cross_term(settings.cross_term, own, workers.local, _CROSS_MARGIN),
            epsilon=mean_cross(each.codewords, own, workers.local),
        )
        for each, own in ((half, half_codes), (document, np.vstack([both_codes, codes])))
    )
    model = FittedModel(
        settings._replace(n_components=space.n_dims),
        *preparations,
        space,
        half,
        half,
        codes,
        codes,
        history,
        document,
        gaussian.likelihood_constant(whole, common) - gaussian.likelihood_constant(halves, common),
    )
    _check_finite(model)
    return model


# Spaces that encoders share


def _fit_joint(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    trials: list[Trial],
) -> FittedModel:
    """Take the space as the encoders have it, or as pairs refine it; a dictionary for each kind of item."""
    pairs = rows if settings.paired else (rows[0][: settings.n_pairs], rows[1][: settings.n_pairs])
    settings, W = _choose_refinement(settings, pairs, groups, rng, workers, trials)
    moments = joint.joint_moments(*rows, settings.paired, workers)
    space = joint.make_space(moments, W, settings.n_components)
    if pairs[0].shape[0]:
        some = sample_rows(pairs[0].shape[0], rng)
        pairs = pairs if some is None else (pairs[0][some], pairs[1][some])
        space = joint.make_space(moments, W, settings.n_components, joint.measure_told(space, *pairs))
        settings = settings._replace(group_size=max(1, round(len(groups) / (int(groups.max()) + 1))))
    report(Progress("space", settings.mapping, 1, 1))
    points = _joint_points(space, rows, settings, rng, workers)
    weights = settings.quantization_weights._replace(correlation=0.0, cross_penalty=0.0)
    problem = Problem(*rows, settings.weights, weights, workers.local)
    # without texts, one dictionary of images serves all kinds of items
    kinds = ("image", "text", "document") if rows[1].shape[0] else ("image",)
    state = initial_own_sides(problem, State(points), settings.n_codebooks, len(kinds), rng)
    report(Progress("codebooks", "initialised", 1, 1))
    blocks = [block for name in kinds for block in own_blocks(name, at_once=True)]
    n_rounds = min(settings.max_iter, _MOST_ROUNDS)
    tell = _report_updates("alternate", n_rounds * len(blocks), report)
    state, history = alternate(problem, state, blocks, n_rounds, settings.tol, tell)
    return _make_joint_model(settings, preparations, rows, space, state, history, workers)


def _choose_refinement(
    settings: Settings,
    rows: tuple[PreparedRows, PreparedRows],
    groups: Groups,
    rng: np.random.Generator,
    workers: Executor,
    trials: list[Trial],
) -> tuple[Settings, Float64 | None]:
    """Choose out of fold how far pairs (rows) move the space, learn W from all; None for not at all."""
    n_groups = int(groups.max(initial=-1)) + 1
    if not rows[0].shape[0] or n_groups < _LEAST_HELD * gaussian.N_FOLDS:
        return settings._replace(refinement=None), None
    apart, _ = gaussian.join_equal_pairs(*rows, groups, workers)
    moments = gaussian.FoldMoments.of(*rows, apart, rng, workers)
    tried = joint.try_refinements(moments, *rows, groups, workers)
    for trial in tried:
        params = {"refinement": trial.refinement and list(trial.refinement), "compressed": False}
        trials.append(_score_trial(params, trial.log_ranks))
    chosen = joint.choose_refinement(tried)
    W = None if chosen is None else joint.refine(moments.total, chosen)
    return settings._replace(refinement=None if chosen is None else (chosen.ridge, chosen.shrinkage)), W


def _joint_points(
    space: GaussianSpace,
    rows: tuple[PreparedRows, PreparedRows],
    settings: Settings,
    rng: np.random.Generator,
    workers: Executor,
) -> Points:
    """Place what dictionaries are learned from: images, texts and documents, at most 20,000 of each.

    Where its own text is not known, a document is an image with the text that is nearest to it; without
    texts, images stand in for texts and documents, as all three share the space.
    """
    chosen = [sample_rows(side.shape[0], rng) for side in rows]
    if settings.paired:
        chosen[1] = chosen[0]
    X, Y = (side if some is None else side[some] for side, some in zip(rows, chosen, strict=True))
    images = space.item_points(X, None, workers)
    if not Y.shape[0]:
        return Points(images, images, images)
    texts = space.item_points(None, Y, workers)
    if not settings.paired:
        partners = joint.find_nearest(images, texts, workers)
        if chosen == [None, None]:
            partners[: settings.n_pairs] = np.arange(settings.n_pairs)
        Y = Y[partners]
    return Points(images, texts, space.item_points(X, Y, workers))


def _make_joint_model(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[PreparedRows, PreparedRows],
    space: GaussianSpace,
    state: State,
    history: list[ObjectiveRecord],
    workers: Executor,
) -> FittedModel:
    """Bring codewords to where queries are expected, and code the training items."""
    assert state.sides is not None
    told = float(space.correlations[0])
    scales = [np.full(space.n_dims, each) for each in (told, told, joint.told_by_both(told))]
    sides = state.sides if len(state.sides) == len(scales) else state.sides[:1] * len(scales)
    made = [
        _scale_quantizer(side.codewords, np.asarray(side.codes), scale)
        for side, scale in zip(sides, scales, strict=True)
    ]
    image, text, document = (
        replace(
            quantizer.with_cross_term(settings.cross_term, codes, workers.local, _CROSS_MARGIN),
            epsilon=mean_cross(quantizer.codewords, codes, workers.local),
        )
        for quantizer, codes in made
    )
    if settings.paired:
        image_codes = text_codes = np.asarray(document.encode(space.item_points(*rows, workers), workers))
    else:
        image_codes = np.asarray(image.encode(space.item_points(rows[0], None, workers), workers))
        text_codes = np.asarray(text.encode(space.item_points(None, rows[1], workers), workers))
    model = FittedModel(
        settings._replace(n_components=space.n_dims),
        *preparations,
        space,
        image,
        text,
        image_codes,
        text_codes,
        history,
        document,
    )
    _check_finite(model)
    return model


def _place_pairs(
    space: GaussianSpace,
    rows: tuple[PreparedRows, PreparedRows],
    sample: NDArray[np.intp] | None,
    workers: Executor,
) -> gaussian.PairCoordinates:
    """Place training pairs where the model itself has them, not out of fold."""
    chosen = np.arange(rows[0].shape[0]) if sample is None else sample
    image, text = (
        gaussian.place_rows(side, chosen, matrix, workers.local)
        for side, matrix in zip(rows, (space.image_matrix, space.text_matrix), strict=True)
    )
    return gaussian.PairCoordinates(image, text)


def _scale_quantizer(codewords: Float64, codes: Codes, scales: Float64) -> tuple[Quantizer, Codes]:
    """Make a quantizer whose distances are in the metric of queries, with codewords in the scan's order."""
    scaled, codes = renumber_codewords((codewords * scales).astype(np.float32), codes)
    return Quantizer(scaled, 0.0, 0.0, None, 1.0 / scales), codes


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
        trials.append(_score_trial(params, trial.log_ranks))
    image, text = gaussian.choose_ridges(tried)
    return settings._replace(ridge=image, text_ridge=text, open_ridges=(False, False))


def _score_trial(params: dict[str, Any], log_ranks: Float64) -> Trial:
    """Score a trial by the log ranks (n,) of held-out pairs: the more, the better."""
    return Trial(params, -float(log_ranks.mean()), float(log_ranks.std() / np.sqrt(len(log_ranks))))


def _remember_pairs(
    settings: Settings,
    space: GaussianSpace,
    unseen: gaussian.PairCoordinates,
    folds: Groups,
    groups: Groups,
    rng: np.random.Generator,
    workers: Executor,
    trials: list[Trial],
) -> tuple[Settings, memory.RememberedPairs | None]:
    """Choose how much a memory of pairs counts, on the pairs of one fold, and make it; None for none."""
    none = settings._replace(memory=0, memory_strength=None)
    if not settings.memory or (settings.memory_strength is None and (folds == 0).sum() < _LEAST_HELD):
        return none, None
    r, strength = space.correlations, settings.memory_strength
    pairs = memory.UnseenPairs.of(*unseen, folds, settings.memory, rng)
    if strength is None:
        tried = memory.try_strengths(pairs, r, groups, workers)
        for trial in tried:
            params = {"memory_strength": trial.strength, "compressed": False}
            trials.append(_score_trial(params, trial.log_ranks))
        strength = memory.choose_strength(tried)
    if not strength:
        return none, None
    settings = settings._replace(memory=len(pairs.kept), memory_strength=strength)
    return settings, memory.remember_pairs(pairs, r, strength, workers)


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
    tell = _report_updates("space", settings.max_iter * len(blocks), report)
    state, _ = alternate(some, State(start), blocks, settings.max_iter, settings.tol, tell)
    assert isinstance(state.mapping, SparseState)
    if rows is None:
        return state.mapping
    return fold_in(state.mapping.B, state.mapping.U, state.mapping.R, X, Y, weights, workers)


def _report_updates(
    stage: str, n_updates: int, report: ProgressCallback
) -> Callable[[ObjectiveRecord], None]:
    """Return a function that reports every block update as progress."""
    done = 0

    def tell(record: ObjectiveRecord) -> None:
        nonlocal done
        done += 1
        detail = f"round {record.round}, {record.block}"
        report(Progress(stage, detail, done, n_updates, record.total))

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
