"""Audit: which pairs look wrong, and which rows repeat each other; to read, and as CSV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.executors.threads import Workers
from crossbyte.model.audit.disagreement import Disagreement, audit_settings, measure_disagreement
from crossbyte.model.audit.duplicates import NEAR, Duplicate, find_duplicates
from crossbyte.model.audit.table import write_table
from crossbyte.model.fitting import prepare
from crossbyte.model.parameters import Settings, check_parameters, generator
from crossbyte.model.scoring import auroc
from crossbyte.model.selection import check_enough_groups
from crossbyte.progress import Progress, ProgressCallback, silent
from crossbyte.validation import check_features, check_groups, check_integer, check_number, check_rows_agree

if TYPE_CHECKING:
    from crossbyte.model.cmcq import CMCQ

__all__ = ["Audit", "audit_pairs"]

_SHOWN = 10
_PER_FOLD = 4  # groups at least: a pair needs strangers
# Agreement from which on a count means something: Flickr8k with a fifth of its captions swapped has 0.885,
# and the count is right; Wikipedia's articles have 0.69, and half of them would be counted.
_AGREEING = 0.8


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found; row numbers are those of the pairs given.

    Attributes
    ----------
    surprise : (N,) float64
        ``distance - usual``: how much farther apart the two halves are than their nearest strangers. It can
        be compared between rows; NaN for rows one of whose halves is empty, which say nothing, and where all
        others are.
    order : (N,) int64
        Rows, the most surprising first, those without a surprise last.
    distance : (N,) float64
        Squared distance of the two halves in a space that has not seen the pair, from 0 to 4.
    usual : (N,) float64
        Mean of the distances of the image to its ten nearest strange texts, and of the text to its ten
        nearest strange images; empty ones are left out.
    nearer_texts, nearer_images : (N,) int64
        How many of the strangers are nearer to the image than its text, and to the text than its image.
    n_strangers : (N,) int64
        How many pairs each one was compared with.
    best_text : (N,) int64
        Row whose text would have fitted the image best, among these strangers.
    typical_by_chance : float
        Median surprise of images with texts drawn at random.
    agreement : float
        Chance that an image with a text drawn at random is more surprising than a pair given: 0.5 if images
        and texts tell nothing of each other, up to 1.
    duplicates : list of Duplicate
        Rows of different groups whose image, text or both are the same or nearly.
    """

    surprise: Float64
    order: NDArray[np.int64]
    distance: Float64
    usual: Float64
    nearer_texts: NDArray[np.int64]
    nearer_images: NDArray[np.int64]
    n_strangers: NDArray[np.int64]
    best_text: NDArray[np.int64]
    typical_by_chance: float
    agreement: float
    duplicates: list[Duplicate]

    def __len__(self) -> int:
        return len(self.surprise)

    @property
    def n_suspects(self) -> int | None:
        """About how many pairs are wrong, and so how many of ``order`` to look at first; None if unknown.

        Half of all wrong pairs are more surprising than the median of pairs made at random, and hardly any
        right ones are: twice as many as are above it. Where ``agreement`` is below 0.8, many right ones are,
        too, and nothing can be said.
        """
        if self.agreement < _AGREEING:
            return None
        above = int((self.surprise > self.typical_by_chance).sum())
        return min(2 * above, int(np.isfinite(self.surprise).sum()))

    @property
    def suspects(self) -> NDArray[np.int64]:
        """The first ``n_suspects`` rows of ``order``; none if their number is unknown."""
        return self.order[: self.n_suspects or 0]

    @property
    def empty(self) -> NDArray[np.int64]:
        """Rows one of whose halves is empty: a text without a known word, an image of zeros."""
        return np.flatnonzero(np.isnan(self.surprise)).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists; rows in their order, None for no surprise."""
        rows = self.order.tolist()
        return {
            "n_pairs": len(self),
            "n_suspects": self.n_suspects,
            "typical_by_chance": self.typical_by_chance,
            "agreement": self.agreement,
            "empty": self.empty.tolist(),
            "rows": [self._row(row) for row in rows],
            "duplicates": [duplicate._asdict() for duplicate in self.duplicates],
        }

    def to_csv(
        self,
        path: str | os.PathLike[str],
        *,
        ids: Sequence[Any] | None = None,
        payloads: Sequence[Any] | None = None,
        limit: int | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write one line per pair, the most surprising first, all or nothing.

        Text that a spreadsheet would take for a formula gets a leading ``'``.

        Parameters
        ----------
        path : path-like
        ids : sequence of str or int, optional
            One per pair; they are written beside the row numbers, also for rows that are named.
        payloads : sequence of dict or None, optional
            One per pair; each field becomes a column.
        limit : int, optional
            Write only the first so many.
        overwrite : bool
            Whether a file of this name may be replaced.

        Raises
        ------
        InvalidInput
            The file is there, or ids or payloads are of another number.
        """
        rows = self.order if limit is None else self.order[: check_integer(limit, "limit", 1)]
        repeats, none = self._repeats(), {"same_image_as": None, "same_text_as": None}
        entries = [self._row(row) | none | repeats.get(row, {}) for row in rows.tolist()]
        write_table(path, entries, len(self), ids, payloads, overwrite)

    def __str__(self) -> str:
        return "\n".join([*self._about_pairs(), *self._about_repeats()])

    def _row(self, row: int) -> dict[str, Any]:
        surprise = float(self.surprise[row])
        return {
            "row": row,
            "surprise": None if np.isnan(surprise) else surprise,
            "distance": float(self.distance[row]),
            "usual": None if np.isnan(self.usual[row]) else float(self.usual[row]),
            "nearer_texts": int(self.nearer_texts[row]),
            "nearer_images": int(self.nearer_images[row]),
            "n_strangers": int(self.n_strangers[row]),
            "best_text": int(self.best_text[row]) if self.n_strangers[row] else None,
        }

    def _repeats(self) -> dict[int, dict[str, int]]:
        """For every row the first row that it repeats, or that repeats it, by side."""
        repeats: dict[int, dict[str, int]] = {}
        for found in self.duplicates:
            for side in ("image", "text") if found.kind == "both" else (found.kind,):
                repeats.setdefault(found.second, {}).setdefault(f"same_{side}_as", found.first)
                repeats.setdefault(found.first, {}).setdefault(f"same_{side}_as", found.second)
        return repeats

    def _about_pairs(self) -> list[str]:
        n, compared = self.n_suspects, len(self) - len(self.empty)
        lines = [f"{compared:,} pairs were compared with others, each in a space that has not seen it."]
        if n is None:
            return [*lines, self._about_disagreement()]
        if n == 0:
            return [*lines, "No pair looks wrong: none is as far apart as pairs made at random usually are."]
        return [
            *lines,
            f"About {n:,} pairs ({n / compared:.1%}) look wrong, as far apart as pairs made at random. "
            f"Look at these first: rows {_listed(self.suspects)}.",
        ]

    def _about_disagreement(self) -> str:
        return (
            "Images and texts agree too little to say how many pairs are wrong: a pair made at random is "
            f"more surprising than one of these in {self.agreement:.0%} of cases (50% would be chance). They "
            "may be out of step, or have little in common; the most surprising still come first in the list."
        )

    def _about_repeats(self) -> list[str]:
        lines = []
        for kind, what in (("both", "image and text"), ("image", "image"), ("text", "text")):
            found = [f"{one.first} = {one.second}" for one in self.duplicates if one.kind == kind]
            if found:
                times = "once" if len(found) == 1 else f"{len(found):,} times"
                lines.append(f"Two rows have (nearly) the same {what}, {times}: {_listed(found)}.")
        if len(self.empty):
            lines.append(f"Rows with an empty half, which say nothing: {_listed(self.empty)}.")
        return lines


