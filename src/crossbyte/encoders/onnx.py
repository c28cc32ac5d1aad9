"""Encode images with any ONNX network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crossbyte.arrays import Float32
from crossbyte.compute.executor import Workers
from crossbyte.encoders import onnx_model
from crossbyte.encoders.base import EncoderState, check_picture, check_rows, encoder_fingerprint
from crossbyte.errors import InvalidInput, WrongEncoder

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def prepare_picture(
    picture: NDArray[np.uint8], description: onnx_model.Description, dtype: Any
) -> NDArray[Any]:
    """Prepare one picture as the input of a network.

    Parameters
    ----------
    picture : (height, width, 3) uint8 ndarray
        RGB.
    description : Description
    dtype : dtype
        Of the network's input; uint8 gets the grey levels as they are.

    Returns
    -------
    (3, height, width) or (height, width, 3) ndarray of that dtype
    """
    pixels = np.asarray(_fit_picture(Image.fromarray(picture), description))
    if dtype != np.uint8:
        mean, std = (np.asarray(levels, dtype=np.float32) for levels in (description.mean, description.std))
        pixels = ((pixels.astype(np.float32) - mean) / std).astype(dtype)
    if description.colour == "BGR":
        pixels = pixels[:, :, ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if description.layout == "NCHW" else pixels)


def _fit_picture(image: Image.Image, description: onnx_model.Description) -> Image.Image:
    if description.fit == "squash":
        return _resize(image, description.width, description.height, description)
    return _crop(image, description) if description.fit == "crop" else _pad_to_frame(image, description)


def _crop(image: Image.Image, description: onnx_model.Description) -> Image.Image:
    """Scale the short side to the wanted size, then cut out the centre."""
    scale = description.short_side / min(image.size)
    width, height = (max(description.short_side, round(side * scale)) for side in image.size)
    # A strip of 1 x 50,000 would become a huge picture, of which only the centre is wanted.
    image, width, height = _cut_middle(image, width, height, 4 * description.short_side)
    image = _resize(image, width, height, description)
    left, top = (width - description.width) // 2, (height - description.height) // 2
    return image.crop((left, top, left + description.width, top + description.height))


def _cut_middle(image: Image.Image, width: int, height: int, most: int) -> tuple[Image.Image, int, int]:
    """Cut a picture that will be enlarged beyond ``most``; its middle is all that a crop will see."""
    if max(width, height) <= most:
        return image, width, height
    side = 4 * min(image.size)
    across, down = min(image.width, side), min(image.height, side)
    left, top = (image.width - across) // 2, (image.height - down) // 2
    scale = min(width, height) / min(image.size)
    return image.crop((left, top, left + across, top + down)), round(across * scale), round(down * scale)


def _pad_to_frame(image: Image.Image, description: onnx_model.Description) -> Image.Image:
    """Scale the whole picture into the middle of a frame with grey borders."""
    scale = min(description.width / image.width, description.height / image.height)
    width, height = (max(1, round(side * scale)) for side in image.size)
    image = _resize(image, width, height, description)
    frame = Image.new("RGB", (description.width, description.height), (description.border,) * 3)
    frame.paste(image, ((description.width - width) // 2, (description.height - height) // 2))
    return frame


def _resize(image: Image.Image, width: int, height: int, description: onnx_model.Description) -> Image.Image:
    if image.size == (width, height):
        return image
    return image.resize((width, height), _FILTERS[description.resampling])


class OnnxImageEncoder:
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
        self,
        file: onnx_model.OnnxFile,
        description: onnx_model.Description,
        name: str,
        n_jobs: int | None = None,
    ) -> None:
        self._file, self._description, self._n_jobs = file, description, n_jobs
        port = onnx_model.check_ports(file, description)
        self._dtype = port.dtype
        self._batch = description.batch
        dimension = self._run_batch(self._make_noise(1)).shape[1]
        self._step = self._batch if self._batches_agree() else 1
        if port.shape[0] is None:
            self._batch = self._step
        self._state = _build_state(file.digest, description, name, dimension)

    @classmethod
    def from_spec(cls, spec: str, n_jobs: int | None = None) -> Self:
        """Open the file that a path names, with the description beside it; see `find_model`."""
        path, fields = onnx_model.find_model(spec)
        file = onnx_model.open_onnx(path)
        name = fields.get("name", path.stem)
        if not isinstance(name, str):
            raise InvalidInput(f"{spec}: expected a name as a string, got {name!r}")
        return cls(file, onnx_model.describe_file(file, fields), name, n_jobs)

    @classmethod
    def from_state(cls, state: EncoderState, given: str, n_jobs: int | None = None) -> Self:
        """Open the file again that a model was fitted with; the state has the description of its input.

        Raises
        ------
        WrongEncoder
            It is another file.
        """
        path, _ = onnx_model.find_model(given)
        file = onnx_model.open_onnx(path)
        if file.digest != state.settings.get("file"):
            raise WrongEncoder(
                f"the model was fitted with the encoder {state.name!r} (digest "
                f"{state.settings.get('file')}), and {path} is another file (digest {file.digest}); give the "
                "file that it was fitted with, or fit again with this one"
            )
        description = restore_description(state.settings.get("description"), state.name)
        return cls(file, description, state.name, n_jobs)

    @property
    def state(self) -> EncoderState:
        """The digest of the file and the whole description; no path."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Float32:
        """Encode pictures.

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
            inputs = [prepare_picture(picture, self._description, self._dtype) for picture in pictures[rows]]
            features[rows] = self._run_batch(np.stack(inputs))

        with Workers(self._n_jobs) as workers:
            workers.each(encode_block, len(pictures), self._step)
        return np.asarray(check_rows(features, len(pictures), self._state.name))

    def _run_batch(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Encode at most one batch, filled up with zeros: the network always sees one shape."""
        full = np.zeros((self._batch, *inputs.shape[1:]), dtype=self._dtype)
        full[: len(inputs)] = inputs
        try:
            (output,) = self._file.session.run([self._description.output], {self._description.input: full})
        except Exception as error:  # its errors have no common base but Exception
            raise InvalidInput(f"{self._file.path}: the network failed: {str(error)[:300]}") from error
        return pool_features(np.asarray(output), self._description, self._batch)[: len(inputs)]

    def _batches_agree(self) -> bool:
        """Tell by noise whether pictures in one batch get the same bits as each alone."""
        if self._batch == 1:
            return True
        inputs = self._make_noise(self._batch)
        alone = [self._run_batch(inputs[row : row + 1]) for row in range(self._batch)]
        return np.array_equal(self._run_batch(inputs), np.concatenate(alone))

    def _make_noise(self, n: int) -> NDArray[Any]:
        size = (n, self._description.height, self._description.width, 3)
        pictures = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
        return np.stack([prepare_picture(picture, self._description, self._dtype) for picture in pictures])


