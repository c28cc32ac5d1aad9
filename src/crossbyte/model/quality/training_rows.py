"""Training pairs that several models are fitted on, prepared only once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.features import Rows
from crossbyte.data.preparation import Preparation
from crossbyte.executors.threads import Workers
from crossbyte.model.fitting import fit_prepared, prepare
from crossbyte.model.learned import Learned
from crossbyte.model.parameters import Settings
from crossbyte.progress import Progress, ProgressCallback

__all__ = ["TrainingRows"]

Prepared = tuple[tuple[Preparation, Preparation], tuple[Rows, Rows]]


class TrainingRows:
    """Raw pairs, and what every preparation that was asked for made of them: code lengths share it.

    Parameters
    ----------
    images, texts : raw features (n, d_I), (n, d_T)
    groups : (n,) int
    workers : Workers
    """

    def __init__(self, images: Any, texts: Any, groups: NDArray[np.intp], workers: Workers) -> None:
        self.images, self.texts, self.groups = images, texts, groups
        self._workers = workers
        self._known: dict[tuple[Any, ...], Prepared] = {}

    def prepared(self, settings: Settings) -> Prepared:
        """Preparations of both sides, and the prepared rows."""
        components = settings.image_components, settings.text_components
        key = (*components, settings.image_power, settings.text_power)
        if key not in self._known:
            self._known[key] = prepare(settings, self.images, self.texts, self._workers)
        return self._known[key]

    def fit(self, settings: Settings, rng: np.random.Generator, report: ProgressCallback) -> Learned:
        """Fit a model."""
        prepared = self.prepared(settings)
        report(Progress("prepare", "features", 1, 1))
        return fit_prepared(settings, *prepared, self.groups, rng, report=report, workers=self._workers)
