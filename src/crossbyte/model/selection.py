"""Choose parameters on held-out pairs: by labels as the paper does, by true partners, or automatically.

Held-out items are always coded from one side alone: a folded-in pair, queried by its own half, would
leak. Splits are by group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crossbyte.compute.executor import Executor
from crossbyte.errors import InvalidInput
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.ranks import nearest_ties_by_column
from crossbyte.model.fit import FittedModel, Groups, prepare_pairs
from crossbyte.model.params import (
    IMAGE_COMPONENTS,
    LIKELIHOOD_DIMS,
    Settings,
    Trial,
    reduce_wide_texts,
    take_roots,
)
from crossbyte.model.partner_ranks import PartnerRanks, code_ranks
from crossbyte.model.space import gaussian
from crossbyte.model.space.cca import second_moments
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.validation import check_groups, check_pairs

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ

Grid = Mapping[str, Sequence[float | str]]

HELD_OUT = 0.1
MAX_PAIRS = 20_000
MIN_GROUPS = 20

_FOUR = (0.1, 0.3, 0.5, 0.7)
PAPER_GRID: Grid = {"sparsity": _FOUR, "text_weight": _FOUR, "alignment": _FOUR, "correlation": _FOUR}
"""ρ, η, λ and γ as in Sec. 6.1 of the paper."""
EXTENDED_GRID: Grid = {
    "sparsity": _FOUR,
    "text_weight": (*_FOUR, 1.0, 2.0, 5.0),
    "alignment": (*_FOUR, 1.0, 2.0, 5.0),
    "correlation": (*_FOUR, 1.0, 2.0, 5.0),
}
"""The same, upwards: long codes of few text dimensions need η and λ of 1 and more. ρ stays below 1."""
PAIR_GRID: Grid = {"correlation": (0.0, 0.3, 1.0, 3.0, 10.0), "cross_penalty": (0.1, 1.0)}
"""What :func:`select_by_pairs` tries by default."""
MAX_FITS = 8


# Splits


class Split(NamedTuple):
    """Rows to learn from and rows to measure on."""

    train: NDArray[np.intp]
    held_out: NDArray[np.intp]


def split_groups(groups: Groups, rng: np.random.Generator, max_pairs: int | None = MAX_PAIRS) -> Split:
    """Hold out a tenth of the groups; beyond ``max_pairs`` rows, of a sample of the groups."""
    n_groups = int(groups.max()) + 1
    check_enough_groups(
        n_groups,
        "choosing parameters needs held-out pairs",
        "give the parameters yourself, e.g. mapping='cca'",
    )
    order = rng.permutation(n_groups)
    if max_pairs is not None and len(groups) > max_pairs:
        order = sample_groups(order, np.bincount(groups), max_pairs)
    n_held = max(1, round(HELD_OUT * len(order)))
    return Split(
        np.flatnonzero(np.isin(groups, order[n_held:])), np.flatnonzero(np.isin(groups, order[:n_held]))
    )


def check_enough_groups(n_groups: int, purpose: str, advice: str) -> None:
    """Refuse to split too few groups; the message begins with the purpose and ends with the advice."""
    if n_groups < MIN_GROUPS:
        raise InvalidInput(f"{purpose}: expected at least {MIN_GROUPS} groups, got {n_groups}; {advice}")


def sample_groups(order: NDArray[np.intp], sizes: NDArray[np.intp], max_pairs: int) -> NDArray[np.intp]:
    """Take groups from the front of the order, ``max_pairs`` rows at most, or the few smallest groups."""
    small = order[sizes[order] <= max_pairs // MIN_GROUPS]  # one huge group would leave room for no other
    if len(small) < MIN_GROUPS:
        return order[np.argsort(sizes[order], kind="stable")[:MIN_GROUPS]]
    order = small
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), max_pairs, side="right"))
    return order[: max(MIN_GROUPS, fitting)]


# Scores of held-out pairs


def held_out_ranks(
    learned: FittedModel, images: Any, texts: Any, groups: Groups, workers: Executor
) -> PartnerRanks:
    """Rank the partners among unseen pairs, as an index of one-sided items would."""
    image, text = learned.image_quantizer, learned.text_quantizer
    image_codes, text_codes = learned.encode_images(images, workers), learned.encode_texts(texts, workers)
    return PartnerRanks(
        code_ranks(learned.transform_images(images, workers), text, text_codes, groups, workers),
        code_ranks(learned.transform_texts(texts, workers), image, image_codes, groups, workers),
    )


def pick_trial(trials: Sequence[Trial], name: str, prefer_large: bool = True) -> Trial:
    """Pick the best trial; for γ, if ``prefer_large``, the largest value within one standard error of it."""
    if name != "correlation" or not prefer_large:
        return max(trials, key=lambda trial: trial.score)
    least = _score_within_error(trials)
    return max((trial for trial in trials if trial.score >= least), key=lambda trial: trial.params[name])


def _score_within_error(trials: Iterable[Trial]) -> float:
    """Return the score that is one standard error below the best."""
    best = max(trials, key=lambda trial: trial.score)
    return best.score - best.standard_error


def _mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean of one value per pair, and its standard error."""
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


