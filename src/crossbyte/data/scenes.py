"""Generate scenes whose right answer is known: coloured shapes on a ground, with captions in plain words.

A scene is one to four equal shapes of one colour and size in one part of the picture. Each caption says so in
words of its own: synonyms, another order, and now and then something left out, as people do.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from crossbyte.errors import InvalidInput

COLOUR_WORDS = {
    "red": ("red", "red", "crimson", "scarlet"),
    "orange": ("orange", "orange", "tangerine"),
    "yellow": ("yellow", "yellow", "golden"),
    "green": ("green", "green", "emerald"),
    "blue": ("blue", "blue", "azure"),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink", "pink", "rosy"),
    "brown": ("brown", "brown", "chestnut"),
}
SHAPE_WORDS = {  # one, and several
    "circle": (("circle", "circles"), ("disc", "discs"), ("dot", "dots")),
    "square": (("square", "squares"), ("box", "boxes")),
    "triangle": (("triangle", "triangles"), ("triangle", "triangles")),
    "diamond": (("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "star": (("star", "stars"), ("star", "stars")),
    "heart": (("heart", "hearts"), ("heart", "hearts")),
    "cross": (("cross", "crosses"), ("plus sign", "plus signs")),
    "ring": (("ring", "rings"), ("hoop", "hoops")),
    "crescent": (("crescent", "crescents"), ("half moon", "half moons")),
    "hexagon": (("hexagon", "hexagons"), ("honeycomb cell", "honeycomb cells")),
}
SIZE_WORDS = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium-sized", "middling", "mid-sized"),
    "large": ("large", "big", "huge"),
}
COUNT_WORDS = {
    1: ("a", "one", "a single"),
    2: ("two", "a pair of"),
    3: ("three", "a trio of"),
    4: ("four", "a group of four"),
}
PLACE_WORDS = {
    "left": ("on the left", "at the left edge", "to the left"),
    "right": ("on the right", "at the right edge", "to the right"),
    "top": ("at the top", "up high", "along the upper edge"),
    "bottom": ("at the bottom", "down low", "along the lower edge"),
    "middle": ("in the middle", "in the centre", "at the centre of the picture"),
}
GROUND_WORDS = ("on a {} background", "against {}", "on {} ground", "with {} behind")

CAPTIONS = (
    "{things} {place} {ground}",
    "{place}, {things} {ground}",
    "{ground}, {things} {place}",
    "there {be} {things} {ground}, {place}",
    "the picture shows {things} {place}, {ground}",
    "{things}, {ground}, {place}",
)
"""Forms of sentences; each scene is told in two of them."""

LEFT_OUT = 0.15  # how often the size, the place or the ground is not mentioned


def write_caption(rng: np.random.Generator, attributes: Mapping[str, Any], form: int) -> str:
    """Say what is in a scene, in one of the forms of :data:`CAPTIONS`."""
    parts = {
        "things": _describe_things(rng, attributes),
        "be": "is" if attributes["count"] == 1 else "are",
        "place": _maybe_pick(rng, _pick_one(rng, PLACE_WORDS[attributes["place"]])),
        "ground": _maybe_pick(rng, _pick_one(rng, GROUND_WORDS).format(attributes["background"])),
    }
    return _tidy_sentence(CAPTIONS[form].format(**parts))


def _describe_things(rng: np.random.Generator, attributes: Mapping[str, Any]) -> str:
    count = attributes["count"]
    number, size = (
        _pick_one(rng, COUNT_WORDS[count]),
        _maybe_pick(rng, _pick_one(rng, SIZE_WORDS[attributes["size"]])),
    )
    one, several = _pick_one(rng, SHAPE_WORDS[attributes["shape"]])
    colour, noun = _pick_one(rng, COLOUR_WORDS[attributes["colour"]]), one if count == 1 else several
    words = " ".join(word for word in (size, colour, noun) if word)
    return f"{'an' if number == 'a' and words[0] in 'aeiou' else number} {words}"


def _maybe_pick(rng: np.random.Generator, words: str) -> str:
    return "" if rng.random() < LEFT_OUT else words


def _pick_one(rng: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _tidy_sentence(sentence: str) -> str:
    """Drop the commas and spaces of what was left out; begin with a capital letter."""
    parts = [" ".join(part.split()) for part in sentence.split(",")]
    text = ", ".join(part for part in parts if part)
    return text[0].upper() + text[1:]


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
    """A picture, its captions, and what is in it.

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
    return [_draw_scene(np.random.default_rng([seed, row])) for row in range(n)]


