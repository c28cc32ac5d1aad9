"""``mapping="auto"``: mapping, its regularisation and dimension, γ, μ and cross term by held-out pairs.

First the spaces are compared uncompressed, which is cheap; then at most eight whole fits decide the rest.
``mapping="auto-space"`` stops after the first step and takes the rest as it is given. Both look at no more
than 20,000 pairs, of whole groups: only these are read of pairs that are on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.features import Rows
from crossbyte.data.preparation import Preparation
from crossbyte.executors.protocol import Executor
from crossbyte.mapping.contrastive import refine_contrastively
from crossbyte.mapping.linear import LinearSpace, canonical_correlation
from crossbyte.model.fitting import fit_pairs, fit_prepared, prepare
from crossbyte.model.learned import Learned
from crossbyte.model.parameters import SPARSE_IMAGE_COMPONENTS, Settings
from crossbyte.model.scoring import PartnerRanks, held_out_ranks, point_ranks
from crossbyte.model.selection import Split, Trial, split_groups
from crossbyte.progress import Progress, ProgressCallback, silent

__all__ = ["Free", "choose", "choose_space"]

Groups = NDArray[np.intp]

_RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
_CORRELATIONS = (1.0, 0.3, 3.0, 10.0)
_N_SPACES = 3
_N_STEPS = _N_SPACES + 5  # whole fits: the spaces, the paper's, μ, and three more values of γ


class Free(NamedTuple):
    """What the user has left open beside the mapping itself."""

    dims: bool
    ridge: bool


class _Data(NamedTuple):
    """Everything the candidates are tried on."""

    images: Any
    texts: Any
    groups: Groups
    split: Split
    preparations: tuple[Preparation, Preparation]
    X: Rows
    Y: Rows
    held_X: Rows
    held_Y: Rows


class _Candidate(NamedTuple):
    settings: Settings
    space: LinearSpace | None
    """made before; None where the mapping is learned with the codes"""


class _Measured(NamedTuple):
    candidate: _Candidate
    trial: Trial
    hits: NDArray[np.float64]


def choose(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    free: Free,
) -> tuple[Settings, list[Trial]]:
    """Choose on held-out pairs, dimension and ridge only where they are free.

    Returns the settings to fit all rows with, and every trial made.
    """
    split = split_groups(groups, rng)
    base = settings._replace(
        mapping="cca",
        quantization_weights=settings.quantization_weights._replace(correlation=1.0, cross_penalty=0.1),
        cross_term="stored",
    )
    data = _split_data(base, images, texts, groups, split, workers)
    seed = int(rng.integers(2**32))
    trials: list[Trial] = []
    spaces = _better_spaces(_compare_spaces(base, data, free, seed, trials, workers))
    report(Progress("select", "spaces", 1, _N_STEPS + 1))
    candidates = [*spaces, _paper_candidate(base)]
    return _compare_codes(candidates, data, seed, trials, report, workers), trials


def choose_space(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    free: Free,
) -> tuple[Settings, list[Trial]]:
    """Choose the space alone: the simplest that is within one standard error of the best.

    A few dozen held-out pairs can tell spaces apart, but not codes. Returns as :func:`choose`.
    """
    base = settings._replace(mapping="cca")
    data = _split_data(base, images, texts, groups, split_groups(groups, rng), workers)
    trials: list[Trial] = []
    scored = _compare_spaces(base, data, free, int(rng.integers(2**32)), trials, workers)
    report(Progress("select", "spaces", 1, 1))
    best = max((trial for trial, _ in scored), key=lambda trial: trial.score)
    least = best.score - best.standard_error
    return next(candidate.settings for trial, candidate in scored if trial.score >= least), trials


def _paper_candidate(base: Settings) -> _Candidate:
    """The paper's mapping, with its preparation and without shrinkage."""
    components = min(base.image_components or SPARSE_IMAGE_COMPONENTS, SPARSE_IMAGE_COMPONENTS)
    weights = base.quantization_weights._replace(shrinkage=0.0)
    return _Candidate(
        base._replace(mapping="sparse", image_components=components, quantization_weights=weights), None
    )


