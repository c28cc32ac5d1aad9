"""Generated scenes whose right answer is known: coloured shapes on a ground, with captions in plain words.

A scene is one to four equal shapes of one colour and size in one part of the picture. Each caption says so
in words of its own: synonyms, another order, and now and then something left out, as people do.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from crossbyte.data.scene_words import CAPTIONS, _pick, caption_of
from crossbyte.errors import InvalidInput

__all__ = ["Scene", "make_scenes", "write_scenes"]

SIDE = 128  # pixels of a picture
DRAWN = 2 * SIDE  # pictures are drawn twice as large and halved, which smooths the edges

COLOURS = {
    "red": (214, 40, 40),
    "orange": (245, 130, 32),
    "yellow": (250, 208, 30),
    "green": (40, 150, 70),
    "blue": (45, 105, 225),
    "purple": (125, 60, 170),
    "pink": (245, 120, 175),
    "brown": (125, 80, 45),
}
GROUNDS = {
    "white": (250, 250, 250),
    "black": (18, 18, 20),
    "grey": (150, 152, 155),
    "beige": (232, 216, 186),
    "navy": (18, 26, 66),
    "mint": (190, 232, 208),
}
SIZES = {"small": 7.0, "medium": 11.0, "large": 15.0}  # radius in pixels
PLACES = {
    "left": (0.2, 0.5),
    "right": (0.8, 0.5),
    "top": (0.5, 0.2),
    "bottom": (0.5, 0.8),
    "middle": (0.5, 0.5),
}
COUNTS = (1, 2, 3, 4)


class Scene(NamedTuple):
    """A picture, what is said about it, and what is in it.

    Attributes
    ----------
    pixels : (128, 128, 3) uint8
        RGB.
    captions : tuple of str
        Two different texts about the same scene.
    attributes : dict
        ``colour``, ``shape``, ``count``, ``size``, ``place`` and ``background``.
    """

    pixels: NDArray[np.uint8]
    captions: tuple[str, ...]
    attributes: dict[str, Any]


def make_scenes(n: int, seed: int = 0) -> list[Scene]:
    """Draw scenes; the first ones are the same for every ``n``.

    Parameters
    ----------
    n : int
        How many, at least 1.
    seed : int
        Another seed gives other scenes.

    Raises
    ------
    InvalidInput
        If ``n`` is below 1.
    """
    if n < 1:
        raise InvalidInput(f"expected a number of scenes of at least 1, got {n}")
    return [_scene(np.random.default_rng([seed, row])) for row in range(n)]


def write_scenes(folder: str | os.PathLike[str], n: int, seed: int = 0) -> None:
    """Write scenes as people keep pictures: PNG files, and ``captions.csv`` with a row for each caption.

    Columns are ``image`` (name of the file), ``caption`` and the attributes of :class:`Scene`. The folder is
    made if need be; files of the same names are replaced.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    scenes = make_scenes(n, seed)
    with (target / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption", *scenes[0].attributes])
        for number, scene in enumerate(scenes):
            name = f"scene-{number:05d}.png"
            Image.fromarray(scene.pixels).save(target / name, compress_level=1)
            rows.writerows([name, caption, *scene.attributes.values()] for caption in scene.captions)


def _scene(rng: np.random.Generator) -> Scene:
    attributes = {
        "colour": _pick(rng, tuple(COLOURS)),
        "shape": _pick(rng, tuple(SHAPES)),
        "count": _pick(rng, COUNTS),
        "size": _pick(rng, tuple(SIZES)),
        "place": _pick(rng, tuple(PLACES)),
        "background": _pick(rng, tuple(GROUNDS)),
    }
    pixels = _draw(rng, attributes)
    return Scene(pixels, tuple(caption_of(rng, attributes, form) for form in _forms(rng)), attributes)


def _forms(rng: np.random.Generator) -> list[int]:
    """Two different forms of sentence, so that the two captions differ."""
    first, step = int(rng.integers(len(CAPTIONS))), int(rng.integers(1, len(CAPTIONS)))
    return [first, (first + step) % len(CAPTIONS)]


# Drawing


def _draw(rng: np.random.Generator, attributes: dict[str, Any]) -> NDArray[np.uint8]:
    picture = Image.new("RGB", (DRAWN, DRAWN), _shade(rng, GROUNDS[attributes["background"]]))
    brush, colour = ImageDraw.Draw(picture), _shade(rng, COLOURS[attributes["colour"]])
    radius = DRAWN / SIDE * SIZES[attributes["size"]]
    outline = SHAPES[attributes["shape"]]
    for centre in _centres(rng, attributes["place"], attributes["count"], radius):
        brush.polygon([tuple(point) for point in (centre + radius * outline).tolist()], fill=colour)
    return np.asarray(picture.reduce(2))


def _shade(rng: np.random.Generator, colour: tuple[int, int, int]) -> tuple[int, ...]:
    """A colour a little lighter or darker than its name."""
    return tuple(np.clip(np.array(colour) + rng.integers(-12, 13, size=3), 0, 255).tolist())


def _centres(rng: np.random.Generator, place: str, count: int, radius: float) -> NDArray[np.float64]:
    """Place the shapes: a column at the sides, a row above and below, around the middle otherwise."""
    steps = np.arange(count) - (count - 1) / 2
    if place == "middle":
        angles = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(count) / count
        around = np.stack([np.cos(angles), np.sin(angles)], axis=1) * (1.5 if count > 1 else 0.0)
    else:
        along = np.array([0.0, 2.05] if place in ("left", "right") else [2.05, 0.0])
        around = steps[:, None] * along
    return DRAWN * np.array(PLACES[place]) + radius * around + rng.uniform(-4, 4, size=2)


def _round(n_points: int, radii: tuple[float, ...] = (1.0,), turn: float = -0.25) -> NDArray[np.float64]:
    """Points around the centre, the radii taken in turn; the first one straight up."""
    angles = 2 * np.pi * (np.arange(n_points) / n_points + turn)
    lengths = np.resize(radii, n_points)
    return np.stack([np.cos(angles) * lengths, np.sin(angles) * lengths], axis=1)


def _ring() -> NDArray[np.float64]:
    outer = np.concatenate([_round(40), _round(40)[:1]])
    return np.concatenate([outer, 0.6 * outer[::-1]])


def _crescent() -> NDArray[np.float64]:
    """A disc, and what another one to its right leaves of it."""
    turns = np.linspace(0.25 * np.pi, 1.75 * np.pi, 30)
    outer = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    bend = np.linspace(1, -1, 30) * np.sin(0.25 * np.pi)
    inner = np.stack([np.cos(0.25 * np.pi) - 0.9 * np.sqrt(np.maximum(0.5 - bend**2, 0.0)), -bend], axis=1)
    return np.concatenate([outer, inner])


def _heart() -> NDArray[np.float64]:
    turns = np.linspace(0, 2 * np.pi, 40)
    across = 16 * np.sin(turns) ** 3
    down = -(13 * np.cos(turns) - 5 * np.cos(2 * turns) - 2 * np.cos(3 * turns) - np.cos(4 * turns))
    return np.stack([across, down], axis=1) / 17


def _cross() -> NDArray[np.float64]:
    arm = np.array([[-0.33, -1.0], [0.33, -1.0], [0.33, -0.33]])
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    return np.concatenate([arm @ np.linalg.matrix_power(turn, quarter) for quarter in range(4)])


SHAPES = {
    "circle": _round(40),
    "square": _round(4, (1.2,), turn=-0.125),
    "triangle": _round(3, (1.1,)),
    "diamond": _round(4) * np.array([0.7, 1.1]),
    "star": _round(10, (1.1, 0.45)),
    "heart": _heart(),
    "cross": _cross(),
    "ring": _ring(),
    "crescent": _crescent(),
    "hexagon": _round(6),
}
"""Outlines, (n_points, 2) float64: right and down, about one unit from the centre."""
