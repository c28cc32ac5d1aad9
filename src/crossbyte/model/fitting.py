"""A whole fit as a function: prepare, initialise, alternate, keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.blocks import sample_rows
from crossbyte.data.features import Rows
from crossbyte.data.preparation import Preparation
from crossbyte.errors import NumericalError
from crossbyte.executors.protocol import Executor
from crossbyte.mapping.contrastive import refine_contrastively
from crossbyte.mapping.linear import LinearSpace, canonical_correlation
from crossbyte.mapping.space import SparseSpace
from crossbyte.mapping.sparse import SparseState, fold_in, initial_state
from crossbyte.model.learned import Learned
from crossbyte.model.objective import ObjectiveRecord, Points, Problem, State
from crossbyte.model.parameters import Settings
from crossbyte.model.training import alternate, initial_sides, mapping_blocks, quantization_blocks
from crossbyte.progress import Progress, ProgressCallback, silent
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.quantization.renumbering import renumber

__all__ = ["fit_linear_space", "fit_pairs", "fit_prepared", "prepare", "start_sparse"]

Groups = NDArray[np.intp]


def fit_pairs(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
) -> Learned:
    """Fit on checked raw pairs."""
    images, texts = workers.hold(images), workers.hold(texts)
    preparations, rows = prepare(settings, images, texts, workers)
    report(Progress("prepare", "features", 1, 1))
    return fit_prepared(settings, preparations, rows, groups, rng, report=report, workers=workers)


def prepare(
    settings: Settings, images: Any, texts: Any, workers: Executor
) -> tuple[tuple[Preparation, Preparation], tuple[Rows, Rows]]:
    """Learn both preparations and apply them to the training rows."""
    image = Preparation.fit(images, settings.image_components, "images", workers, settings.image_power)
    text = Preparation.fit(texts, settings.text_components, "texts", workers, settings.text_power)
    return (image, text), (image.apply(images, workers), text.apply(texts, workers))


def fit_prepared(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    rows: tuple[Rows, Rows],
    groups: Groups,
    rng: np.random.Generator,
    *,
    workers: Executor,
    report: ProgressCallback = silent,
    space: LinearSpace | None = None,
) -> Learned:
    """Fit on prepared pairs; a linear space made before may be given."""
    problem = Problem(*rows, settings.weights, settings.quantization_weights, workers)
    if settings.mapping == "sparse":
        mapping: Any = start_sparse(problem, settings, rng, report)
        blocks = mapping_blocks(settings.weights.ratio)
    else:
        space = space or fit_linear_space(settings, *rows, groups, rng, workers)
        mapping, blocks = Points(*space.fold_in(*rows, workers)), []
        report(Progress("space", settings.mapping, 1, 1))
    state = initial_sides(problem, State(mapping), settings.n_codebooks, settings.shared_codebooks, rng)
    report(Progress("codebooks", "initialised", 1, 1))
    blocks = blocks + quantization_blocks(settings.shared_codebooks)
    tell = _reporter("alternate", settings, len(blocks), report)
    state, history = alternate(problem, state, blocks, settings.max_iter, settings.tol, tell)
    return _keep(settings, preparations, problem, state, space, history)


def fit_linear_space(
    settings: Settings, X: Rows, Y: Rows, groups: Groups, rng: np.random.Generator, workers: Executor
) -> LinearSpace:
    """Canonical correlation, and its contrastive refinement where that is the mapping."""
    ridges = settings.ridge, settings.text_ridge
    space = canonical_correlation(X, Y, settings.n_components, ridges[0], workers, ridges[1])
    return refine_contrastively(space, X, Y, rng, groups) if settings.mapping == "contrastive" else space


def start_sparse(
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
    tell = _reporter("space", settings, len(blocks), report)
    state, _ = alternate(some, State(start), blocks, settings.max_iter, settings.tol, tell)
    assert isinstance(state.mapping, SparseState)
    if rows is None:
        return state.mapping
    return fold_in(state.mapping.B, state.mapping.U, state.mapping.R, X, Y, weights, workers)


def _reporter(stage: str, settings: Settings, n_blocks: int, report: ProgressCallback) -> Any:
    done = 0

    def tell(record: ObjectiveRecord) -> None:
        nonlocal done
        done += 1
        detail = f"round {record.round}, {record.block}"
        report(Progress(stage, detail, done, settings.max_iter * n_blocks, record.total))

    return tell


def _keep(
    settings: Settings,
    preparations: tuple[Preparation, Preparation],
    problem: Problem,
    state: State,
    space: LinearSpace | None,
    history: list[ObjectiveRecord],
) -> Learned:
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
    learned = Learned(settings, *preparations, kept, image, text, image_codes, text_codes, history)
    _check_result(learned)
    return _renumbered(learned).with_cross_term(settings.cross_term, problem.workers.local)


def _renumbered(learned: Learned) -> Learned:
    """The same codewords and codes, with numbers that help the scan."""
    image_codewords, image_codes = renumber(learned.image_quantizer.codewords, learned.image_codes)
    text_codewords, text_codes = renumber(learned.text_quantizer.codewords, learned.text_codes)
    return replace(
        learned,
        image_quantizer=replace(learned.image_quantizer, codewords=image_codewords),
        text_quantizer=replace(learned.text_quantizer, codewords=text_codewords),
        image_codes=image_codes,
        text_codes=text_codes,
    )


def _check_result(learned: Learned) -> None:
    codewords = (learned.image_quantizer.codewords, learned.text_quantizer.codewords)
    if not all(np.isfinite(side).all() for side in codewords) or not np.isfinite(learned.history[-1].total):
        raise NumericalError(
            "the fit ended with values that are not finite; please report it with the parameters: "
            f"{learned.settings}"
        )
