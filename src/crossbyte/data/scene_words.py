"""How people would say what is in a generated scene: synonyms, and forms of sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["CAPTIONS", "caption_of"]

COLOURS = {
    "red": ("red", "red", "crimson", "scarlet"),
    "orange": ("orange", "orange", "tangerine"),
    "yellow": ("yellow", "yellow", "golden"),
    "green": ("green", "green", "emerald"),
    "blue": ("blue", "blue", "azure"),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink", "pink", "rosy"),
    "brown": ("brown", "brown", "chestnut"),
}
SHAPES = {  # one, and several
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
SIZES = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium-sized", "middling", "mid-sized"),
    "large": ("large", "big", "huge"),
}
COUNTS = {
    1: ("a", "one", "a single"),
    2: ("two", "a pair of"),
    3: ("three", "a trio of"),
    4: ("four", "a group of four"),
}
PLACES = {
    "left": ("on the left", "at the left edge", "to the left"),
    "right": ("on the right", "at the right edge", "to the right"),
    "top": ("at the top", "up high", "along the upper edge"),
    "bottom": ("at the bottom", "down low", "along the lower edge"),
    "middle": ("in the middle", "in the centre", "at the centre of the picture"),
}
GROUNDS = ("on a {} background", "against {}", "on {} ground", "with {} behind")

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


def caption_of(rng: np.random.Generator, attributes: Mapping[str, Any], form: int) -> str:
    """Say what is in a scene, in one of the forms of :data:`CAPTIONS`."""
    parts = {
        "things": _things(rng, attributes),
        "be": "is" if attributes["count"] == 1 else "are",
        "place": _perhaps(rng, _pick(rng, PLACES[attributes["place"]])),
        "ground": _perhaps(rng, _pick(rng, GROUNDS).format(attributes["background"])),
    }
    return _tidy(CAPTIONS[form].format(**parts))


def _things(rng: np.random.Generator, attributes: Mapping[str, Any]) -> str:
    count = attributes["count"]
    number, size = _pick(rng, COUNTS[count]), _perhaps(rng, _pick(rng, SIZES[attributes["size"]]))
    one, several = _pick(rng, SHAPES[attributes["shape"]])
    colour, noun = _pick(rng, COLOURS[attributes["colour"]]), one if count == 1 else several
    words = " ".join(word for word in (size, colour, noun) if word)
    return f"{'an' if number == 'a' and words[0] in 'aeiou' else number} {words}"


def _perhaps(rng: np.random.Generator, words: str) -> str:
    return "" if rng.random() < LEFT_OUT else words


def _pick(rng: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _tidy(sentence: str) -> str:
    """Drop the commas and spaces of what was left out; begin with a capital letter."""
    parts = [" ".join(part.split()) for part in sentence.split(",")]
    told = ", ".join(part for part in parts if part)
    return told[0].upper() + told[1:]
