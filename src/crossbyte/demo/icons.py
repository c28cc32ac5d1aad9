"""Write Font Awesome Free as a folder of pictures with captions: each icon drawn with its font, in its words.

Pictures, names, search terms and categories are those of the package ``fontawesomefree``; nothing is fetched.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from crossbyte.extras import import_extra

SIDE = 128  # pixels of a picture
DRAWN = 104  # the most that a drawing takes of them, in either direction
FONTS = {"solid": "fa-solid-900.ttf", "regular": "fa-regular-400.ttf", "brands": "fa-brands-400.ttf"}
COLUMNS = ("image", "caption", "label", "terms", "style", "category", "categories", "since")


class Icon(NamedTuple):
    """One drawing of an icon.

    Attributes
    ----------
    name, style : str
        Together they name it; an icon may be drawn in two styles, which share all words.
    letter : str
        The character that the font of its style draws it with.
    label : str
        Its name for people.
    terms : tuple of str
        Words that people might search for it by; many brands have none.
    categories : tuple of str
        The smallest, so the most telling, first.
    since : int
        The major version of Font Awesome that brought it.
    """

    name: str
    style: str
    letter: str
    label: str
    terms: tuple[str, ...]
    categories: tuple[str, ...]
    since: int

    @property
    def file(self) -> str:
        """Path of its drawing, relative to the folder."""
        return f"{self.style}/{self.name}.png"

    @property
    def caption(self) -> str:
        """Its label and its terms, as one text."""
        return f"{self.label}: {', '.join(self.terms)}" if self.terms else self.label


def read_icons(number: int | None = None, seed: int = 0) -> list[Icon]:
    """Read the icons, in the order of their names; both drawings where there are two.

    Parameters
    ----------
    number : int, optional
        The number of names to take, chosen by the seed; all if not given.
    seed : int

    Raises
    ------
    MissingExtra
        If the package is not installed, with the command that installs it.
    """
    root = _find_package()
    records = json.loads((root / "metadata" / "icons.json").read_text(encoding="utf-8"))
    categories = _parse_categories((root / "metadata" / "categories.yml").read_text(encoding="utf-8"))
    names = _choose_names(sorted(records), number, seed)
    return [icon for name in names for icon in _list_drawings(name, records[name], categories[name])]


def write_icons(folder: Path, icons: Sequence[Icon]) -> None:
    """Write icons as a folder of pictures: PNG files, and ``captions.csv`` with a row for each."""
    fonts = {style: _load_font(style, DRAWN) for style in FONTS}
    for style in {icon.style for icon in icons}:
        (folder / style).mkdir(parents=True, exist_ok=True)
    for icon in icons:
        _draw_icon(icon, fonts[icon.style]).save(folder / icon.file, compress_level=1)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(map(_make_row, icons))


def _make_row(icon: Icon) -> list[Any]:
    words = [icon.file, icon.caption, icon.label, ", ".join(icon.terms), icon.style]
    return [*words, icon.categories[0] if icon.categories else "", "; ".join(icon.categories), icon.since]


# Reading


def _find_package() -> Path:
    package = import_extra("fontawesomefree", "the demo draws")
    return Path(package.__file__).parent / "static" / "fontawesomefree"


def _choose_names(names: list[str], number: int | None, seed: int) -> list[str]:
    if number is None or number >= len(names):
        return names
    rows = np.random.default_rng(seed).choice(len(names), number, replace=False)
    return [names[row] for row in sorted(rows.tolist())]


def _list_drawings(name: str, record: dict[str, Any], categories: Iterable[str]) -> list[Icon]:
    """List the drawings of an icon, one in each of its free styles."""
    since = int(record["changes"][0].partition(".")[0])
    terms = tuple(str(term) for term in record["search"]["terms"])
    words = record["label"], terms, tuple(categories), since
    return [Icon(name, style, chr(int(record["unicode"], 16)), *words) for style in record["free"]]


def _parse_categories(text: str) -> defaultdict[str, list[str]]:
    """Parse which categories each icon is in, the smallest first, without a library for YAML.

    The file is a list of ``key:``, indented ``icons:`` with ``- name`` below it, and ``label: words``.
    """
    found, members = [], list[str]()
    for line in text.splitlines():
        if item := re.fullmatch(r" +- '?(.*?)'?", line):
            members.append(item[1])
        elif label := re.fullmatch(r" +label: '?(.*?)'?", line):
            found.append((label[1], members))
            members = []
    categories = defaultdict(list)
    for name, icons in sorted(found, key=lambda each: len(each[1])):
        for icon in icons:
            categories[icon].append(name)
    return categories


# Drawing


def _load_font(style: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_find_package() / "webfonts" / FONTS[style]), size)


def _draw_icon(icon: Icon, font: ImageFont.FreeTypeFont) -> Image.Image:
    """Draw an icon in black on white, in the middle; wide ones smaller, so that all of it is there."""
    canvas = Image.new("L", (3 * SIDE, 2 * SIDE), 0)
    ImageDraw.Draw(canvas).text((SIDE // 2, SIDE // 2), icon.letter, font=font, fill=255)
    ink = canvas.crop(canvas.getbbox())
    longest = max(ink.size)
    if longest > DRAWN:
        return _draw_icon(icon, font.font_variant(size=int(font.size * DRAWN / longest)))
    picture = Image.new("L", (SIDE, SIDE), 255)
    picture.paste(0, ((SIDE - ink.width) // 2, (SIDE - ink.height) // 2), mask=ink)
    return picture
