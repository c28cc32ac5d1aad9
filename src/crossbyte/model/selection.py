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

from crossbyte.arrays import Codes, Float32
from crossbyte.compute.executor import Executor, row_blocks
from crossbyte.data.preparation import Preparation, PreparedRows
from crossbyte.errors import InvalidInput
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.ranks import nearest_ties_by_column, partner_ranks_ties_by_column
from crossbyte.model.fit import FittedModel, Groups, fit_pairs, fit_prepared, prepare_pairs
from crossbyte.model.params import SPARSE_IMAGE_COMPONENTS, Settings, Trial
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.cca import LinearSpace, canonical_correlation
from crossbyte.model.space.contrastive import refine_contrastively
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.validation import check_groups, check_pairs

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ

Ranks = NDArray[np.int64]
Grid = Mapping[str, Sequence[float | str]]

HELD_OUT = 0.1
MAX_PAIRS = 20_000
MIN_GROUPS = 20
_QUERIES_AT_ONCE = 256

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

_RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
_CORRELATIONS = (1.0, 0.3, 3.0, 10.0)
_N_SPACES = 3
_N_STEPS = _N_SPACES + 5  # whole fits: the spaces, the paper's, μ, and three more values of γ


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


class PartnerRanks(NamedTuple):
    """0-based rank of each query's best-placed partner, in both directions."""

    image_to_text: Any
    text_to_image: Any

    def recall(self, k: int = 10) -> float:
        """Mean of the two directions' recall@k."""
        return float(np.mean([(ranks < k).mean() for ranks in self]))

    def mean_log_rank(self) -> float:
        """Mean of log(1 + rank) over all queries: less noisy than recall where recall is low."""
        return float(np.mean([np.log1p(ranks).mean() for ranks in self]))

    def hits(self, k: int = 10) -> NDArray[np.float64]:
        """Per pair the share of its two queries that found their partner: (n,)."""
        return np.mean([ranks < k for ranks in self], axis=0)


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


def code_ranks(
    queries: Float32, quantizer: Quantizer, codes: Codes, groups: Groups, workers: Executor
) -> Ranks:
    """Rank each query's partner by table distance to the codes (n, M) of the items."""
    codes = quantizer.scan_codes(codes, workers)

    def ranks(rows: slice) -> Ranks:
        distances = quantizer.table(queries[rows]).distances(codes)
        return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

    return _rank_in_parts(ranks, len(queries), workers)


def point_ranks(queries: Float32, items: Float32, groups: Groups, workers: Executor) -> Ranks:
    """Rank each query's partner by distance to the items themselves, uncompressed."""
    squares = np.einsum("nd,nd->n", items, items)

    def ranks(rows: slice) -> Ranks:
        distances = squares - 2 * (queries[rows] @ items.T)
        return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

    return _rank_in_parts(ranks, len(queries), workers)


def _rank_in_parts(ranks: Callable[[slice], Ranks], n_queries: int, workers: Executor) -> Ranks:
    return np.concatenate(list(workers.map(ranks, row_blocks(n_queries, _QUERIES_AT_ONCE))))


