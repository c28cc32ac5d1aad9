"""Choosing parameters on held-out pairs: as the paper does, or without labels.

Held-out items are always coded from one side alone: a folded-in pair, queried by its own half, would
leak. Splits are by group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crossbyte.errors import InvalidInput
from crossbyte.metrics import mean_average_precision, nearest_ties_by_column
from crossbyte.validation import check_groups, check_pairs

if TYPE_CHECKING:
    from crossbyte.model.cmcq import CMCQ

__all__ = [
    "EXTENDED_GRID",
    "PAPER_GRID",
    "PAIR_GRID",
    "Selection",
    "Trial",
    "check_enough_groups",
    "sample_of_groups",
    "select_by_labels",
    "select_by_pairs",
    "split_groups",
]

Grid = Mapping[str, Sequence[float | str]]

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

HELD_OUT = 0.1
MAX_PAIRS = 20_000
MAX_FITS = 8
MIN_GROUPS = 20


class Trial(NamedTuple):
    """One setting that was tried, and what it scored on the held-out pairs."""

    params: dict[str, Any]
    score: float
    standard_error: float


class Selection(NamedTuple):
    """What was chosen, and everything that was tried."""

    params: dict[str, Any]
    trials: list[Trial]


class Split(NamedTuple):
    """Rows to learn from and rows to measure on."""

    train: NDArray[np.intp]
    held_out: NDArray[np.intp]


def split_groups(
    groups: NDArray[np.intp], rng: np.random.Generator, max_pairs: int | None = MAX_PAIRS
) -> Split:
    """Hold out a tenth of the groups; beyond ``max_pairs`` rows, use a sample of the groups."""
    n_groups = int(groups.max()) + 1
    check_enough_groups(
        n_groups,
        "choosing parameters needs held-out pairs",
        "give the parameters yourself, e.g. mapping='cca'",
    )
    order = rng.permutation(n_groups)
    if max_pairs is not None and len(groups) > max_pairs:
        order = sample_of_groups(order, np.bincount(groups), max_pairs)
    n_held = max(1, round(HELD_OUT * len(order)))
    return Split(
        np.flatnonzero(np.isin(groups, order[n_held:])), np.flatnonzero(np.isin(groups, order[:n_held]))
    )


def check_enough_groups(n_groups: int, purpose: str, advice: str) -> None:
    """Refuse to split too few groups; the message begins with the purpose and ends with the advice."""
    if n_groups < MIN_GROUPS:
        raise InvalidInput(f"{purpose}: expected at least {MIN_GROUPS} groups, got {n_groups}; {advice}")


def sample_of_groups(order: NDArray[np.intp], sizes: NDArray[np.intp], max_pairs: int) -> NDArray[np.intp]:
    """Groups from the front of the order with at most ``max_pairs`` rows together, or the smallest few."""
    small = order[sizes[order] <= max_pairs // MIN_GROUPS]  # one huge group would leave room for no other
    if len(small) < MIN_GROUPS:
        return order[np.argsort(sizes[order], kind="stable")[:MIN_GROUPS]]
    order = small
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), max_pairs, side="right"))
    return order[: max(MIN_GROUPS, fitting)]


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


def _validation_map(
    model: CMCQ, images: Any, texts: Any, relevance: NDArray[np.float32], split: Split
) -> float:
    """Mean MAP@50 of both tasks: the held-out rows ask, the rest with its learned codes answers."""
    model.fit(images[split.train], texts[split.train])
    shared = (relevance[split.held_out] @ relevance[split.train].T) > 0
    held = images[split.held_out], texts[split.held_out]
    return float(np.mean([_map_at_50(model, *held, shared, target) for target in ("text", "image")]))


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
        hits = ranks.hits(10)
        return float(hits.mean()), float(hits.std() / np.sqrt(len(hits)))

    return _coordinate_search(model, score, grid, max_fits, prefer_large=True)


def _coordinate_search(
    model: CMCQ,
    score: Callable[[CMCQ], tuple[float, float]],
    grid: Grid,
    max_fits: int | None,
    prefer_large: bool,
) -> Selection:
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
            chosen = dict(pick(candidates, name, prefer_large).params)
    return Selection(chosen, list(tried.values()))


def pick(trials: Sequence[Trial], name: str, prefer_large: bool = True) -> Trial:
    """The best trial; for γ, if ``prefer_large``, the largest value within one standard error of it."""
    best = max(trials, key=lambda trial: trial.score)
    if name != "correlation" or not prefer_large:
        return best
    close = [trial for trial in trials if trial.score >= best.score - best.standard_error]
    return max(close, key=lambda trial: trial.params[name])


def _check_labels(labels: Any, n_rows: int) -> NDArray[np.float32]:
    array = np.asarray(labels)
    if array.ndim == 1:
        array = array[:, None] == np.unique(array)
    if array.ndim != 2 or len(array) != n_rows:
        raise InvalidInput(f"labels: expected one row per pair ({n_rows}), got shape {array.shape}")
    return (array != 0).astype(np.float32)


def _map_at_50(model: CMCQ, images: Any, texts: Any, relevant: NDArray[np.bool_], target: str) -> float:
    distances = (
        model.training_distances(images=images) if target == "text" else model.training_distances(texts=texts)
    )
    depth = min(50, distances.shape[1])
    return mean_average_precision(
        np.take_along_axis(relevant, nearest_ties_by_column(distances, depth), axis=1), depth
    )
