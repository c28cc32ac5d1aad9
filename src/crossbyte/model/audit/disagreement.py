"""How far apart the halves of each pair are, beside strangers, in spaces that have not seen the pair.

Pairs are cut into folds by group; the pairs of a fold are placed by a common space learned from the other
folds. A space that had seen a wrong pair would have learned to excuse it. The space is canonical correlation
whatever the model's mapping is: it finds partners of unseen items better than the paper's mapping, and finds
wrong pairs better than its contrastive refinement, which learns the wrong ones by heart (docs/planning.md).

An image that is near to every text, or a text that is near to every image, would look right with any partner;
so a distance is compared with that of the pair's own nearest strangers, in both directions. Empty halves,
which stay at the origin, are no strangers: they would be nearer to everything than most of the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32, Float64
from crossbyte.blocks import row_blocks
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import canonical_correlation
from crossbyte.model.fitting import prepare
from crossbyte.model.parameters import Settings, canonical_settings
from crossbyte.progress import Progress, ProgressCallback

__all__ = ["Disagreement", "audit_settings", "measure_disagreement"]

Numbers = NDArray[np.intp]

_DIMS = 128  # with 64 or 256, as many wrong captions are found within 0.01
_NEAREST = 10
_CELL_ROWS = 4096  # strangers of a pair: as many in a million pairs as in ten thousand
_CELL_GROUPS = 4
_QUERIES_AT_ONCE = 256
_FULL = 0.5  # squared length of a point: one, or none if there was nothing to place


class Disagreement(NamedTuple):
    """One value per pair; distances are squared, between points of unit length.

    Attributes
    ----------
    distance : (N,) float64
        Between the pair's own halves.
    usual : (N,) float64
        Mean distance to the nearest strangers, of the image's and of the text's together; NaN without any.
    nearer_texts, nearer_images : (N,) int64
        How many strangers' texts are nearer to the image than its own text, and the other way round.
    best_text : (N,) int64
        Row of the stranger whose text is the nearest to the image; any row where there are no strangers.
    n_strangers : (N,) int64
        How many strangers' texts the image was compared with.
    by_chance : (N,) float64
        Surprise of the image with a text drawn at random; NaN where the draw gave no stranger, or one of the
        two is empty.
    """

    distance: Float64
    usual: Float64
    nearer_texts: NDArray[np.int64]
    nearer_images: NDArray[np.int64]
    best_text: NDArray[np.int64]
    n_strangers: NDArray[np.int64]
    by_chance: Float64


class _Beside(NamedTuple):
    """Items of the other kind, seen from each query: the mean of the nearest strangers, and who is nearer."""

    usual: Float64
    nearer: NDArray[np.int64]
    best: NDArray[np.int64]
    n_strangers: NDArray[np.int64]


def audit_settings(settings: Settings, text_width: int) -> Settings:
    """Settings of the spaces that judge pairs, from those of the model."""
    wide = settings._replace(n_components=max(settings.n_components, _DIMS))
    return canonical_settings(wide, text_width)


def measure_disagreement(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: Numbers,
    n_folds: int,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Workers,
) -> Disagreement:
    """Compare the halves of checked raw pairs; groups are numbered from 0."""
    cells = _cells(groups, n_folds, rng)
    found = _empty(len(groups))
    # Each side alone, so it may know all rows: nothing in it says which image belongs to which text.
    _, prepared = prepare(settings, images, texts, workers)
    for fold in range(n_folds):
        held = np.flatnonzero(cells % n_folds == fold)
        points = _placed(settings, prepared, np.flatnonzero(cells % n_folds != fold), held, workers)
        for cell in np.unique(cells[held]):
            inside = np.flatnonzero(cells[held] == cell)
            rows = held[inside]
            part = _compare(points[0][inside], points[1][inside], groups[rows], rng, workers)
            part = part._replace(best_text=rows[part.best_text])
            for values, new in zip(found, part, strict=True):
                values[rows] = new
        report(Progress("audit", f"fold {fold + 1}", fold + 1, n_folds))
    return found


def _empty(n_rows: int) -> Disagreement:
    def reals() -> Float64:
        return np.empty(n_rows)

    def counts() -> NDArray[np.int64]:
        return np.empty(n_rows, dtype=np.int64)

    return Disagreement(reals(), reals(), counts(), counts(), counts(), counts(), reals())


def _cells(groups: Numbers, n_folds: int, rng: np.random.Generator) -> Numbers:
    """A cell for each row, whole groups together; cell c belongs to fold c % n_folds."""
    n_groups = int(groups.max()) + 1
    per_fold = -(-len(groups) // (n_folds * _CELL_ROWS))
    per_fold = max(1, min(per_fold, n_groups // (n_folds * _CELL_GROUPS)))
    of_group = np.empty(n_groups, dtype=np.intp)
    of_group[rng.permutation(n_groups)] = np.arange(n_groups) % (n_folds * per_fold)
    return of_group[groups]


def _placed(
    settings: Settings, prepared: tuple[Rows, Rows], known: Numbers, held: Numbers, workers: Workers
) -> tuple[Float32, Float32]:
    """Points of the held-out rows in a space learned from the known ones."""
    X, Y = prepared
    space = canonical_correlation(X[known], Y[known], settings.n_components, settings.ridge, workers)
    return space.transform_images(X[held], workers), space.transform_texts(Y[held], workers)


def _compare(
    images: Float32, texts: Float32, groups: Numbers, rng: np.random.Generator, workers: Workers
) -> Disagreement:
    """Every pair beside the others; ``best_text`` counts the rows given here."""
    own = _between(images, texts)
    by_image = _beside_strangers(images, texts, groups, own, workers)
    by_text = _beside_strangers(texts, images, groups, own, workers)
    drawn = (np.arange(len(own)) + rng.integers(1, len(own), size=len(own))) % len(own)
    by_chance = _between(images, texts[drawn]) - (by_image.usual + by_text.usual[drawn]) / 2
    full = (_squares(images) > _FULL) & (_squares(texts) > _FULL)[drawn]
    by_chance[(groups == groups[drawn]) | ~full] = np.nan
    usual = (by_image.usual + by_text.usual) / 2
    return Disagreement(
        own, usual, by_image.nearer, by_text.nearer, by_image.best, by_image.n_strangers, by_chance
    )


def _between(left: Float32, right: Float32) -> Float64:
    """Squared distances of rows that belong together."""
    gaps = left.astype(np.float64) - right
    return np.einsum("nd,nd->n", gaps, gaps)


def _squares(points: Float32) -> Float64:
    squares: Float64 = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    return squares


def _beside_strangers(
    queries: Float32, items: Float32, groups: Numbers, own: Float64, workers: Workers
) -> _Beside:
    """Look at all items from each query; item i is query i's own, and those of its group are no strangers."""
    squares = _squares(items)

    def look(rows: slice) -> _Beside:
        some = queries[rows]
        distances = squares - 2 * (some @ items.T) + np.einsum("nd,nd->n", some, some)[:, None]
        strangers = (groups[rows, None] != groups) & (squares > _FULL)
        distances[~strangers] = np.inf
        nearer = (distances < own[rows, None]).sum(axis=1)
        counts = strangers.sum(axis=1)
        return _Beside(_mean_of_nearest(distances, counts), nearer, distances.argmin(axis=1), counts)

    parts = workers.map(look, row_blocks(len(queries), _QUERIES_AT_ONCE))
    return _Beside(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _mean_of_nearest(distances: Float64, counts: NDArray[np.int64]) -> Float64:
    """Mean of each row's smallest distances; of fewer where there are fewer strangers, NaN without any."""
    depth = min(_NEAREST, distances.shape[1])
    nearest = np.partition(distances, depth - 1, axis=1)[:, :depth]
    sums = np.where(np.isfinite(nearest), nearest, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.clip(counts, 1, depth), np.nan)