def _split_data(
    base: Settings, images: Any, texts: Any, groups: Groups, split: Split, workers: Executor
) -> _Data:
    preparations, (X, Y) = prepare(base, images[split.train], texts[split.train], workers)
    held = images[split.held_out], texts[split.held_out]
    held_rows = (
        preparation.apply(side, workers) for preparation, side in zip(preparations, held, strict=True)
    )
    return _Data(images, texts, groups, split, preparations, X, Y, *held_rows)


def _compare_spaces(
    base: Settings, data: _Data, free: Free, seed: int, trials: list[Trial], workers: Executor
) -> list[tuple[Trial, _Candidate]]:
    """Best ridge by uncompressed recall, then canonical and contrastive spaces of each dimension."""
    dims = sorted({base.n_components, 2 * base.n_components, 64}) if free.dims else [base.n_components]
    ridges = _RIDGES if free.ridge else (base.ridge,)
    ridge, best = _choose_ridge(base, data, dims[-1], ridges, trials, workers)
    scored = []
    for n_dims in sorted({min(d, best.n_dims) for d in dims}):
        settings = base._replace(ridge=ridge, n_components=n_dims)
        for mapping, space in _spaces_of(best.truncated(n_dims), data, seed):
            candidate = _Candidate(settings._replace(mapping=mapping), space)
            trials.append(_space_trial(candidate.settings, _space_ranks(space, data, workers)))
            scored.append((trials[-1], candidate))
    return scored


def _better_spaces(scored: list[tuple[Trial, _Candidate]]) -> list[_Candidate]:
    """Only the better ones are worth whole fits; they stay in their order, simplest first."""
    least = sorted((trial.score for trial, _ in scored), reverse=True)[:_N_SPACES][-1]
    return [candidate for trial, candidate in scored if trial.score >= least][:_N_SPACES]


def _choose_ridge(
    base: Settings, data: _Data, n_dims: int, ridges: Sequence[float], trials: list[Trial], workers: Executor
) -> tuple[float, LinearSpace]:
    """The ridge with the lowest mean log rank among those whose recall is within one error of the best."""
    tried = []
    for ridge in ridges:
        space = canonical_correlation(data.X, data.Y, n_dims, ridge, workers, base.text_ridge)
        ranks = _space_ranks(space, data, workers)
        trials.append(_space_trial(base._replace(ridge=ridge, n_components=space.n_dims), ranks))
        tried.append((ranks.mean_log_rank(), trials[-1], ridge, space))
    best = max((trial for _, trial, _, _ in tried), key=lambda trial: trial.score)
    close = [entry for entry in tried if entry[1].score >= best.score - best.standard_error]
    _, _, ridge, space = min(close, key=lambda entry: entry[0])
    return ridge, space


def _spaces_of(canonical: LinearSpace, data: _Data, seed: int) -> list[tuple[str, LinearSpace]]:
    rng, groups = np.random.default_rng(seed), data.groups[data.split.train]
    return [("cca", canonical), ("contrastive", refine_contrastively(canonical, data.X, data.Y, rng, groups))]


def _space_ranks(space: LinearSpace, data: _Data, workers: Executor) -> PartnerRanks:
    x = space.transform_images(data.held_X, workers)
    y = space.transform_texts(data.held_Y, workers)
    groups = data.groups[data.split.held_out]
    return PartnerRanks(point_ranks(x, y, groups, workers), point_ranks(y, x, groups, workers))


def _space_trial(settings: Settings, ranks: PartnerRanks) -> Trial:
    described = _describe(settings)
    params = {name: described[name] for name in ("mapping", "n_components", "ridge")}
    return _trial(params | {"compressed": False}, ranks.hits())


