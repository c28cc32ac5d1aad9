"""Fit a model, and keep what a fit has learned."""

from __future__ import annotations

from collections.abc import Mapping
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
from crossbyte.errors import NumericalError
from crossbyte.model.objective import ObjectiveRecord, Points, Problem, State
from crossbyte.model.params import Settings
from crossbyte.model.quantization import collaborative
from crossbyte.model.quantization.codebooks import renumber_codewords
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.cca import LinearSpace, canonical_correlation
from crossbyte.model.space.contrastive import refine_contrastively
from crossbyte.model.space.sparse import SparseSpace, SparseState, fold_in, initial_state
from crossbyte.model.training import alternate, initial_sides, mapping_blocks, quantization_blocks
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.validation import check_features, check_groups, check_rows_agree

_SIZE = 2_048
_NEAREST = 64  # one of so many counts as near
_QUERIES_AT_ONCE = 1024  # bounds the memory of the tables


@dataclass(frozen=True, eq=False)
class Cohort:
    """Some training documents with their learned codes.

    Attributes
    ----------
    quantizers : dict of side to Quantizer
    packed : dict of side to (blocks, M', 64) uint8
        Their scan codes, laid out for the scan.
    n_items : int
    """

    quantizers: Mapping[str, Quantizer]
    packed: Mapping[str, Codes]
    n_items: int

    @classmethod
    def of(cls, quantizers: Mapping[str, Quantizer], codes: Mapping[str, Codes]) -> Cohort:
        """At most 2,048 training documents, evenly over their rows; both arguments are by side."""
        n_rows = len(codes["image"])
        rows = np.linspace(0, n_rows - 1, min(n_rows, _SIZE)).astype(np.intp)
        with Workers(1) as workers:
            packed = {
                side: kernels.pack_codes(quantizers[side].scan_codes(each[rows], workers))
                for side, each in codes.items()
            }
        return cls(quantizers, packed, len(rows))

    def levels(self, points: Float32, target: str, n_threads: int = 1) -> NDArray[np.float64]:
        """Mean distance (n,) of query points (n, D) to the nearest of the cohort."""
        blocks = row_blocks(len(points), _QUERIES_AT_ONCE)
        parts = [self._levels(points[rows], target, n_threads) for rows in blocks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])

    def _levels(self, points: Float32, target: str, n_threads: int) -> NDArray[np.float64]:
        sides = tuple(self.packed) if target == "document" else (target,)
        tables = {side: self.quantizers[side].table(points) for side in sides}
        scans = [
            ScanSide(self.packed[side], np.ascontiguousarray(table.tables), table.offsets)
            for side, table in tables.items()
        ]
        near = max(1, self.n_items // _NEAREST)
        found = kernels.scan(scans, self.n_items, near, n_threads=n_threads)
        return found.distances.reshape(len(points), near).mean(axis=1, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted model without its constructor."""

    settings: Settings
    image_preparation: Preparation
    text_preparation: Preparation
    space: SparseSpace | LinearSpace
    image_quantizer: Quantizer
    text_quantizer: Quantizer
    image_codes: Codes
    text_codes: Codes
    history: list[ObjectiveRecord]

    @property
    def quantizers(self) -> dict[str, Quantizer]:
        """By side."""
        return {"image": self.image_quantizer, "text": self.text_quantizer}

    @cached_property
    def cohort(self) -> Cohort:
        """Training documents that tell how near strangers come to a query."""
        return Cohort.of(self.quantizers, {"image": self.image_codes, "text": self.text_codes})

    def check_pairs(self, images: Any, texts: Any, groups: Any) -> tuple[Raw, Raw, NDArray[np.intp]]:
        """Check new pairs that this model can code: both sides and their numbered groups."""
        images = check_features(images, "images", self.image_preparation.n_features, min_rows=1)
        texts = check_features(texts, "texts", self.text_preparation.n_features, min_rows=1)
        check_rows_agree(images, texts)
        return images, texts, check_groups(groups, images.shape[0])

    def transform_images(self, images: Any, workers: Executor) -> Float32:
        """Raw image features (n, d_I) to points (n, D)."""
        return self.space.transform_images(self.image_preparation.apply(images, workers), workers)

    def transform_texts(self, texts: Any, workers: Executor) -> Float32:
        """Raw text features (n, d_T) to points (n, D)."""
        return self.space.transform_texts(self.text_preparation.apply(texts, workers), workers)

    def encode_images(self, images: Any, workers: Executor) -> Codes:
        """Codes (n, M) of raw image features that come without their texts."""
        return self.image_quantizer.encode(self.transform_images(images, workers), workers)

    def encode_texts(self, texts: Any, workers: Executor) -> Codes:
        """Codes (n, M) of raw text features that come without their images."""
        return self.text_quantizer.encode(self.transform_texts(texts, workers), workers)

    def fold_in(self, images: Any, texts: Any, workers: Executor) -> tuple[Float32, Float32]:
        """Raw features of pairs to points, each half knowing the other."""
        rows: tuple[PreparedRows, PreparedRows] = (
            self.image_preparation.apply(images, workers),
            self.text_preparation.apply(texts, workers),
        )
        return self.space.fold_in(*rows, workers)

    def with_cross_term(self, cross_term: str, workers: Executor) -> FittedModel:
        """The same codes with their cross term stored, or taken for constant."""
        image, text = (
            quantizer.with_cross_term(cross_term, codes, workers)
            for quantizer, codes in (
                (self.image_quantizer, self.image_codes),
                (self.text_quantizer, self.text_codes),
            )
        )
        settings = self.settings._replace(cross_term=cross_term)
        return replace(self, settings=settings, image_quantizer=image, text_quantizer=text)

    def encode_pairs(self, images: Any, texts: Any, workers: Executor) -> tuple[Codes, Codes]:
        """Codes of both halves of new pairs."""
        quantizers = (self.image_quantizer, self.text_quantizer)
        return collaborative.encode_pairs(
            (quantizers[0].tables, quantizers[1].tables),
            self.fold_in(images, texts, workers),
            (quantizers[0].epsilon, quantizers[1].epsilon),
            self.settings.quantization_weights._replace(cross_penalty=quantizers[0].penalty.weight),
            workers,
        )


Groups = NDArray[np.intp]


def fit_pairs(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
) -> FittedModel:
    """Fit on checked raw pairs."""
    images, texts = workers.hold(images), workers.hold(texts)
    preparations, rows = prepare_pairs(settings, images, texts, workers)
    report(Progress("prepare", "features", 1, 1))
    return fit_prepared(settings, preparations, rows, groups, rng, report=report, workers=workers)


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
) -> FittedModel:
    """Fit on prepared pairs; a linear space made before may be given."""
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
    tell = _make_reporter("alternate", settings, len(blocks), report)
    state, history = alternate(problem, state, blocks, settings.max_iter, settings.tol, tell)
    return _make_fitted_model(settings, preparations, problem, state, space, history)


def fit_linear_space(
    settings: Settings,
    X: PreparedRows,
    Y: PreparedRows,
    groups: Groups,
    rng: np.random.Generator,
    workers: Executor,
) -> LinearSpace:
    """Canonical correlation, and its contrastive refinement where that is the mapping."""
    ridges = settings.ridge, settings.text_ridge
    space = canonical_correlation(X, Y, settings.n_components, ridges[0], workers, ridges[1])
    return refine_contrastively(space, X, Y, rng, groups) if settings.mapping == "contrastive" else space


def initialise_sparse(
    problem: Problem, settings: Settings, rng: np.random.Generator, report: ProgressCallback
) -> SparseState:
    """The mapping on its own, before any quantizer; of many pairs, a sample teaches B, U and R enough."""
    X, Y, weights, workers = problem.images, problem.texts, problem.weights, problem.workers
    rows = sample_rows(X.shape[0], rng)
    some = problem
    if rows is not None:
        some = problem._replace(images=X[rows], texts=Y[rows], workers=workers.local)
    start = initial_state(
        some.images, some.texts, settings.n_atoms, settings.n_components, weights, rng, some.workers
    )
    blocks = mapping_blocks(weights.ratio)
    tell = _make_reporter("space", settings, len(blocks), report)
    state, _ = alternate(some, State(start), blocks, settings.max_iter, settings.tol, tell)
    assert isinstance(state.mapping, SparseState)
    if rows is None:
        return state.mapping
    return fold_in(state.mapping.B, state.mapping.U, state.mapping.R, X, Y, weights, workers)


def _make_reporter(stage: str, settings: Settings, n_blocks: int, report: ProgressCallback) -> Any:
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
    kept: SparseSpace | LinearSpace | None = space
    if isinstance(state.mapping, SparseState):
        kept = SparseSpace.of(
            state.mapping,
            problem.images,
            problem.texts,
            settings.weights,
            settings.query_map,
            problem.workers,
        )
    assert kept is not None
    image, text = (
        Quantizer(
            side.codewords.astype(np.float32), side.epsilon, settings.quantization_weights.cross_penalty, None
        )
        for side in state.sides
    )
    settings = settings._replace(n_components=kept.n_dims)
    image_codes, text_codes = (np.asarray(side.codes) for side in state.sides)
    learned = FittedModel(settings, *preparations, kept, image, text, image_codes, text_codes, history)
    _check_result(learned)
    return _renumber_model(learned).with_cross_term(settings.cross_term, problem.workers.local)


def _renumber_model(learned: FittedModel) -> FittedModel:
    """The same codewords and codes, with numbers that help the scan."""
    image_codewords, image_codes = renumber_codewords(learned.image_quantizer.codewords, learned.image_codes)
    text_codewords, text_codes = renumber_codewords(learned.text_quantizer.codewords, learned.text_codes)
    return replace(
        learned,
        image_quantizer=replace(learned.image_quantizer, codewords=image_codewords),
        text_quantizer=replace(learned.text_quantizer, codewords=text_codewords),
        image_codes=image_codes,
        text_codes=text_codes,
    )


def _check_result(learned: FittedModel) -> None:
    codewords = (learned.image_quantizer.codewords, learned.text_quantizer.codewords)
    if not all(np.isfinite(side).all() for side in codewords) or not np.isfinite(learned.history[-1].total):
        raise NumericalError(
            "the fit ended with values that are not finite; please report it with the parameters: "
            f"{learned.settings}"
        )
