"""The learned attributes of the estimator, as read-only views of what a fit has learned."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.errors import NotCalibrated
from crossbyte.mapping.space import SparseSpace
from crossbyte.model.objective import ObjectiveRecord

if TYPE_CHECKING:
    from crossbyte.encoders.protocol import EncoderState
    from crossbyte.model.learned import Learned
    from crossbyte.model.quality.calibration import Calibration
    from crossbyte.model.selection import Trial
    from crossbyte.report.model_report import Report

__all__ = ["LearnedAttributes"]


class LearnedAttributes:
    """Attributes that end in an underscore; all raise ``NotFitted`` before ``fit``."""

    _trials: list[Trial]
    _calibration: Calibration | None
    _report: Report | None = None
    _encoders: Mapping[str, EncoderState] = MappingProxyType({})

    def _current(self) -> Learned:
        """What was learned; the estimator says where it is."""
        raise NotImplementedError

    def _sparse_space(self, name: str) -> SparseSpace:
        space = self._current().space
        if not isinstance(space, SparseSpace):
            raise AttributeError(
                f"{name} belongs to mapping='sparse'; this model has mapping={self.mapping_!r}"
            )
        return space

    @property
    def image_codebooks_(self) -> Float32:
        """(M, 256, D) codebooks C of the images."""
        return self._current().image_quantizer.words

    @property
    def text_codebooks_(self) -> Float32:
        """(M, 256, D) codebooks D of the texts."""
        return self._current().text_quantizer.words

    @property
    def image_codes_(self) -> Codes:
        """(N, M) codes P of the training images."""
        return self._current().image_codes

    @property
    def text_codes_(self) -> Codes:
        """(N, M) codes Q of the training texts."""
        return self._current().text_codes

    @property
    def image_cross_(self) -> float:
        """Mean cross term ε₁ of the images."""
        return self._current().image_quantizer.epsilon

    @property
    def text_cross_(self) -> float:
        """Mean cross term ε₂ of the texts."""
        return self._current().text_quantizer.epsilon

    @property
    def image_dictionary_(self) -> NDArray[np.float64]:
        """(A, d_I) image dictionary B."""
        return self._sparse_space("image_dictionary_").image_dictionary

    @property
    def text_basis_(self) -> NDArray[np.float64]:
        """(D, d_T) text basis U."""
        return self._sparse_space("text_basis_").text_basis

    @property
    def image_map_(self) -> NDArray[np.float64]:
        """(A, D) image map R."""
        return self._sparse_space("image_map_").image_map

    @property
    def mapping_(self) -> str:
        """The mapping in use."""
        return self._current().settings.mapping

    @property
    def n_components_(self) -> int:
        """Dimensions of the common space."""
        return self._current().settings.n_components

    @property
    def ridge_(self) -> float:
        """Regularisation of the canonical correlation, in units of the mean variance."""
        return self._current().settings.ridge

    @property
    def correlation_(self) -> float:
        """γ in use."""
        return self._current().settings.pull.correlation

    @property
    def cross_penalty_(self) -> float:
        """μ in use."""
        return self._current().settings.pull.cross_penalty

    @property
    def cross_term_(self) -> str:
        """How the cross term is treated at search."""
        return self._current().settings.cross_term

    @property
    def selection_(self) -> list[Trial]:
        """Everything that ``mapping="auto"`` tried."""
        self._current()
        return list(self._trials)

    @property
    def objective_history_(self) -> list[ObjectiveRecord]:
        """The objective after every block update."""
        return list(self._current().history)

    @property
    def calibration_(self) -> Calibration | None:
        """What ``calibrate`` measured on held-out pairs; None where it has not run."""
        self._current()
        return self._calibration

    @property
    def report_(self) -> Report:
        """The quality report that ``calibrate`` made.

        Raises
        ------
        NotCalibrated
            Where it has not run.
        """
        self._current()
        if self._report is None:
            raise NotCalibrated("this model has no quality report: call calibrate(images, texts) first")
        return self._report

    @property
    def encoder_states_(self) -> dict[str, EncoderState]:
        """What made the features, by side ("image", "text"); empty for a model of plain features."""
        self._current()
        return dict(self._encoders)

    @property
    def n_text_features_(self) -> int:
        """Width of the text features."""
        return self._current().text_preparation.n_features
