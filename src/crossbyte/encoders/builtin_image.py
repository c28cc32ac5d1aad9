"""Encode images without any download: colours, directions of edges, and visual words of patches.

Colours are soft histograms in Oklab, where equal distances look about equally different: six greys and rings
of hues, and a colour belongs to all bins near it, so that a little more light does not change everything.
Visual words are after Coates, Lee and Ng (2011): patches are normalised for brightness and contrast,
whitened, and compared with the directions of a spherical k-means. A patch counts for a word by how far its
response exceeds its mean over all words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Workers, deterministic_product
from crossbyte.encoders.base import EncoderState, encoder_fingerprint
from crossbyte.errors import InvalidInput


def block_means(values: Float32, grid: int) -> Float32:
    """Average (h, w, k) values over a grid x grid of regions, as one row (grid² k)."""
    rows, columns = (_region_bounds(size, grid) for size in values.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)
    return np.ascontiguousarray(sums / (values.shape[0] * values.shape[1] / grid**2)).ravel()


def signed_sqrt(values: Float32) -> Float32:
    """Take signed roots, so that large bins do not drown small ones, and bring the row to unit length."""
    return normalize_row(np.sign(values) * np.sqrt(np.abs(values)))


def normalize_row(values: Float32) -> Float32:
    """Divide a row by its length; zeros stay zero."""
    length = float(np.sqrt(np.sum(values.astype(np.float64) ** 2)))
    return np.asarray(values / length if length > 1e-12 else np.zeros_like(values), dtype=np.float32)


def _region_bounds(size: int, grid: int) -> list[int]:
    return [size * part // grid for part in range(grid)]


_STEPS = 32  # levels of each channel in the table: finer is invisible in a histogram
_WIDTH = 0.06  # of a bin, in Oklab
_HUES = 12
_RINGS = ((0.38, 0.09), (0.6, 0.08), (0.6, 0.18), (0.82, 0.08))  # lightness and chroma
_GREYS = (0.08, 0.3, 0.48, 0.65, 0.83, 1.0)
N_COLOURS = len(_GREYS) + _HUES * len(_RINGS)
_COLOUR_GRIDS = (1, 2)


def colour_block(pixels: NDArray[np.uint8]) -> Float32:
    """Describe the colours of (s, s, 3) pixels as one row: bins of the whole and of its quarters."""
    steps = (pixels >> 3).astype(np.intp)
    members = _colour_table()[(steps[..., 0] * _STEPS + steps[..., 1]) * _STEPS + steps[..., 2]]
    return np.concatenate([signed_sqrt(block_means(members, grid)) for grid in _COLOUR_GRIDS])


@cache
def _colour_table() -> Float32:
    """Compute the share of each of the (steps³) colours in each bin; rows sum to 1."""
    levels = (np.arange(_STEPS) + 0.5) / _STEPS
    colours = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    points, bins = oklab(colours), _colour_bins()
    squares = (
        (points**2).sum(axis=1)[:, None] + (bins**2).sum(axis=1) - 2 * np.einsum("nd,kd->nk", points, bins)
    )
    nearest = squares.min(axis=1, keepdims=True)
    members = np.exp((nearest - squares) / (2 * _WIDTH**2))
    return np.asarray(members / members.sum(axis=1, keepdims=True), dtype=np.float32)


def _colour_bins() -> Float64:
    angles = np.arange(_HUES) * (2 * np.pi / _HUES)
    greys = [(light, 0.0, 0.0) for light in _GREYS]
    hues = [
        (light, chroma * np.cos(angle), chroma * np.sin(angle))
        for light, chroma in _RINGS
        for angle in angles
    ]
    return np.array(greys + hues)


def oklab(colours: Float64) -> Float64:
    """Convert (n, 3) sRGB colours in [0, 1] to Oklab (Ottosson 2020)."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(np.einsum("nc,kc->nk", linear, _TO_CONES))
    return np.asarray(np.einsum("nc,kc->nk", cones, _TO_LAB))


_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


_DIRECTIONS = 8  # over half a turn: dark on light is the same edge as light on dark
_GRADIENT_GRIDS = (1, 2, 4)
_NOISE = 4.0  # of grey levels; fainter edges count less