def pool_features(output: NDArray[Any], description: onnx_model.Description, n: int) -> NDArray[Any]:
    """Reduce the output to one vector per picture: drop axes of length one, pool places as described.

    Raises
    ------
    InvalidInput
        The output has more axes than that.
    """
    if output.ndim < 2 or len(output) != n:
        raise InvalidInput(_describe_bad_shape(output, description, n))
    if output.ndim > 2 and output.size == n * max(output.shape[1:]):
        return output.reshape(n, -1)
    if output.ndim == 3 and description.pool == "first":
        return output[:, 0]
    if output.ndim in (3, 4) and description.pool == "mean":
        places = (1,) if output.ndim == 3 else (2, 3) if description.layout == "NCHW" else (1, 2)
        return np.asarray(output.mean(axis=places, dtype=np.float32))
    if output.ndim > 2:
        raise InvalidInput(_describe_bad_shape(output, description, n))
    return output


def _describe_bad_shape(output: NDArray[Any], description: onnx_model.Description, n: int) -> str:
    return (
        f"the output {description.output!r} has shape {output.shape} for {n} pictures, expected one vector "
        'for each; name another output, or set "pool" to "mean" (of all places) or "first" (the first token)'
    )


def _build_state(digest: str, description: onnx_model.Description, name: str, dimension: int) -> EncoderState:
    settings = {"file": digest, "description": description.to_json()}
    fingerprint = encoder_fingerprint(OnnxImageEncoder.kind, settings, {})
    return EncoderState(OnnxImageEncoder.kind, name, dimension, fingerprint, settings, {})


def restore_description(fields: Any, name: str) -> onnx_model.Description:
    """Restore the description in a model's file, checked like any other."""
    if not isinstance(fields, Mapping) or not set(fields) >= onnx_model.COMPLETE:
        raise InvalidInput(f"the model does not say how pictures are prepared for {name!r}: it is damaged")
    return onnx_model.check_description(fields, name)