# Choosing from a grid, one parameter after the other


class Selection(NamedTuple):
    """What was chosen, and everything that was tried."""

    params: dict[str, Any]
    trials: list[Trial]


def select_by_labels(
    model: CMCQ, images: Any, texts: Any, labels: Any, grid: Grid = EXTENDED_GRID
) -> Selection:
    """Choose as in the paper: each parameter in turn, the others fixed, by mean MAP@50 of both tasks.

    Parameters
    ----------
    model : CMCQ
        Gives all other parameters, and the first values of those in the grid; it is not changed.
    labels : (N, L)
        Non-zero where a pair has a label; a hit shares one with the query. This is supervision.
    grid : mapping
        Values to try, by parameter name, in the order in which they are searched.
    """
    images, texts = check_pairs(images, texts)
    relevance = _check_labels(labels, images.shape[0])
    rng = np.random.default_rng(model.random_state)
    split = split_groups(np.arange(images.shape[0]), rng, max_pairs=None)

    def score(candidate: CMCQ) -> tuple[float, float]:
        return _validation_map(candidate, images, texts, relevance, split), 0.0

    return _coordinate_search(model, score, grid, None, prefer_large=False)


def _check_labels(labels: Any, n_rows: int) -> NDArray[np.float32]:
    array = np.asarray(labels)
    if array.ndim == 1:
        array = array[:, None] == np.unique(array)
    if array.ndim != 2 or len(array) != n_rows:
        raise InvalidInput(f"labels: expected one row per pair ({n_rows}), got shape {array.shape}")
    return (array != 0).astype(np.float32)


def _validation_map(
    model: CMCQ, images: Any, texts: Any, relevance: NDArray[np.float32], split: Split
) -> float:
    """Measure the mean MAP@50 of both tasks: held-out queries, and the learned codes of the other rows."""
    model.fit(images[split.train], texts[split.train])
    shared = (relevance[split.held_out] @ relevance[split.train].T) > 0
    held = images[split.held_out], texts[split.held_out]
    return float(np.mean([_map_at_50(model, *held, shared, target) for target in ("text", "image")]))


def _map_at_50(model: CMCQ, images: Any, texts: Any, relevant: NDArray[np.bool_], target: str) -> float:
    distances = (
        model.training_distances(images=images) if target == "text" else model.training_distances(texts=texts)
    )
    depth = min(50, distances.shape[1])
    return mean_average_precision(
        np.take_along_axis(relevant, nearest_ties_by_column(distances, depth), axis=1), depth
    )


def select_by_pairs(
    model: CMCQ, images: Any, texts: Any, groups: Any = None, grid: Grid = PAIR_GRID, max_fits: int = MAX_FITS
) -> Selection:
    """Choose without labels: recall@10 of the true partner among held-out pairs, both directions.

    At most 20,000 pairs and ``max_fits`` fits are used. γ is the largest value within one standard
    error of the best; every other parameter is simply the best.
    """
    images, texts = check_pairs(images, texts)
    groups = check_groups(groups, images.shape[0])
    split = split_groups(groups, np.random.default_rng(model.random_state))

    def score(candidate: CMCQ) -> tuple[float, float]:
        candidate.fit(images[split.train], texts[split.train], groups[split.train])
        ranks = candidate.partner_ranks(images[split.held_out], texts[split.held_out], groups[split.held_out])
        return _mean_and_error(ranks.hits(10))

    return _coordinate_search(model, score, grid, max_fits, prefer_large=True)