def write_scenes(folder: str | os.PathLike[str], n: int, seed: int = 0) -> None:
    """Write scenes as a folder of pictures: PNG files, and ``captions.csv`` with a row for each caption.

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


def _draw_scene(rng: np.random.Generator) -> Scene:
    attributes = {
        "colour": _pick_one(rng, tuple(COLOURS)),
        "shape": _pick_one(rng, tuple(SHAPES)),
        "count": _pick_one(rng, COUNTS),
        "size": _pick_one(rng, tuple(SIZES)),
        "place": _pick_one(rng, tuple(PLACES)),
        "background": _pick_one(rng, tuple(GROUNDS)),
    }
    pixels = _draw_picture(rng, attributes)
    return Scene(pixels, tuple(write_caption(rng, attributes, form) for form in _pick_forms(rng)), attributes)


def _pick_forms(rng: np.random.Generator) -> list[int]:
    """Pick two different forms of sentence, so that the two captions differ."""
    first, step = int(rng.integers(len(CAPTIONS))), int(rng.integers(1, len(CAPTIONS)))
    return [first, (first + step) % len(CAPTIONS)]


# Drawing


def _draw_picture(rng: np.random.Generator, attributes: dict[str, Any]) -> NDArray[np.uint8]:
    picture = Image.new("RGB", (DRAWN, DRAWN), _pick_shade(rng, GROUNDS[attributes["background"]]))
    brush, colour = ImageDraw.Draw(picture), _pick_shade(rng, COLOURS[attributes["colour"]])
    radius = DRAWN / SIDE * SIZES[attributes["size"]]
    outline = SHAPES[attributes["shape"]]
    for centre in _place_centres(rng, attributes["place"], attributes["count"], radius):
        brush.polygon([tuple(point) for point in (centre + radius * outline).tolist()], fill=colour)
    return np.asarray(picture.reduce(2))


def _pick_shade(rng: np.random.Generator, colour: tuple[int, int, int]) -> tuple[int, ...]:
    """Pick a colour a little lighter or darker than its name."""
    return tuple(np.clip(np.array(colour) + rng.integers(-12, 13, size=3), 0, 255).tolist())


def _place_centres(rng: np.random.Generator, place: str, count: int, radius: float) -> NDArray[np.float64]:
    """Place the shapes: a column at the sides, a row above and below, around the middle otherwise."""
    steps = np.arange(count) - (count - 1) / 2
    if place == "middle":
        angles = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(count) / count
        around = np.stack([np.cos(angles), np.sin(angles)], axis=1) * (1.5 if count > 1 else 0.0)
    else:
        along = np.array([0.0, 2.05] if place in ("left", "right") else [2.05, 0.0])
        around = steps[:, None] * along
    return DRAWN * np.array(PLACES[place]) + radius * around + rng.uniform(-4, 4, size=2)


def _points_around(
    n_points: int, radii: tuple[float, ...] = (1.0,), turn: float = -0.25
) -> NDArray[np.float64]:
    """Place points around the centre, the radii taken in turn; the first one straight up."""
    angles = 2 * np.pi * (np.arange(n_points) / n_points + turn)
    lengths = np.resize(radii, n_points)
    return np.stack([np.cos(angles) * lengths, np.sin(angles) * lengths], axis=1)


def _ring() -> NDArray[np.float64]:
    outer = np.concatenate([_points_around(40), _points_around(40)[:1]])
    return np.concatenate([outer, 0.6 * outer[::-1]])


def _crescent() -> NDArray[np.float64]:
    """Outline a disc without another one to its right."""
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
    "circle": _points_around(40),
    "square": _points_around(4, (1.2,), turn=-0.125),
    "triangle": _points_around(3, (1.1,)),
    "diamond": _points_around(4) * np.array([0.7, 1.1]),
    "star": _points_around(10, (1.1, 0.45)),
    "heart": _heart(),
    "cross": _cross(),
    "ring": _ring(),
    "crescent": _crescent(),
    "hexagon": _points_around(6),
}
"""Outlines, (n_points, 2) float64: right and down, about one unit from the centre."""
