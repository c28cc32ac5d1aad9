"""Saving and loading of an estimator: everything it knows as one file, or as bytes."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from crossbyte.encoders.protocol import EncoderState
from crossbyte.errors import DamagedModelFile
from crossbyte.model.attributes import LearnedAttributes
from crossbyte.model.file import model_bytes, parse_model_bytes, read_model_file, write_model_file
from crossbyte.model.learned import Learned
from crossbyte.model.persistence import contents_of, learned_from
from crossbyte.model.quality.persistence import calibration_from, quality_document, report_from
from crossbyte.model.recorded_encoders import check_encoder, encoder_contents, encoders_from
from crossbyte.model.selection import Trial

__all__ = ["Saved"]

_NOT_IN_FILE = ("n_jobs", "callback")
# Parameters that came later, with their defaults: without them, older versions can read the file, too.
_ONLY_IF_CHANGED = {"ridge": None, "text_ridge": None, "image_power": 1.0, "text_power": 1.0}


class Saved(LearnedAttributes, BaseEstimator):
    """An estimator that goes into a file and comes back."""

    _learned: Learned

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the model to one safetensors file, all or nothing; returns its identity digest."""
        return write_model_file(path, *self._contents())

    def to_bytes(self) -> bytes:
        """Give the bytes that :meth:`save` would write."""
        return model_bytes(*self._contents())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by :meth:`save`; every byte is verified."""
        contents = read_model_file(path)
        return cls._from_contents(contents.arrays, contents.document, os.fspath(path))

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "model") -> Self:
        """Read a model from the bytes of :meth:`to_bytes`."""
        contents = parse_model_bytes(data, name)
        return cls._from_contents(contents.arrays, contents.document, name)

    def attach_encoders(self, *, image: EncoderState | None = None, text: EncoderState | None = None) -> Self:
        """Record what made the features, so that queries are encoded the same way; ``fit`` forgets it.

        Parameters
        ----------
        image, text : EncoderState, optional
            The ``state`` of an encoder; None for features that came from elsewhere.

        Raises
        ------
        InvalidInput
            Its features have another width than the model's.
        """
        learned = self._current()
        widths = {"image": learned.image_preparation.n_features, "text": learned.text_preparation.n_features}
        given = {side: state for side, state in (("image", image), ("text", text)) if state is not None}
        self._encoders = {side: check_encoder(side, state, widths[side]) for side, state in given.items()}
        return self

    def _contents(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, document = contents_of(self._current())
        params = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
            if name not in _NOT_IN_FILE and not (name in _ONLY_IF_CHANGED and value == _ONLY_IF_CHANGED[name])
        }
        if not isinstance(params["random_state"], int):
            params["random_state"] = None  # a generator has moved on since; its state would say nothing
        selection = [list(trial) for trial in self._trials]
        document |= {"parameters": params, "selection": selection}
        encoder_arrays, encoders = encoder_contents(self._encoders)
        arrays, document = arrays | encoder_arrays, document | encoders
        return arrays, document | quality_document(self._calibration, self._report)

    @classmethod
    def _from_contents(cls, arrays: Any, document: Any, name: str) -> Self:
        learned = learned_from(arrays, document, name)
        try:
            model = cls(**document["parameters"])
            trials = [Trial(*trial) for trial in document["selection"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedModelFile(f"{name}: the parameters of the model do not fit ({error})") from error
        model._learned, model._trials = learned, trials
        model._calibration, model._report = calibration_from(document, name), report_from(document, name)
        model._encoders = encoders_from(arrays, document, name)
        model.n_features_in_ = learned.image_preparation.n_features
        return model
