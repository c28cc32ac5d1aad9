"""The built-in image encoder: colours, edges and patch words of a picture, without any download."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crossbyte.arrays import Float32
from crossbyte.encoders.colour import colour_block
from crossbyte.encoders.gradients import gradient_block
from crossbyte.encoders.hashing import fingerprint_of
from crossbyte.encoders.patches import PATCH, PatchWords, patch_block, patches_of
from crossbyte.encoders.protocol import EncoderState
from crossbyte.errors import InvalidInput
from crossbyte.executors.threads import Workers

__all__ = ["KIND", "BuiltinImages"]

KIND = "builtin-images"
VERSION = 1
N_WORDS = 160  # of each of the two codebooks
_SIZE = 128  # pixels on a side for edges; half of it for colours and fine patches, a quarter for coarse ones
_SAMPLE_PICTURES = 400
_SAMPLE_PATCHES = 20_000
_SEED = 0
_WEIGHTS = (0.7, 0.7, 1.0, 1.0)  # of colours, edges, fine and coarse patch words
_FINE_GRIDS, _COARSE_GRIDS = (1,), (1, 2)

_Pixels = NDArray[np.uint8]


class BuiltinImages:
    """Pictures as dense rows: colours, directions of edges, and patch words, each block of fixed length.

    Every picture is brought to a square of one size first, so its proportions do not count, and any size and
    shape will do. Only the patch words are learned; a single picture is enough to make some.
    """

    def __init__(self, fine: PatchWords, coarse: PatchWords) -> None:
        self._fine, self._coarse = fine, coarse
        self._state: EncoderState | None = None
        self._n_dims = len(self._encode_one(np.zeros((1, 1, 3), dtype=np.uint8)))

    @classmethod
    def learn(cls, pictures: Sequence[_Pixels]) -> Self:
        """Learn the patch words from a sample of (h, w, 3) uint8 pictures, at least one."""
        if not len(pictures):
            raise InvalidInput("pictures: expected at least one picture to learn from, got none")
        rng = np.random.default_rng(_SEED)
        chosen = rng.permutation(len(pictures))[:_SAMPLE_PICTURES]
        each = -(-_SAMPLE_PATCHES // len(chosen))
        with Workers(1):
            scales = [_scales(_square(pictures[at])) for at in np.sort(chosen)]
            return cls(*(_learn_words(pixels, each, rng) for pixels in zip(*scales, strict=True)))

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Make the same encoder again."""
        if state.kind != KIND or state.settings.get("version") != VERSION:
            raise InvalidInput(
                f"expected an image encoder of kind {KIND!r}, version {VERSION}, got {state.kind!r}, version "
                f"{state.settings.get('version')!r}; a newer crossbyte may be needed"
            )
        return cls(*(_words_of(state, scale) for scale in ("fine", "coarse")))

    @property
    def state(self) -> EncoderState:
        """State that goes into the model's file."""
        if self._state is None:
            settings = {"version": VERSION, "patch": PATCH, "size": _SIZE, "weights": list(_WEIGHTS)}
            scales = {"fine": self._fine, "coarse": self._coarse}
            arrays = {
                f"{scale}_{name}": array
                for scale, words in scales.items()
                for name, array in words._asdict().items()
            }
            fingerprint = fingerprint_of(KIND, settings, arrays)
            self._state = EncoderState(
                KIND, "built-in colours and shapes", self._n_dims, fingerprint, settings, arrays
            )
        return self._state

    def encode(self, items: Sequence[_Pixels]) -> Float32:
        """Encode pictures.

        Parameters
        ----------
        items : sequence of (height, width, 3) uint8 arrays
            RGB, of any size; read one at a time, each by one thread.

        Returns
        -------
        (n, dimension) float32
        """
        rows = np.empty((len(items), self._n_dims), dtype=np.float32)
        with Workers() as workers:
            for at, row in enumerate(workers.map(self._encode_one, items)):
                rows[at] = row
        return rows

    def _encode_one(self, picture: _Pixels) -> Float32:
        square = _square(picture)
        small, tiny = _scales(square)
        blocks = (
            colour_block(np.rint(small).astype(np.uint8)),
            gradient_block(_grey(square)),
            patch_block(small, self._fine, _FINE_GRIDS),
            patch_block(tiny, self._coarse, _COARSE_GRIDS),
        )
        return np.concatenate([w * block for w, block in zip(_WEIGHTS, blocks, strict=True)])


def _square(picture: Any) -> _Pixels:
    """Bring a picture to (size, size, 3)."""
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise InvalidInput(
            f"pictures: expected (height, width, 3) uint8 arrays in RGB, got {pixels.dtype} of shape "
            f"{pixels.shape}; crossbyte.data.pictures reads files as such arrays"
        )
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR))


def _scales(square: _Pixels) -> tuple[Float32, Float32]:
    """Half and quarter of a square's sides."""
    small = _halved(square.astype(np.float32))
    return small, _halved(small)


def _halved(pixels: Float32) -> Float32:
    """Means of (s, s, 3) pixels, two by two."""
    top, bottom = pixels[::2], pixels[1::2]
    both = top + bottom
    return np.asarray((both[:, ::2] + both[:, 1::2]) * np.float32(0.25))


def _grey(square: _Pixels) -> Float32:
    return np.asarray(square @ np.array([0.299, 0.587, 0.114], dtype=np.float32))


def _learn_words(pictures: Sequence[Float32], each: int, rng: np.random.Generator) -> PatchWords:
    """Learn a codebook from ``each`` patches of each picture, drawn anew."""
    # One picture after the other: all patches of all pictures would take gigabytes.
    drawn = [_some(patches_of(pixels), each, rng) for pixels in pictures]
    return PatchWords.learn(np.concatenate(drawn), N_WORDS, rng)


def _some(patches: Float32, n_patches: int, rng: np.random.Generator) -> Float32:
    return patches[rng.permutation(len(patches))[:n_patches]]


def _words_of(state: EncoderState, scale: str) -> PatchWords:
    arrays = (state.arrays[f"{scale}_{name}"] for name in PatchWords._fields)
    return PatchWords(*(np.ascontiguousarray(array, dtype=np.float32) for array in arrays))