def gradient_block(grey: Float32) -> Float32:
    """Describe the edges of (s, s) grey levels (0 to 255) as one row: a histogram per cell of each grid."""
    down, across = np.zeros_like(grey), np.zeros_like(grey)
    down[1:-1], across[:, 1:-1] = grey[2:] - grey[:-2], grey[:, 2:] - grey[:, :-2]
    strength = np.sqrt(down * down + across * across)
    edges = _share_directions(down, across, strength)
    # Each cell is weighted by the root of its share of the picture's edges: contrast cancels out.
    return np.concatenate([signed_sqrt(block_means(edges, grid)) for grid in _GRADIENT_GRIDS])


def _share_directions(down: Float32, across: Float32, strength: Float32) -> Float32:
    """Share the strength of each pixel between the two nearest directions: (s, s, directions)."""
    turn = np.arctan2(down, across) * np.float32(_DIRECTIONS / np.pi) % _DIRECTIONS
    lower = turn.astype(np.intp) % _DIRECTIONS
    share = (turn - np.floor(turn)).astype(np.float32)
    weight = strength * strength / (strength + np.float32(_NOISE))
    size = strength.size
    edges = np.zeros((size, _DIRECTIONS), dtype=np.float32)
    at = np.arange(size)
    edges[at, lower.ravel()] = (weight * (1 - share)).ravel()
    edges[at, (lower.ravel() + 1) % _DIRECTIONS] += (weight * share).ravel()
    return edges.reshape(*strength.shape, _DIRECTIONS)


PATCH = 6  # pixels on a side
_CONTRAST = 100.0  # variance of grey levels below which a patch counts as flat
_WHITENING = 0.1  # of the mean variance, added to all
_N_ROUNDS = 10


class PatchCodebook(NamedTuple):
    """Learned visual words; patches are (d,) rows of d = PATCH² 3 values."""

    mean: Float32
    """(d,)"""
    filters: Float32
    """(d, K): whitening, then the words' directions"""

    @classmethod
    def learn(cls, patches: Float32, n_words: int, rng: np.random.Generator) -> PatchCodebook:
        """Learn from (n, d) patches, at least one."""
        mean = patches.mean(axis=0, dtype=np.float64)
        centred = patches - mean
        variances, directions = np.linalg.eigh(centred.T @ centred / len(patches))
        variances = np.maximum(variances, 0.0)
        # One more unit, for samples without any contrast at all.
        floor = _WHITENING * variances.mean() + 1e-3
        whitening = (directions / np.sqrt(variances + floor)) @ directions.T
        words = _spherical_kmeans((centred @ whitening).astype(np.float32), n_words, rng)
        return cls(mean.astype(np.float32), (whitening @ words.T).astype(np.float32))


def extract_patches(pixels: Float32, stride: int = 1) -> Float32:
    """Extract all (n, d) patches of (s, s, 3) pixels, row by row, normalised for brightness and contrast."""
    windows = sliding_window_view(pixels, (PATCH, PATCH), axis=(0, 1))[::stride, ::stride]
    patches = np.ascontiguousarray(windows, dtype=np.float32).reshape(-1, 3 * PATCH**2)
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt(np.einsum("nd,nd->n", patches, patches) / patches.shape[1] + _CONTRAST)[:, None]
    return patches


def patch_block(pixels: Float32, words: PatchCodebook, grids: Sequence[int]) -> Float32:
    """Describe (s, s, 3) pixels by words as one row: how much of each is in every region of each grid."""
    patches = extract_patches(pixels)
    patches -= words.mean
    responses = deterministic_product(patches, words.filters)  # BLAS alone rounds by the number of threads
    responses -= responses.mean(axis=1, keepdims=True)
    np.maximum(responses, 0.0, out=responses)
    side = pixels.shape[0] - PATCH + 1
    grid = responses.reshape(side, side, -1)
    return np.concatenate([signed_sqrt(block_means(grid, size)) for size in grids])