def _coordinate_search(
    model: CMCQ,
    score: Callable[[CMCQ], tuple[float, float]],
    grid: Grid,
    max_fits: int | None,
    prefer_large: bool,
) -> Selection:
    """Vary one parameter after the other over its values, the others as chosen so far."""
    chosen = {name: model.get_params()[name] for name in grid}
    tried: dict[tuple[Any, ...], Trial] = {}
    for name, values in grid.items():
        candidates = []
        for value in values:
            params = chosen | {name: value}
            key = tuple(params.values())
            if key not in tried:
                if max_fits is not None and len(tried) >= max_fits:
                    continue
                tried[key] = Trial(params, *score(clone(model).set_params(**params)))
            candidates.append(tried[key])
        if candidates:
            chosen = dict(pick_trial(candidates, name, prefer_large).params)
    return Selection(chosen, list(tried.values()))


# Choosing what ``mapping="auto"`` leaves open


class _ScoredSpace(NamedTuple):
    """Settings that were tried, with the log rank (n,) of each held-out pair."""

    settings: Settings
    log_ranks: NDArray[np.float64]


def choose_space(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
) -> tuple[Settings, list[Trial]]:
    """Choose powers, components and dimensions of a canonical space on held-out pairs, uncompressed.

    One parameter after the other; another value is taken where the mean log rank of held-out partners is
    better by more than one standard error, pair by pair (recall@10 is too coarse to choose by). Ridges are
    chosen anew for every candidate. No more than 20,000 pairs, of whole groups, are looked at: only these are
    read of pairs on disk.

    Returns the settings to fit all rows with, and every trial made.
    """
    split = split_groups(groups, rng)
    rows = np.concatenate([split.train, split.held_out])
    some = images[rows], texts[rows], groups[rows]
    settings = reduce_wide_texts(take_roots(settings, *some[:2]), texts.shape[1])
    folds = np.ones(len(rows), dtype=np.intp)
    folds[len(split.train) :] = 0
    trials: list[Trial] = []
    best: _ScoredSpace | None = None
    candidates = _alternatives(settings, images.shape[1])
    for number, change in enumerate(candidates, start=1):
        tried = (settings if best is None else best.settings)._replace(**change)
        scored = _score_space(tried, some, folds, trials, workers)
        if best is None or _is_better(scored, best):
            best = scored
        report(Progress("select", str(change), number, len(candidates)))
    assert best is not None
    return best.settings._replace(mapping="cca", open_powers=(False, False)), trials


def _alternatives(settings: Settings, image_width: int) -> list[dict[str, Any]]:
    """List changes to try, one after the other; the first changes nothing."""
    changes: list[dict[str, Any]] = [{}]
    powers = zip(
        ("image_power", "text_power"),
        settings.open_powers,
        (settings.image_power, settings.text_power),
        strict=True,
    )
    changes += [{name: 1.5 - power} for name, is_open, power in powers if is_open]  # roots, or as they are
    if settings.image_components == IMAGE_COMPONENTS < image_width:
        changes.append({"image_components": 2 * IMAGE_COMPONENTS})
    if settings.n_components == LIKELIHOOD_DIMS:
        changes.append({"n_components": 2 * LIKELIHOOD_DIMS})
    return changes


def _score_space(
    settings: Settings,
    pairs: tuple[Any, Any, Groups],
    folds: Groups,
    trials: list[Trial],
    workers: Executor,
) -> _ScoredSpace:
    """Learn a space from fold 1, with the best of the ridges that are open, and rank the pairs of fold 0."""
    images, texts, groups = pairs
    learn = folds == 1
    preparations, _ = prepare_pairs(settings, images[learn], texts[learn], workers)
    X, Y = (part.apply(side, workers) for part, side in zip(preparations, (images, texts), strict=True))
    moments = gaussian.FoldMoments(second_moments(X, Y, workers), folds)
    start = settings.ridge, settings.ridge if settings.text_ridge is None else settings.text_ridge
    tried = gaussian.try_ridges(
        moments, X, Y, groups, settings.n_components, start, settings.open_ridges, workers
    )
    chosen = gaussian.choose_ridges(tried)
    (log_ranks,) = (trial.log_ranks for trial in tried if trial.ridges == chosen)
    params = {
        "image_power": settings.image_power,
        "text_power": settings.text_power,
        "image_components": settings.image_components,
        "n_components": settings.n_components,
        "ridge": chosen[0],
        "text_ridge": chosen[1],
    }
    mean, error = _mean_and_error(log_ranks)
    trials.append(Trial(params, -mean, error))
    return _ScoredSpace(settings, log_ranks)


def _is_better(one: _ScoredSpace, other: _ScoredSpace) -> bool:
    """Whether held-out partners rank better by more than one standard error of the difference."""
    gain, error = _mean_and_error(other.log_ranks - one.log_ranks)
    return gain > error