def audit_pairs(
    model: CMCQ,
    images: Any,
    texts: Any,
    groups: Any = None,
    *,
    n_folds: int = 5,
    near: float = NEAR,
    callback: ProgressCallback | None = None,
) -> Audit:
    """Find pairs whose halves disagree beside what is usual, and rows that repeat each other.

    Nothing of the model changes. The pairs are placed by spaces learned here, each from the folds that a pair
    is not in; so a wrong pair cannot have taught its own judge.

    Parameters
    ----------
    model : CMCQ
        Gives regularisation, dimensions and seed; fitted or not.
    images, texts, groups
        As for :meth:`CMCQ.fit`. Rows of one group are no strangers to each other.
    n_folds : int
        Spaces to learn; more take longer and find a little more.
    near : float
        Cosine, from 0.5 to 1, of prepared features from which on two rows are near-duplicates.
    callback : callable, optional
        Called with a :class:`crossbyte.progress.Progress` after every fold.

    Raises
    ------
    InvalidInput
        Before any long work starts; also if there are too few groups.
    """
    settings, raw, numbered = _checked(model, images, texts, groups)
    n_folds = _check_folds(n_folds, int(numbered.max()) + 1)
    near = check_number(near, "near", 0.5, 1.0)
    report = callback or silent
    rng = generator(0 if model.random_state is None else model.random_state)
    with Workers(model.n_jobs) as workers:
        found = measure_disagreement(settings, *raw, numbered, n_folds, rng, report, workers)
        _, prepared = prepare(settings._replace(text_components=None), *raw, workers)
        duplicates = find_duplicates(raw, prepared, numbered, near, rng, workers)
        report(Progress("audit", "duplicates", 1, 1))
    empty = np.minimum(*(rows.squares() for rows in prepared)) < 0.5
    return _audit(found, duplicates, empty)