def uncompressed_ranks(images: Float32, texts: Float32, groups: Groups, workers: Executor) -> PartnerRanks:
    """Rank the partners among uncompressed points (n, D) of both sides, in both directions."""
    return PartnerRanks(
        point_ranks(images, texts, groups, workers), point_ranks(texts, images, groups, workers)
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


class OpenParameters(NamedTuple):
    """What the user has left open beside the mapping itself."""

    dims: bool
    ridge: bool


class _SelectionData(NamedTuple):
    """The pairs that candidates are fitted and measured on."""

    images: Any
    texts: Any
    groups: Groups
    split: Split
    preparations: tuple[Preparation, Preparation]
    X: PreparedRows
    Y: PreparedRows
    held_X: PreparedRows
    held_Y: PreparedRows


class _Candidate(NamedTuple):
    """Settings to try."""

    settings: Settings
    space: LinearSpace | None
    """learned already; None where the mapping is learned with the codes"""


class _ScoredCandidate(NamedTuple):
    """A candidate with its score, and the hits (n,) of every pair."""

    candidate: _Candidate
    trial: Trial
    hits: NDArray[np.float64]


def choose_parameters(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    free: OpenParameters,
) -> tuple[Settings, list[Trial]]:
    """Choose mapping, γ, μ and cross term on held-out pairs, dimension and ridge only where they are free.

    First the spaces are compared uncompressed, which is cheap; then at most eight whole fits decide the
    rest. No more than 20,000 pairs, of whole groups, are looked at: only these are read of pairs on disk.

    Returns the settings to fit all rows with, and every trial made.
    """
    split = split_groups(groups, rng)
    base = _with_weights(
        settings._replace(mapping="cca", cross_term="stored"), correlation=1.0, cross_penalty=0.1
    )
    data = _split_data(base, images, texts, groups, split, workers)
    seed = int(rng.integers(2**32))
    trials: list[Trial] = []
    scored = _compare_spaces(base, data, free, seed, trials, workers)
    report(Progress("select", "spaces", 1, _N_STEPS + 1))
    candidates = [*_keep_better_spaces(scored), _paper_candidate(base)]
    return _compare_codes(candidates, data, seed, trials, report, workers), trials


def choose_space(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Groups,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Executor,
    free: OpenParameters,
) -> tuple[Settings, list[Trial]]:
    """Choose the space alone: the simplest that is within one standard error of the best.

    A few dozen held-out pairs can tell spaces apart, but not codes. Returns as :func:`choose_parameters`.
    """
    base = settings._replace(mapping="cca")
    data = _split_data(base, images, texts, groups, split_groups(groups, rng), workers)
    trials: list[Trial] = []
    scored = _compare_spaces(base, data, free, int(rng.integers(2**32)), trials, workers)
    report(Progress("select", "spaces", 1, 1))
    least = _score_within_error(trial for trial, _ in scored)
    return next(candidate.settings for trial, candidate in scored if trial.score >= least), trials


def _split_data(
    base: Settings, images: Any, texts: Any, groups: Groups, split: Split, workers: Executor
) -> _SelectionData:
    preparations, (X, Y) = prepare_pairs(base, images[split.train], texts[split.train], workers)
    held = images[split.held_out], texts[split.held_out]
    held_rows = (
        preparation.apply(side, workers) for preparation, side in zip(preparations, held, strict=True)
    )
    return _SelectionData(images, texts, groups, split, preparations, X, Y, *held_rows)


def _compare_spaces(
    base: Settings,
    data: _SelectionData,
    free: OpenParameters,
    seed: int,
    trials: list[Trial],
    workers: Executor,
) -> list[tuple[Trial, _Candidate]]:
    """Choose the ridge by uncompressed recall, then score canonical and contrastive spaces by dimension."""
    dims = sorted({base.n_components, 2 * base.n_components, 64}) if free.dims else [base.n_components]
    ridges = _RIDGES if free.ridge else (base.ridge,)
    ridge, best = _choose_ridge(base, data, dims[-1], ridges, trials, workers)
    scored = []
    for n_dims in sorted({min(d, best.n_dims) for d in dims}):
        settings = base._replace(ridge=ridge, n_components=n_dims)
        for mapping, space in _make_spaces(best.truncate(n_dims), data, seed):
            candidate = _Candidate(settings._replace(mapping=mapping), space)
            trials.append(_space_trial(candidate.settings, _space_ranks(space, data, workers)))
            scored.append((trials[-1], candidate))
    return scored


def _choose_ridge(
    base: Settings,
    data: _SelectionData,
    n_dims: int,
    ridges: Sequence[float],
    trials: list[Trial],
    workers: Executor,
) -> tuple[float, LinearSpace]:
    """Choose the lowest mean log rank among ridges whose recall is within one error of the best."""
    tried = []
    for ridge in ridges:
        space = canonical_correlation(data.X, data.Y, n_dims, ridge, workers, base.text_ridge)
        ranks = _space_ranks(space, data, workers)
        trials.append(_space_trial(base._replace(ridge=ridge, n_components=space.n_dims), ranks))
        tried.append((ranks.mean_log_rank(), trials[-1], ridge, space))
    least = _score_within_error(trial for _, trial, _, _ in tried)
    close = [entry for entry in tried if entry[1].score >= least]
    _, _, ridge, space = min(close, key=lambda entry: entry[0])
    return ridge, space


def _make_spaces(canonical: LinearSpace, data: _SelectionData, seed: int) -> list[tuple[str, LinearSpace]]:
    rng, groups = np.random.default_rng(seed), data.groups[data.split.train]
    return [("cca", canonical), ("contrastive", refine_contrastively(canonical, data.X, data.Y, rng, groups))]


def _space_ranks(space: LinearSpace, data: _SelectionData, workers: Executor) -> PartnerRanks:
    x = space.transform_images(data.held_X, workers)
    y = space.transform_texts(data.held_Y, workers)
    return uncompressed_ranks(x, y, data.groups[data.split.held_out], workers)


def _space_trial(settings: Settings, ranks: PartnerRanks) -> Trial:
    described = _describe(settings)
    params = {name: described[name] for name in ("mapping", "n_components", "ridge")}
    return Trial(params | {"compressed": False}, *_mean_and_error(ranks.hits()))


def _keep_better_spaces(scored: list[tuple[Trial, _Candidate]]) -> list[_Candidate]:
    """Keep the spaces that are worth whole fits, in their order, simplest first."""
    least = sorted((trial.score for trial, _ in scored), reverse=True)[:_N_SPACES][-1]
    return [candidate for trial, candidate in scored if trial.score >= least][:_N_SPACES]


def _paper_candidate(base: Settings) -> _Candidate:
    """Make the candidate with the paper's mapping, its preparation, and no shrinkage."""
    components = min(base.image_components or SPARSE_IMAGE_COMPONENTS, SPARSE_IMAGE_COMPONENTS)
    settings = base._replace(mapping="sparse", image_components=components)
    return _Candidate(_with_weights(settings, shrinkage=0.0), None)


def _compare_codes(
    candidates: list[_Candidate],
    data: _SelectionData,
    seed: int,
    trials: list[Trial],
    report: ProgressCallback,
    workers: Executor,
) -> Settings:
    """Choose among the candidates by whole fits, then μ and γ of the best one."""
    measured: list[_ScoredCandidate] = []

    def measure(candidate: _Candidate) -> None:
        learned = _fit_candidate(candidate, data, seed, workers)
        for cross_term in ("constant", "stored"):
            measured.append(_score_candidate(candidate, learned, cross_term, data, workers))
            trials.append(measured[-1].trial)
        report(Progress("select", str(_describe(candidate.settings)), 1 + len(measured) // 2, _N_STEPS + 1))

    for candidate in candidates:
        measure(candidate)
    chosen = _choose_simplest(measured).candidate
    measure(chosen._replace(settings=_with_weights(chosen.settings, cross_penalty=1.0)))
    same_space = [m for m in measured if m.candidate.space is chosen.space]
    best = max(same_space, key=lambda m: m.trial.score).candidate
    for correlation in _CORRELATIONS[1:]:
        measure(best._replace(settings=_with_weights(best.settings, correlation=correlation)))
    return _choose_correlation(measured, best)


def _fit_candidate(candidate: _Candidate, data: _SelectionData, seed: int, workers: Executor) -> FittedModel:
    rows, rng = data.split.train, np.random.default_rng(seed)
    settings, groups = candidate.settings, data.groups[rows]
    if candidate.space is None:
        return fit_pairs(settings, data.images[rows], data.texts[rows], groups, rng, ignore_progress, workers)
    prepared = data.X, data.Y
    return fit_prepared(
        settings, data.preparations, prepared, groups, rng, workers=workers, space=candidate.space
    )


def _score_candidate(
    candidate: _Candidate, learned: FittedModel, cross_term: str, data: _SelectionData, workers: Executor
) -> _ScoredCandidate:
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
    trial = Trial(_describe(settings) | {"compressed": True}, *_mean_and_error(hits))
    return _ScoredCandidate(candidate._replace(settings=settings), trial, hits)


def _describe(settings: Settings) -> dict[str, Any]:
    return {
        "mapping": settings.mapping,
        "n_components": settings.n_components,
        "ridge": settings.ridge,
        "correlation": settings.quantization_weights.correlation,
        "cross_penalty": settings.quantization_weights.cross_penalty,
        "cross_term": settings.cross_term,
    }


def _choose_simplest(measured: list[_ScoredCandidate]) -> _ScoredCandidate:
    """Choose the simplest space that is not worse than the best by one standard error of their difference.

    Candidates come simplest first: fewer dimensions, canonical before contrastive, the paper's last.
    """
    best = max(measured, key=lambda m: m.trial.score)
    for one in measured:
        if one.candidate.settings.cross_term == best.candidate.settings.cross_term:
            gap, error = _mean_and_error(best.hits - one.hits)
            if gap <= error:
                return one
    return best


def _choose_correlation(measured: list[_ScoredCandidate], like: _Candidate) -> Settings:
    """Choose γ: the largest value within one standard error of the best, all else equal."""
    wanted = _with_weights(like.settings, correlation=0.0)
    rivals = [m for m in measured if _with_weights(m.candidate.settings, correlation=0.0) == wanted]
    least = _score_within_error(m.trial for m in rivals)
    close = [m.candidate.settings for m in rivals if m.trial.score >= least]
    return max(close, key=lambda settings: settings.quantization_weights.correlation)


def _with_weights(settings: Settings, **weights: float) -> Settings:
    """Return the settings with some quantization weights replaced."""
    return settings._replace(quantization_weights=settings.quantization_weights._replace(**weights))
