"""Audit pairs: find those whose halves disagree, and rows that repeat each other; write them as a table."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte._fs import check_free, replace_file
from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Workers, row_blocks
from crossbyte.data.preparation import PreparedRows
from crossbyte.errors import InvalidInput
from crossbyte.metrics.auroc import auroc
from crossbyte.model.fit import prepare_pairs
from crossbyte.model.params import (
    DEFAULT_RIDGE,
    Settings,
    canonical_settings,
    check_parameters,
    make_generator,
)
from crossbyte.model.selection import check_enough_groups
from crossbyte.model.space.cca import canonical_correlation
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.validation import check_features, check_groups, check_integer, check_number, check_rows_agree

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ

NEAR = 0.98
"""Cosine of near-duplicates. Of Flickr8k's 7,000 photographs one pair is above it, the same photograph twice;
of 7,000 Fashion products 135 pairs, while 0.95 lets in products of one cut but other colours and makers."""

Numbers = NDArray[np.intp]
Link = tuple[int, int]
Entry = dict[str, Any]

_N_SHOWN = 10
_MIN_GROUPS_PER_FOLD = 4  # a pair needs strangers
# Agreement from which on a count means something: Flickr8k with a fifth of its captions swapped has 0.885,
# and the count is right; Wikipedia's articles have 0.69, and half of them would be counted.
_MIN_AGREEMENT = 0.8

_MIN_DIMS = 128  # with 64 or 256, as many wrong captions are found within 0.01
_N_NEAREST = 10
_CELL_ROWS = 4096  # strangers of a pair: as many in a million pairs as in ten thousand
_CELL_GROUPS = 4
_QUERIES_AT_ONCE = 256
_MIN_SQUARE = 0.5  # a point's squared length is 1, or 0 if there was nothing to place

_MAX_NEAR = 5  # near rows listed for one row
_ALL_AGAINST_ALL = 50_000
_BUCKET_ROWS = 8192
_BLOCK_ROWS = 2048  # compared with as many at a time, by every thread: 16 MB of cosines
_N_HASHES = 4
_BLOCK_VALUES = 2**22  # of rows made dense at a time

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_ROW_COLUMNS = ("best_text", "same_image_as", "same_text_as")
"""columns of row numbers, which get the ids of these rows beside them"""


class Duplicate(NamedTuple):
    """Two rows of different groups that are nearly the same.

    Attributes
    ----------
    first, second : int
        Row numbers, the smaller one first.
    image, text : float
        Cosine of the prepared images and of the prepared texts; 1 for exact repeats.
    kind : {"image", "text", "both"}
        Which halves are (nearly) the same.
    """

    first: int
    second: int
    image: float
    text: float
    kind: str


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit; row numbers are those of the pairs given.

    Attributes
    ----------
    surprise : (N,) float64
        ``distance - usual``: how much farther apart the two halves are than their nearest strangers. It can
        be compared between rows; NaN for rows with an empty half, which say nothing, and where all other rows
        have one.
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
        if self.agreement < _MIN_AGREEMENT:
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
        """Return everything as plain numbers, strings and lists; rows in their order, no surprise as None."""
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
            Write only the first ``limit`` lines.
        overwrite : bool
            Whether a file of this name may be replaced.

        Raises
        ------
        InvalidInput
            The file is there, or ids or payloads are of another number.
        """
        rows = self.order if limit is None else self.order[: check_integer(limit, "limit", 1)]
        repeats, none = self._first_repeats(), {"same_image_as": None, "same_text_as": None}
        entries = [self._row(row) | none | repeats.get(row, {}) for row in rows.tolist()]
        write_table(path, entries, len(self), ids, payloads, overwrite)

    def __str__(self) -> str:
        return "\n".join([*self._describe_pairs(), *self._describe_repeats()])

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

    def _first_repeats(self) -> dict[int, dict[str, int]]:
        """Find for every row the first row that it repeats, or that repeats it, by side."""
        repeats: dict[int, dict[str, int]] = {}
        for found in self.duplicates:
            for side in ("image", "text") if found.kind == "both" else (found.kind,):
                repeats.setdefault(found.second, {}).setdefault(f"same_{side}_as", found.first)
                repeats.setdefault(found.first, {}).setdefault(f"same_{side}_as", found.second)
        return repeats

    def _describe_pairs(self) -> list[str]:
        n, compared = self.n_suspects, len(self) - len(self.empty)
        lines = [f"{compared:,} pairs were compared with others, each in a space that has not seen it."]
        if n is None:
            return [*lines, self._describe_disagreement()]
        if n == 0:
            return [*lines, "No pair looks wrong: none is as far apart as pairs made at random usually are."]
        return [
            *lines,
            f"About {n:,} pairs ({n / compared:.1%}) look wrong, as far apart as pairs made at random. "
            f"Look at these first: rows {_list_values(self.suspects)}.",
        ]

    def _describe_disagreement(self) -> str:
        return (
            "Images and texts agree too little to say how many pairs are wrong: a pair made at random is "
            f"more surprising than one of these in {self.agreement:.0%} of cases (50% would be chance). They "
            "may be out of step, or have little in common; the most surprising still come first in the list."
        )

    def _describe_repeats(self) -> list[str]:
        lines = []
        for kind, what in (("both", "image and text"), ("image", "image"), ("text", "text")):
            found = [f"{one.first} = {one.second}" for one in self.duplicates if one.kind == kind]
            if found:
                times = "once" if len(found) == 1 else f"{len(found):,} times"
                lines.append(f"Two rows have (nearly) the same {what}, {times}: {_list_values(found)}.")
        if len(self.empty):
            lines.append(f"Rows with an empty half, which say nothing: {_list_values(self.empty)}.")
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
    """Find pairs whose halves disagree more than is usual, and rows that repeat each other.

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
    settings, raw, numbered = _check_arguments(model, images, texts, groups)
    n_folds = _check_folds(n_folds, int(numbered.max()) + 1)
    near = check_number(near, "near", 0.5, 1.0)
    report = callback or ignore_progress
    rng = make_generator(0 if model.random_state is None else model.random_state)
    with Workers(model.n_jobs) as workers:
        found = measure_disagreement(settings, *raw, numbered, n_folds, rng, report, workers)
        _, prepared = prepare_pairs(settings._replace(text_components=None), *raw, workers)
        duplicates = find_duplicates(raw, prepared, numbered, near, rng, workers)
        report(Progress("audit", "duplicates", 1, 1))
    empty = np.minimum(*(rows.squares() for rows in prepared)) < _MIN_SQUARE
    return _make_audit(found, duplicates, empty)


def _check_arguments(
    model: CMCQ, images: Any, texts: Any, groups: Any
) -> tuple[Settings, tuple[Any, Any], NDArray[np.intp]]:
    """Return the settings of the judging spaces, both sides, and the numbered groups."""
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
    return check_integer(n_folds, "n_folds", 2, n_groups // _MIN_GROUPS_PER_FOLD)


def _make_audit(found: Disagreement, duplicates: list[Duplicate], empty: NDArray[np.bool_]) -> Audit:
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
        _measure_agreement(surprise, found.by_chance),
        duplicates,
    )


def _measure_agreement(surprise: Float64, by_chance: Float64) -> float:
    """Measure how well pairs made at random are told from those given."""
    values, made = np.concatenate([surprise, by_chance]), np.repeat([False, True], len(surprise))
    there = np.isfinite(values)
    return auroc(values[there], made[there])


def _median(values: Float64) -> float:
    """Return the median of the finite values; infinity without any, which nothing is above."""
    there = values[np.isfinite(values)]
    return float(np.median(there)) if len(there) else float("inf")


def _list_values(values: Any) -> str:
    shown = ", ".join(str(value) for value in values[:_N_SHOWN])
    return shown if len(values) <= _N_SHOWN else f"{shown}, …"


# How far apart the halves of a pair are


class Disagreement(NamedTuple):
    """How far apart the halves of each pair are, beside strangers, in spaces that have not seen the pair.

    One value per pair; distances are squared, between points of unit length.

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
        Surprise of the image with a text drawn at random; NaN where the draw gave no stranger, or a half is
        empty.
    """

    distance: Float64
    usual: Float64
    nearer_texts: NDArray[np.int64]
    nearer_images: NDArray[np.int64]
    best_text: NDArray[np.int64]
    n_strangers: NDArray[np.int64]
    by_chance: Float64


class _Strangers(NamedTuple):
    """Per query: mean distance of its nearest strangers, how many are nearer than its partner, the best."""

    usual: Float64
    nearer: NDArray[np.int64]
    best: NDArray[np.int64]
    n_strangers: NDArray[np.int64]


def audit_settings(settings: Settings, text_width: int) -> Settings:
    """Make the settings of the spaces that judge pairs, from those of the model.

    Canonical correlation whatever the model's mapping is: it finds partners of unseen items better than the
    paper's mapping, and finds wrong pairs better than its contrastive refinement, which learns the wrong ones
    by heart (docs/planning.md).
    """
    wide = settings._replace(n_components=max(settings.n_components, _MIN_DIMS))
    if settings.scoring == "likelihood":  # its ridges may be chosen by a fit; an audit is the same before it
        wide = wide._replace(ridge=DEFAULT_RIDGE, text_ridge=None)
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
    """Compare the halves of checked raw pairs; groups are numbered from 0.

    Pairs are cut into folds by group; the pairs of a fold are placed by a common space learned from the other
    folds. A space that had seen a wrong pair would have learned to excuse it.

    An image that is near to every text, or a text that is near to every image, would look right with any
    partner; so a distance is compared with that of the pair's own nearest strangers, in both directions.
    Empty halves, which stay at the origin, are no strangers: they would be nearer to everything than most.
    """
    cells = _assign_cells(groups, n_folds, rng)
    found = _allocate_disagreement(len(groups))
    # Each side alone, so it may know all rows: nothing in it says which image belongs to which text.
    _, prepared = prepare_pairs(settings, images, texts, workers)
    for fold in range(n_folds):
        held = np.flatnonzero(cells % n_folds == fold)
        points = _place_held_out(settings, prepared, np.flatnonzero(cells % n_folds != fold), held, workers)
        for cell in np.unique(cells[held]):
            inside = np.flatnonzero(cells[held] == cell)
            rows = held[inside]
            part = _compare_halves(points[0][inside], points[1][inside], groups[rows], rng, workers)
            part = part._replace(best_text=rows[part.best_text])
            for values, new in zip(found, part, strict=True):
                values[rows] = new
        report(Progress("audit", f"fold {fold + 1}", fold + 1, n_folds))
    return found


def _allocate_disagreement(n_rows: int) -> Disagreement:
    def reals() -> Float64:
        return np.empty(n_rows)

    def counts() -> NDArray[np.int64]:
        return np.empty(n_rows, dtype=np.int64)

    return Disagreement(reals(), reals(), counts(), counts(), counts(), counts(), reals())


def _assign_cells(groups: Numbers, n_folds: int, rng: np.random.Generator) -> Numbers:
    """Assign a cell to each row, whole groups together; cell c belongs to fold c % n_folds."""
    n_groups = int(groups.max()) + 1
    per_fold = -(-len(groups) // (n_folds * _CELL_ROWS))
    per_fold = max(1, min(per_fold, n_groups // (n_folds * _CELL_GROUPS)))
    of_group = np.empty(n_groups, dtype=np.intp)
    of_group[rng.permutation(n_groups)] = np.arange(n_groups) % (n_folds * per_fold)
    return of_group[groups]


def _place_held_out(
    settings: Settings,
    prepared: tuple[PreparedRows, PreparedRows],
    known: Numbers,
    held: Numbers,
    workers: Workers,
) -> tuple[Float32, Float32]:
    """Place the held-out rows in a space learned from the known ones."""
    X, Y = prepared
    space = canonical_correlation(X[known], Y[known], settings.n_components, settings.ridge, workers)
    return space.transform_images(X[held], workers), space.transform_texts(Y[held], workers)


def _compare_halves(
    images: Float32, texts: Float32, groups: Numbers, rng: np.random.Generator, workers: Workers
) -> Disagreement:
    """Compare every pair with the others; ``best_text`` counts the rows given here."""
    own = _pair_distances(images, texts)
    by_image = _compare_with_strangers(images, texts, groups, own, workers)
    by_text = _compare_with_strangers(texts, images, groups, own, workers)
    drawn = (np.arange(len(own)) + rng.integers(1, len(own), size=len(own))) % len(own)
    by_chance = _pair_distances(images, texts[drawn]) - (by_image.usual + by_text.usual[drawn]) / 2
    full = (_squares(images) > _MIN_SQUARE) & (_squares(texts) > _MIN_SQUARE)[drawn]
    by_chance[(groups == groups[drawn]) | ~full] = np.nan
    usual = (by_image.usual + by_text.usual) / 2
    return Disagreement(
        own, usual, by_image.nearer, by_text.nearer, by_image.best, by_image.n_strangers, by_chance
    )


def _compare_with_strangers(
    queries: Float32, items: Float32, groups: Numbers, own: Float64, workers: Workers
) -> _Strangers:
    """Compare each query with all items; item i is query i's own, and those of its group are no strangers."""
    squares = _squares(items)

    def compare(rows: slice) -> _Strangers:
        some = queries[rows]
        distances = squares - 2 * (some @ items.T) + np.einsum("nd,nd->n", some, some)[:, None]
        strangers = (groups[rows, None] != groups) & (squares > _MIN_SQUARE)
        distances[~strangers] = np.inf
        nearer = (distances < own[rows, None]).sum(axis=1)
        counts = strangers.sum(axis=1)
        return _Strangers(_mean_of_nearest(distances, counts), nearer, distances.argmin(axis=1), counts)

    parts = workers.map(compare, row_blocks(len(queries), _QUERIES_AT_ONCE))
    return _Strangers(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _mean_of_nearest(distances: Float64, counts: NDArray[np.int64]) -> Float64:
    """Average each row's smallest distances, of fewer where there are fewer strangers; NaN without any."""
    depth = min(_N_NEAREST, distances.shape[1])
    nearest = np.partition(distances, depth - 1, axis=1)[:, :depth]
    sums = np.where(np.isfinite(nearest), nearest, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.clip(counts, 1, depth), np.nan)


def _pair_distances(left: Float32, right: Float32) -> Float64:
    """Compute the squared distances of rows that belong together."""
    gaps = left.astype(np.float64) - right
    return np.einsum("nd,nd->n", gaps, gaps)


def _squares(points: Float32) -> Float64:
    squares: Float64 = np.einsum("nd,nd->n", points, points, dtype=np.float64)
    return squares


# Rows that say the same


def find_duplicates(
    raw: tuple[Any, Any],
    prepared: tuple[PreparedRows, PreparedRows],
    groups: Numbers,
    near: float,
    rng: np.random.Generator,
    workers: Workers,
) -> list[Duplicate]:
    """List duplicates by row: a repeat is linked with the first row like it, a near one with its nearest.

    Exact repeats are always found, by digests. Near ones are found by cosine between prepared rows (centred,
    so that what all rows have in common does not count). Up to 50,000 different rows are all compared; of
    more, those that fall on the same side of random planes, four times over, where a few near ones can be
    missed. Rows that stay zero in preparation (texts without a known word) repeat nothing.
    """
    links: set[Link] = set()
    for side, rows in zip(raw, prepared, strict=True):
        first = _find_identical(side, np.flatnonzero(rows.squares() > _MIN_SQUARE))
        links |= {(one, row) for row, one in first.items() if one != row and groups[one] != groups[row]}
        links |= _find_near_links(rows, np.unique(list(first.values())), groups, near, rng, workers)
    return _describe_links(sorted(links), prepared, near)


def _find_identical(raw: Any, rows: Numbers) -> dict[int, int]:
    """Find for each of the rows the first one with exactly the same values."""
    seen: dict[bytes, int] = {}
    digest = _sparse_digest if sparse.issparse(raw) else _dense_digest
    return {row: seen.setdefault(digest(raw, row), row) for row in rows.tolist()}


def _dense_digest(raw: Any, row: int) -> bytes:
    return blake2b(np.ascontiguousarray(raw[row]).tobytes(), digest_size=16).digest()


def _sparse_digest(raw: Any, row: int) -> bytes:
    inside = slice(int(raw.indptr[row]), int(raw.indptr[row + 1]))
    order = np.argsort(raw.indices[inside], kind="stable")
    parts = (np.ascontiguousarray(values[inside][order]).tobytes() for values in (raw.indices, raw.data))
    return blake2b(b"".join(parts), digest_size=16).digest()


def _find_near_links(
    rows: PreparedRows,
    chosen: Numbers,
    groups: Numbers,
    near: float,
    rng: np.random.Generator,
    workers: Workers,
) -> set[Link]:
    """Link the chosen rows with later ones whose cosine is at least ``near``."""
    links: set[Link] = set()
    size = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // rows.shape[1]))
    for bucket in _iter_buckets(rows, chosen, rng):
        blocks = row_blocks(len(bucket), size)
        search = _make_search(rows, bucket, groups, near, blocks)
        for found in workers.map(search, range(len(blocks))):
            links.update(found)
    return links


def _make_search(
    rows: PreparedRows, bucket: Numbers, groups: Numbers, near: float, blocks: list[slice]
) -> Callable[[int], list[Link]]:
    """Make the function that links one block's rows with the later ones of their bucket."""

    def search(number: int) -> list[Link]:
        mine = bucket[blocks[number]]
        own = np.ascontiguousarray(rows[mine].dense().T)
        nearest: dict[int, list[tuple[float, int]]] = {}
        for block in blocks[number:]:
            others = bucket[block]
            cosines = rows[others].times(own).T
            cosines[(others <= mine[:, None]) | (groups[others] == groups[mine][:, None])] = -1.0
            for place in np.flatnonzero((cosines >= near).any(axis=1)).tolist():
                found = _nearest_links(cosines[place], others, near) + nearest.get(place, [])
                nearest[place] = sorted(found, reverse=True)[:_MAX_NEAR]
        return [(int(mine[place]), other) for place, found in nearest.items() for _, other in found]

    return search


def _nearest_links(cosines: Any, others: Numbers, near: float) -> list[tuple[float, int]]:
    """Find the nearest of one row's neighbours, with their cosines."""
    order = np.argsort(-cosines, kind="stable")[:_MAX_NEAR]
    return [(float(cosines[other]), int(others[other])) for other in order if cosines[other] >= near]


def _iter_buckets(rows: PreparedRows, chosen: Numbers, rng: np.random.Generator) -> Iterator[Numbers]:
    """Yield sets of rows that are compared with each other, in the order of their numbers."""
    if len(chosen) <= _ALL_AGAINST_ALL:
        yield chosen
        return
    n_planes = int(np.ceil(np.log2(len(chosen) / _BUCKET_ROWS)))
    for _ in range(_N_HASHES):
        planes = rng.standard_normal((rows.shape[1], n_planes))
        sides = np.concatenate([rows[chosen[block]].times(planes) > 0 for block in row_blocks(len(chosen))])
        codes = sides @ (1 << np.arange(n_planes))
        order = np.argsort(codes, kind="stable")
        ends = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), len(order)]
        yield from (chosen[order[start:stop]] for start, stop in pairwise(ends))