def _checked(
    model: CMCQ, images: Any, texts: Any, groups: Any
) -> tuple[Settings, tuple[Any, Any], NDArray[np.intp]]:
    """Settings of the judging spaces, both sides, and the numbered groups."""
    fitted = model.__sklearn_is_fitted__()
    widths = (model.n_features_in_, model.n_text_features_) if fitted else (None, None)
    images = check_features(images, "images", widths[0], min_rows=2)
    texts = check_features(texts, "texts", widths[1], min_rows=2)
    check_rows_agree(images, texts)
    settings = model.fitted_.settings if fitted else check_parameters(model)
    numbered = check_groups(groups, images.shape[0])
    return audit_settings(settings, texts.shape[1]), (images, texts), numbered


def _check_folds(n_folds: int, n_groups: int) -> int:
    check_enough_groups(n_groups, "an audit compares pairs with others", "give more pairs")
    return check_integer(n_folds, "n_folds", 2, n_groups // _PER_FOLD)


def _audit(found: Disagreement, duplicates: list[Duplicate], empty: NDArray[np.bool_]) -> Audit:
    surprise = np.where(empty, np.nan, found.distance - found.usual)
    order = np.argsort(-surprise, kind="stable").astype(np.int64)  # NaN goes last
    return Audit(
        surprise,
        order,
        found.distance,
        found.usual,
        found.nearer_texts,
        found.nearer_images,
        found.n_strangers,
        found.best_text,
        _median(found.by_chance),
        _agreement(surprise, found.by_chance),
        duplicates,
    )


def _agreement(surprise: Float64, by_chance: Float64) -> float:
    """How well pairs made at random are told from those given."""
    values, made = np.concatenate([surprise, by_chance]), np.repeat([False, True], len(surprise))
    there = np.isfinite(values)
    return auroc(values[there], made[there])


def _median(values: Float64) -> float:
    """Median of those that are there; infinity without any, which nothing is above."""
    there = values[np.isfinite(values)]
    return float(np.median(there)) if len(there) else float("inf")


def _listed(values: Any) -> str:
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, …"