def _spherical_kmeans(points: Float32, n_words: int, rng: np.random.Generator) -> Float32:
    """Find (K, d) unit directions; those without any near point stay as they were drawn."""
    words = _unit_directions(rng.standard_normal((n_words, points.shape[1]), dtype=np.float32))
    for _ in range(_N_ROUNDS):
        responses = points @ words.T
        labels = np.abs(responses).argmax(axis=1)
        shares = responses[np.arange(len(points)), labels]
        members = sparse.csr_matrix((shares, (labels, np.arange(len(points)))), (n_words, len(points)))
        sums = np.asarray(members @ points)
        used = np.einsum("kd,kd->k", sums, sums) > 1e-12
        words[used] = _unit_directions(sums[used])
    return words


def _unit_directions(rows: Float32) -> Float32:
    return np.asarray(rows / np.sqrt(np.einsum("kd,kd->k", rows, rows))[:, None])


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


class BuiltinImageEncoder:
    """Encode pictures as dense rows: blocks of colours, edge directions, and patch words, of fixed length.

    Every picture is first resized to one square, so that its proportions do not count and any size and shape
    will do. Only the patch words are learned; a single picture is enough to make some.
    """

    def __init__(self, fine: PatchCodebook, coarse: PatchCodebook) -> None:
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
            scales = [_downscale(_resize_to_square(pictures[at])) for at in np.sort(chosen)]
            return cls(*(_learn_codebook(pixels, each, rng) for pixels in zip(*scales, strict=True)))

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Make the same encoder again."""
        if state.kind != KIND or state.settings.get("version") != VERSION:
            raise InvalidInput(
                f"expected an image encoder of kind {KIND!r}, version {VERSION}, got {state.kind!r}, version "
                f"{state.settings.get('version')!r}; a newer crossbyte may be needed"
            )
        return cls(*(_restore_codebook(state, scale) for scale in ("fine", "coarse")))

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
            fingerprint = encoder_fingerprint(KIND, settings, arrays)
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
        square = _resize_to_square(picture)
        small, tiny = _downscale(square)
        blocks = (
            colour_block(np.rint(small).astype(np.uint8)),
            gradient_block(_to_grey(square)),
            patch_block(small, self._fine, _FINE_GRIDS),
            patch_block(tiny, self._coarse, _COARSE_GRIDS),
        )
        return np.concatenate([w * block for w, block in zip(_WEIGHTS, blocks, strict=True)])


def _resize_to_square(picture: Any) -> _Pixels:
    """Resize a picture to (size, size, 3)."""
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise InvalidInput(
            f"pictures: expected (height, width, 3) uint8 arrays in RGB, got {pixels.dtype} of shape "
            f"{pixels.shape}; crossbyte.data.images reads files as such arrays"
        )
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR))


def _downscale(square: _Pixels) -> tuple[Float32, Float32]:
    """Scale a square to a half and to a quarter of its side."""
    small = _halve(square.astype(np.float32))
    return small, _halve(small)


def _halve(pixels: Float32) -> Float32:
    """Average (s, s, 3) pixels, two by two."""
    top, bottom = pixels[::2], pixels[1::2]
    both = top + bottom
    return np.asarray((both[:, ::2] + both[:, 1::2]) * np.float32(0.25))


def _to_grey(square: _Pixels) -> Float32:
    return np.asarray(square @ np.array([0.299, 0.587, 0.114], dtype=np.float32))


def _learn_codebook(pictures: Sequence[Float32], each: int, rng: np.random.Generator) -> PatchCodebook:
    """Learn a codebook from ``each`` patches of each picture, drawn at random."""
    # One picture after the other: all patches of all pictures would take gigabytes.
    drawn = [_sample_patches(extract_patches(pixels), each, rng) for pixels in pictures]
    return PatchCodebook.learn(np.concatenate(drawn), N_WORDS, rng)


def _sample_patches(patches: Float32, n_patches: int, rng: np.random.Generator) -> Float32:
    return patches[rng.permutation(len(patches))[:n_patches]]


def _restore_codebook(state: EncoderState, scale: str) -> PatchCodebook:
    arrays = (state.arrays[f"{scale}_{name}"] for name in PatchCodebook._fields)
    return PatchCodebook(*(np.ascontiguousarray(array, dtype=np.float32) for array in arrays))
