"""Hold out pairs, fit the model again without them (a refit), and code them with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import Preparation, PreparedRows
from crossbyte.model.fit import FittedModel, fit_prepared, prepare_pairs
from crossbyte.model.params import Settings
from crossbyte.model.quantization.quantizer import DistanceTable, Quantizer
from crossbyte.model.selection import check_enough_groups, split_groups
from crossbyte.progress import Progress, ProgressCallback

SIDES = ("image", "text")
TARGETS = (*SIDES, "document")
CODINGS = ("training", "pair", *SIDES, "document")

MAX_ROWS = 2_000

By = tuple[str, str]
"""(target or side, coding)"""


class HoldOutRows(NamedTuple):
    """Which rows take part in a measurement.

    Attributes
    ----------
    train : (n,) intp
        What the refit is fitted on.
    known : (h,) intp
        Training documents by their place among ``train``, of as many groups as are held out.
    held : (h,) intp
        Held-out rows, one of each group.
    again : (h,) intp
        Another row of the same groups, or the same one where a group has no other.
    """

    train: NDArray[np.intp]
    known: NDArray[np.intp]
    held: NDArray[np.intp]
    again: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class HeldOutSample:
    """Held-out pairs, placed and coded by a refit that has not seen them.

    Attributes
    ----------
    refit : FittedModel
    points : dict of side to (h, D) float32
        The held-out pairs, every half placed on its own.
    scans : dict of (side, coding) to (h, M') uint8
        Scan codes of as many items, by the way they were coded.
    """

    refit: FittedModel
    points: Mapping[str, Float32]
    scans: Mapping[By, Codes]

    def __len__(self) -> int:
        return len(self.points["image"])

    @property
    def quantizers(self) -> dict[str, Quantizer]:
        """Quantizers of the refit by side, "image" and "text"."""
        return self.refit.quantizers

    @classmethod
    def one_sided(cls, refit: FittedModel, images: Any, texts: Any, workers: Workers) -> HeldOutSample:
        """Place held-out pairs and code each half on its own."""
        points = {
            "image": refit.transform_images(images, workers),
            "text": refit.transform_texts(texts, workers),
        }
        codes = {
            ("image", "image"): refit.encode_images(images, workers),
            ("text", "text"): refit.encode_texts(texts, workers),
        }
        return cls(refit, points, _scan_codes(refit, codes, workers))

    @classmethod
    def of(
        cls, refit: FittedModel, known: NDArray[np.intp], images: Any, texts: Any, workers: Workers
    ) -> HeldOutSample:
        """Code held-out pairs in every way; ``known`` are training documents by their place."""
        alone = cls.one_sided(refit, images, texts, workers)
        pairs = refit.encode_pairs(images, texts, workers)
        codes: dict[By, Codes] = {("image", "pair"): pairs[0], ("text", "pair"): pairs[1]}
        if refit.has_document_codes:
            codes["document", "document"] = refit.encode_documents(images, texts, workers)
        else:
            codes["image", "training"] = refit.image_codes[known]
            codes["text", "training"] = refit.text_codes[known]
        return cls(refit, alone.points, _scan_codes(refit, codes, workers) | dict(alone.scans))


def _scan_codes(refit: FittedModel, codes: Mapping[By, Codes], workers: Workers) -> dict[By, Codes]:
    return {by: refit.quantizers[by[0]].scan_codes(each, workers) for by, each in codes.items()}


def hold_out(groups: NDArray[np.intp], rng: np.random.Generator, max_pairs: int | None = None) -> HoldOutRows:
    """Hold out a tenth of the groups; beyond ``max_pairs`` rows, of a sample of them.

    Rows of one group repeat each other: five captions of a picture are one stranger, not five.
    """
    check_groups_to_hold_out(groups)
    split = split_groups(groups, rng, max_pairs)
    held = split.held_out[_choose_one_per_group(groups[split.held_out], rng)[:MAX_ROWS]]
    known = _choose_one_per_group(groups[split.train], rng)[: len(held)]
    return HoldOutRows(split.train, known, held, _choose_other_rows(groups, split.held_out, held))


def check_groups_to_hold_out(groups: NDArray[np.intp]) -> None:
    """Refuse to hold out a tenth of too few groups."""
    check_enough_groups(
        int(groups.max()) + 1,
        "calibrate holds out a tenth of the groups",
        "give more pairs, or do without calibration",
    )


def target_distances(tables: Mapping[str, DistanceTable], scans: Mapping[By, Codes]) -> dict[By, Float32]:
    """Compute distances (n, N) by target and coding, as a search does before offsets."""
    sides = {by: tables[by[0]].distances(codes) for by, codes in scans.items()}
    documents = {
        ("document", coding): sides["image", coding] + sides["text", coding]
        for coding in ("training", "pair")
        if ("image", coding) in sides
    }
    if ("document", "document") in sides:  # one code serves every target
        documents |= {(side, "document"): sides["document", "document"].copy() for side in SIDES}
    return sides | documents | {("document", side): sides[side, side].copy() for side in SIDES}


def _choose_one_per_group(groups: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """Choose a random row of each group, in random order."""
    order = rng.permutation(len(groups))
    _, first = np.unique(groups[order], return_index=True)
    return order[np.sort(first)]


def _choose_other_rows(
    groups: NDArray[np.intp], held_out: NDArray[np.intp], held: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Choose the first other row of each held row's group, or the row itself."""
    others = held_out[~np.isin(held_out, held)]
    labels, first = np.unique(groups[others], return_index=True)
    if not len(labels):
        return held
    places = np.minimum(np.searchsorted(labels, groups[held]), len(labels) - 1)
    found = labels[places] == groups[held]
    return np.where(found, others[first[places]], held)


Prepared = tuple[tuple[Preparation, Preparation], tuple[PreparedRows, PreparedRows]]


class TrainingRows:
    """Raw training pairs, and their preparations, which refits of several code lengths share.

    Parameters
    ----------
    images, texts : raw features (n, d_I), (n, d_T)
    groups : (n,) int
    workers : Workers
    """

    def __init__(self, images: Any, texts: Any, groups: NDArray[np.intp], workers: Workers) -> None:
        self.images, self.texts, self.groups = images, texts, groups
        self._workers = workers
        self._prepared_by_key: dict[tuple[Any, ...], Prepared] = {}

    def prepare(self, settings: Settings) -> Prepared:
        """Prepare both sides, once for equal settings: the preparations, and the prepared rows."""
        components = settings.image_components, settings.text_components
        key = (*components, settings.image_power, settings.text_power)
        if key not in self._prepared_by_key:
            self._prepared_by_key[key] = prepare_pairs(settings, self.images, self.texts, self._workers)
        return self._prepared_by_key[key]

    def fit(self, settings: Settings, rng: np.random.Generator, report: ProgressCallback) -> FittedModel:
        """Fit a refit on these rows."""
        prepared = self.prepare(settings)
        report(Progress("prepare", "features", 1, 1))
        return fit_prepared(settings, *prepared, self.groups, rng, report=report, workers=self._workers)
