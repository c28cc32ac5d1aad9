"""What the demo can be about: how its pictures come about, and what is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte.data.scenes import write_scenes
from crossbyte.demo.icons import Icon, read_icons, write_icons

__all__ = ["SUBJECTS", "Filtered", "Subject"]

UNSEEN = 24  # pictures kept away from everything that is learned and indexed


class Filtered(NamedTuple):
    """A text to ask with, and a filter."""

    text: str
    where: str


class Subject(NamedTuple):
    """One thing to show.

    Attributes
    ----------
    what : str
        What the pictures are, in the plural.
    source : str
        Where they and their texts come from.
    texts : tuple of str
        What is asked, in the words that people use.
    filtered : Filtered
    write : callable
        Of two folders, a number (None for all, or as many as usual) and a seed: writes the pictures to be
        indexed to the first, and those kept away from it to the second, each with its ``captions.csv``.
    title : callable
        What to call a document, by its payload.
    least : int
        The fewest pictures that can be measured.
    """

    what: str
    source: str
    texts: tuple[str, ...]
    filtered: Filtered
    write: Callable[[Path, Path, int | None, int], None]
    title: Callable[[Mapping[str, Any]], str]
    least: int


def _write_icons(folder: Path, unseen: Path, number: int | None, seed: int) -> None:
    """Keep some icons away, in all their styles: another drawing would give them away."""
    icons = read_icons(number, seed)
    away = _kept_away(icons, seed)
    write_icons(folder, [icon for icon in icons if icon.name not in away])
    kept = [icon for icon in icons if icon.name in away]
    write_icons(unseen, sorted(kept, key=lambda icon: away.index(icon.name)))


def _kept_away(icons: list[Icon], seed: int) -> list[str]:
    """Choose among those that are told by more than a brand's name, which nobody could guess."""
    names = sorted({icon.name for icon in icons if icon.terms})
    rows = np.random.default_rng([seed, 1]).permutation(len(names))[:UNSEEN]
    return [names[row] for row in rows.tolist()]


def _icon_title(payload: Mapping[str, Any]) -> str:
    return str(payload["label"])


SCENES = 1000


def _write_scenes(folder: Path, unseen: Path, number: int | None, seed: int) -> None:
    write_scenes(folder, number or SCENES, seed)
    write_scenes(unseen, UNSEEN, seed + 1_000_003)  # another seed: other scenes


def _scene_title(payload: Mapping[str, Any]) -> str:
    return f"{payload['count']} {payload['colour']} {payload['shape']}"


SUBJECTS = {
    "icons": Subject(
        what="icons",
        source="Font Awesome Free: drawn with its font, told by their names and search words",
        texts=("rainy weather", "hot drink", "pay with a card", "pet dog"),
        filtered=Filtered("music", "style = 'brands'"),
        write=_write_icons,
        title=_icon_title,
        least=100,
    ),
    "scenes": Subject(
        what="scenes",
        source="generated: coloured shapes, told in plain words",
        texts=("three red hearts", "one big yellow star on black", "green triangles on the left"),
        filtered=Filtered("small purple rings", "count = 4"),
        write=_write_scenes,
        title=_scene_title,
        least=100,
    ),
}
"""By the word that chooses them."""