def _compare_codes(
    candidates: list[_Candidate],
    data: _Data,
    seed: int,
    trials: list[Trial],
    report: ProgressCallback,
    workers: Executor,
) -> Settings:
    measured: list[_Measured] = []

    def try_out(candidate: _Candidate) -> None:
        learned = _fit(candidate, data, seed, workers)
        for cross_term in ("constant", "stored"):
            measured.append(_measure(candidate, learned, cross_term, data, workers))
            trials.append(measured[-1].trial)
        report(Progress("select", str(_describe(candidate.settings)), 1 + len(measured) // 2, _N_STEPS + 1))

    for candidate in candidates:
        try_out(candidate)
    chosen = _simplest_of_the_best(measured).candidate
    weights = chosen.settings.quantization_weights
    try_out(
        chosen._replace(
            settings=chosen.settings._replace(quantization_weights=weights._replace(cross_penalty=1.0))
        )
    )
    same_space = [m for m in measured if m.candidate.space is chosen.space]
    best = max(same_space, key=lambda m: m.trial.score).candidate
    for correlation in _CORRELATIONS[1:]:
        weights = best.settings.quantization_weights._replace(correlation=correlation)
        try_out(best._replace(settings=best.settings._replace(quantization_weights=weights)))
    return _largest_correlation(measured, best)


def _fit(candidate: _Candidate, data: _Data, seed: int, workers: Executor) -> Learned:
    rows, rng = data.split.train, np.random.default_rng(seed)
    settings, groups = candidate.settings, data.groups[rows]
    if candidate.space is None:
        return fit_pairs(settings, data.images[rows], data.texts[rows], groups, rng, silent, workers)
    prepared = data.X, data.Y
    return fit_prepared(
        settings, data.preparations, prepared, groups, rng, workers=workers, space=candidate.space
    )


def _measure(
    candidate: _Candidate, learned: Learned, cross_term: str, data: _Data, workers: Executor
) -> _Measured:
    """Score one fit under one treatment of the cross term; both cost one fit together."""
    settings = candidate.settings._replace(cross_term=cross_term)
    held = data.split.held_out
    ranks = held_out_ranks(
        learned.with_cross_term(cross_term, workers),
        data.images[held],
        data.texts[held],
        data.groups[held],
        workers,
    )
    hits = ranks.hits()
    params = _describe(settings) | {"compressed": True}
    return _Measured(candidate._replace(settings=settings), _trial(params, hits), hits)


def _trial(params: dict[str, Any], hits: NDArray[np.float64]) -> Trial:
    return Trial(params, float(hits.mean()), float(hits.std() / np.sqrt(len(hits))))


def _describe(settings: Settings) -> dict[str, Any]:
    return {
        "mapping": settings.mapping,
        "n_components": settings.n_components,
        "ridge": settings.ridge,
        "correlation": settings.quantization_weights.correlation,
        "cross_penalty": settings.quantization_weights.cross_penalty,
        "cross_term": settings.cross_term,
    }


def _simplest_of_the_best(measured: list[_Measured]) -> _Measured:
    """The simplest space that is not worse than the best by one standard error of their difference.

    Candidates come simplest first: fewer dimensions, canonical before contrastive, the paper's last.
    """
    best = max(measured, key=lambda m: m.trial.score)
    for one in measured:
        gap = best.hits - one.hits
        if (
            one.candidate.settings.cross_term == best.candidate.settings.cross_term
            and gap.mean() <= gap.std() / np.sqrt(len(gap))
        ):
            return one
    return best


def _largest_correlation(measured: list[_Measured], like: _Candidate) -> Settings:
    """γ: the largest value within one standard error of the best, all else equal."""
    wanted = like.settings._replace(
        quantization_weights=like.settings.quantization_weights._replace(correlation=0.0)
    )
    rivals = [
        m
        for m in measured
        if m.candidate.settings._replace(
            quantization_weights=m.candidate.settings.quantization_weights._replace(correlation=0.0)
        )
        == wanted
    ]
    best = max(rivals, key=lambda m: m.trial.score).trial
    close = [m for m in rivals if m.trial.score >= best.score - best.standard_error]
    return max(close, key=lambda m: m.candidate.settings.quantization_weights.correlation).candidate.settings