def _describe_links(
    links: list[Link], prepared: tuple[PreparedRows, PreparedRows], near: float
) -> list[Duplicate]:
    if not links:
        return []
    pairs = np.array(links, dtype=np.intp)
    image, text = (_cosines(rows, pairs) for rows in prepared)
    return [
        Duplicate(
            *link, float(x), float(y), "both" if min(x, y) >= near else "image" if x >= near else "text"
        )
        for link, x, y in zip(links, image, text, strict=True)
    ]


def _cosines(rows: PreparedRows, pairs: Numbers) -> Float64:
    """Compute the cosine of the two rows of every pair; prepared rows have unit length, or none."""
    blocks = row_blocks(len(pairs), max(1, _BLOCK_VALUES // rows.shape[1]))
    parts = [
        np.einsum("nd,nd->n", *(rows[pairs[block, i]].dense() for i in (0, 1)), dtype=np.float64)
        for block in blocks
    ]
    # Rounding must not make an exact repeat less than one, or more.
    return np.minimum(np.round(np.concatenate(parts), 6), 1.0)


# The table of an audit


def write_table(
    path: str | os.PathLike[str],
    entries: Sequence[Entry],
    n_rows: int,
    ids: Sequence[Any] | None,
    payloads: Sequence[Any] | None,
    overwrite: bool,
) -> None:
    """Write entries, all with the same keys and a ``row``, with ids and payload fields of their rows."""
    name = os.fspath(path)
    check_free(name, overwrite=overwrite)
    if ids is not None:
        entries = [_add_ids(entry, _check_one_per_row(ids, n_rows, "ids")) for entry in entries]
    columns = list(entries[0])
    table = [[entry[column] for column in columns] for entry in entries]
    if payloads is not None:
        columns, table = _add_payloads(
            columns, table, entries, _check_one_per_row(payloads, n_rows, "payloads")
        )
    replace_file(name, _csv_bytes(columns, table))


def _check_one_per_row(values: Sequence[Any], n_rows: int, name: str) -> Sequence[Any]:
    if len(values) != n_rows:
        raise InvalidInput(f"{name}: expected {n_rows}, one per pair, got {len(values)}")
    return values


def _add_ids(entry: Entry, ids: Sequence[Any]) -> Entry:
    named: Entry = {"row": entry["row"], "id": ids[entry["row"]]}
    for key, value in entry.items():
        named[key] = value
        if key in _ROW_COLUMNS:
            named[f"{key}_id"] = None if value is None else ids[value]
    return named


def _add_payloads(
    columns: list[str], table: list[list[Any]], entries: Sequence[Entry], payloads: Sequence[Any]
) -> tuple[list[str], list[list[Any]]]:
    """Add a column for every field of the payloads."""
    chosen: list[Mapping[str, Any]] = [payloads[entry["row"]] or {} for entry in entries]
    fields = list(dict.fromkeys(str(field) for payload in chosen for field in payload))
    wider = [
        [*line, *(payload.get(field) for field in fields)]
        for line, payload in zip(table, chosen, strict=True)
    ]
    return [*columns, *(f"payload.{field}" for field in fields)], wider


def _csv_bytes(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # its line end, CR LF, is what makes it quote a lone CR
    writer.writerow([_format_cell(column) for column in columns])
    writer.writerows([_format_cell(value) for value in line] for line in table)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _format_cell(value: Any) -> Any:
    """Format a cell so that it is shown and never run: numbers as they are, formulas escaped."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return "'" + text if text.startswith(_FORMULA_STARTS) else text
