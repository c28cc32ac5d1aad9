"""Any ONNX network as an encoder of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.encoders.hashing import fingerprint_of
from crossbyte.encoders.onnx_description import COMPLETE, Description, describe
from crossbyte.encoders.onnx_file import OnnxFile, check_ports, describe_file, find_model, open_file
from crossbyte.encoders.onnx_pictures import network_input
from crossbyte.encoders.outputs import check_picture, checked_rows
from crossbyte.encoders.protocol import EncoderState
from crossbyte.errors import InvalidInput, WrongEncoder
from crossbyte.executors.threads import Workers

__all__ = ["OnnxPictures", "pooled"]


class OnnxPictures:
    """Encode pictures with an ONNX network.

    Pictures go through it one at a time (or in batches of one fixed size, where that was seen to give the
    same bits), so that a picture's features do not depend on those beside it; several threads do so.

    Parameters
    ----------
    file : OnnxFile
    description : Description
    name : str
    n_jobs : int or None
        Threads; None for all cores. The features do not depend on it.
    """

    kind = "onnx"

    def __init__(
        self, file: OnnxFile, description: Description, name: str, n_jobs: int | None = None
    ) -> None:
        self._file, self._description, self._n_jobs = file, description, n_jobs
        port = check_ports(file, description)
        self._dtype = port.dtype
        self._batch = description.batch
        dimension = self._run(self._noise(1)).shape[1]
        self._step = self._batch if self._batches_agree() else 1
        if port.shape[0] is None:
            self._batch = self._step
        self._state = _state(file.digest, description, name, dimension)

    @classmethod
    def from_spec(cls, spec: str, n_jobs: int | None = None) -> Self:
        """Open the file that a path names, with the description beside it; see `find_model`."""
        path, fields = find_model(spec)
        file = open_file(path)
        name = fields.get("name", path.stem)
        if not isinstance(name, str):
            raise InvalidInput(f"{spec}: expected a name as a string, got {name!r}")
        return cls(file, describe_file(file, fields), name, n_jobs)

    @classmethod
    def from_state(cls, state: EncoderState, given: str, n_jobs: int | None = None) -> Self:
        """Open the file again that a model was fitted with; how pictures are prepared, the model knows.

        Raises
        ------
        WrongEncoder
            It is another file.
        """
        path, _ = find_model(given)
        file = open_file(path)
        if file.digest != state.settings.get("file"):
            raise WrongEncoder(
                f"the model was fitted with the encoder {state.name!r} (digest "
                f"{state.settings.get('file')}), and {path} is another file (digest {file.digest}); give the "
                "file that it was fitted with, or fit again with this one"
            )
        description = _of_state(state.settings.get("description"), state.name)
        return cls(file, description, state.name, n_jobs)

    @property
    def state(self) -> EncoderState:
        """The digest of the file and the whole description; no path."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Float32:
        """Make features of pictures.

        Parameters
        ----------
        items : sequence of (height, width, 3) uint8 ndarray
            RGB, of any sizes.

        Returns
        -------
        (n, dimension) float32 ndarray
        """
        pictures = [check_picture(item) for item in items]
        features: Float32 = np.zeros((len(pictures), self._state.dimension), dtype=np.float32)

        def encode_block(rows: slice) -> None:
            inputs = [network_input(picture, self._description, self._dtype) for picture in pictures[rows]]
            features[rows] = self._run(np.stack(inputs))

        with Workers(self._n_jobs) as workers:
            workers.each(encode_block, len(pictures), self._step)
        return np.asarray(checked_rows(features, len(pictures), self._state.name))

    def _run(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Rows of at most one batch, which is filled up with zeros: the network always sees one shape."""
        full = np.zeros((self._batch, *inputs.shape[1:]), dtype=self._dtype)
        full[: len(inputs)] = inputs
        try:
            (output,) = self._file.session.run([self._description.output], {self._description.input: full})
        except Exception as error:  # its errors have no common base but Exception
            raise InvalidInput(f"{self._file.path}: the network failed: {str(error)[:300]}") from error
        return pooled(np.asarray(output), self._description, self._batch)[: len(inputs)]

    def _batches_agree(self) -> bool:
        """Whether pictures in one batch get the bits that each gets alone; tried on noise, where it shows."""
        if self._batch == 1:
            return True
        inputs = self._noise(self._batch)
        alone = [self._run(inputs[row : row + 1]) for row in range(self._batch)]
        return np.array_equal(self._run(inputs), np.concatenate(alone))

    def _noise(self, n: int) -> NDArray[Any]:
        size = (n, self._description.height, self._description.width, 3)
        pictures = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
        return np.stack([network_input(picture, self._description, self._dtype) for picture in pictures])


def pooled(output: NDArray[Any], description: Description, n: int) -> NDArray[Any]:
    """One vector for each picture: axes of length one dropped, places pooled as the description says.

    Raises
    ------
    InvalidInput
        The output has more axes than that.
    """
    if output.ndim < 2 or len(output) != n:
        raise InvalidInput(_unlike_features(output, description, n))
    if output.ndim > 2 and output.size == n * max(output.shape[1:]):
        return output.reshape(n, -1)
    if output.ndim == 3 and description.pool == "first":
        return output[:, 0]
    if output.ndim in (3, 4) and description.pool == "mean":
        places = (1,) if output.ndim == 3 else (2, 3) if description.layout == "NCHW" else (1, 2)
        return np.asarray(output.mean(axis=places, dtype=np.float32))
    if output.ndim > 2:
        raise InvalidInput(_unlike_features(output, description, n))
    return output


def _unlike_features(output: NDArray[Any], description: Description, n: int) -> str:
    return (
        f"the output {description.output!r} has shape {output.shape} for {n} pictures, expected one vector "
        'for each; name another output, or set "pool" to "mean" (of all places) or "first" (the first token)'
    )


def _state(digest: str, description: Description, name: str, dimension: int) -> EncoderState:
    settings = {"file": digest, "description": description.to_json()}
    fingerprint = fingerprint_of(OnnxPictures.kind, settings, {})
    return EncoderState(OnnxPictures.kind, name, dimension, fingerprint, settings, {})


def _of_state(fields: Any, name: str) -> Description:
    """The description in a model's file, which is checked like any other."""
    if not isinstance(fields, Mapping) or not set(fields) >= COMPLETE:
        raise InvalidInput(f"the model does not say how pictures are prepared for {name!r}: it is damaged")
    return describe(fields, name)
