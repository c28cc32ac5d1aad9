"""The pilot fits of a plan: how long a fit takes, and, where pairs are many, how many of them are enough."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.base import clone

from crossbyte.data.stored.accepting import accept
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import Progress, ProgressCallback, silent
from crossbyte.search.planning import pilot
from crossbyte.search.planning.costs import ALWAYS_ALL, Enough
from crossbyte.search.planning.pilot import AddTimes, FitTimes, WholeFit
from crossbyte.search.planning.sampling import Tried, enough_pairs, trial_rows
from crossbyte.validation import check_groups, check_pairs

__all__ = ["enough_of", "pairs_to_fit", "pilot_settings", "timed_fits"]

_PAIRS_TO_TRY = 5_000  # with fewer, partners among the held-out tenth are too easy to find
_GROUPS_TO_TRY = 200


def pilot_settings(model: CMCQ, n_jobs: int | None) -> CMCQ:
    """The same parameters, not fitted; with a seed, so that the same plan is made twice."""
    seed = 0 if model.random_state is None else model.random_state
    copy: CMCQ = clone(model).set_params(random_state=seed, n_jobs=n_jobs, callback=None)
    return copy


def timed_fits(
    model: CMCQ,
    images: Any,
    texts: Any,
    groups: Any,
    train: int,
    report: Callable[[Progress], object],
) -> tuple[FitTimes | WholeFit, CMCQ]:
    """Run the pilot fits; with more than ``ALWAYS_ALL`` pairs to fit on, ask them with held-out pairs."""
    if train <= ALWAYS_ALL or not _can_try(images.shape[0], groups):
        return pilot.time_fits(model, images, texts, train, report)
    trials = trial_rows(images, texts, groups)
    report(Progress("plan", f"sample of {images.shape[0]:,} pairs", 2, 4))
    found = pilot.time_two_fits(model, trials.images, trials.texts, trials.hits)
    report(Progress("plan", "fits", 3, 4))
    return found


def _can_try(n_pairs: int, groups: Any) -> bool:
    if n_pairs < _PAIRS_TO_TRY:
        return False
    return groups is None or int(check_groups(groups, n_pairs).max()) >= _GROUPS_TO_TRY


def enough_of(fits: FitTimes | WholeFit, train: int, adding: AddTimes) -> Enough:
    """Say how many of the pairs are enough; all, where the pilots were not asked."""
    if isinstance(fits, WholeFit) or fits.small.hits is None or fits.large.hits is None:
        return Enough.all_of(train)
    few, many = Tried(fits.small.n_rows, fits.small.hits), Tried(fits.large.n_rows, fits.large.hits)
    return enough_pairs(few, many, train, lambda n_pairs: fits.seconds_at(n_pairs, adding))


def pairs_to_fit(
    images: Any,
    texts: Any,
    groups: Any = None,
    *,
    model: CMCQ | None = None,
    n_jobs: int | None = None,
    callback: ProgressCallback | None = None,
) -> Enough:
    """Say how many of these pairs are enough to fit on: what :func:`plan` says of it, and nothing else.

    Parameters
    ----------
    images, texts
        All pairs, as for :meth:`CMCQ.fit`; of those on disk, only a sample is in memory.
    groups : (N,) labels, optional
    model : CMCQ, optional
        Gives the parameters; None for the defaults.
    n_jobs : int or None
    callback : callable, optional

    Returns
    -------
    Enough
        Without a pilot where there are at most ``ALWAYS_ALL`` pairs.
    """
    images, texts = check_pairs(accept(images, "images"), accept(texts, "texts"))
    n_pairs = images.shape[0]
    if n_pairs <= ALWAYS_ALL:
        return Enough.all_of(n_pairs)
    settings = pilot_settings(model or CMCQ(), n_jobs)
    report = callback or silent
    fits, fitted = timed_fits(settings, images, texts, groups, n_pairs, report)
    with tempfile.TemporaryDirectory(prefix="crossbyte-plan-") as folder:
        adding = pilot.time_adding(fitted, {"images": images, "texts": texts}, None, Path(folder))
    report(Progress("plan", "add", 4, 4))
    return enough_of(fits, n_pairs, adding)
