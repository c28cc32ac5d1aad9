"""Generated scenes: the same for the same seed, told truly, and written as people keep pictures."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossbyte.data import scenes
from crossbyte.data.scenes import COLOURS, GROUNDS, SHAPES, make_scenes, write_scenes
from crossbyte.errors import InvalidInput

SCENES = make_scenes(200, seed=1)


def test_scenes_are_a_function_of_their_seed_and_the_first_are_the_same_for_every_number() -> None:
    again, other = make_scenes(20, seed=1), make_scenes(20, seed=2)
    assert all((one.pixels == two.pixels).all() for one, two in zip(SCENES, again, strict=False))
    assert [scene.captions for scene in SCENES[:20]] == [scene.captions for scene in again]
    assert [scene.captions for scene in SCENES[:20]] != [scene.captions for scene in other]


def test_pictures_are_rgb_with_the_ground_in_the_corners_and_the_colour_inside() -> None:
    for pixels, _, attributes in SCENES:
        assert pixels.shape == (128, 128, 3) and pixels.dtype == np.uint8
        assert np.abs(pixels[0, 0] - np.array(GROUNDS[attributes["background"]])).max() <= 12
        nearness = np.abs(pixels - np.array(COLOURS[attributes["colour"]])).max(axis=2) <= 12
        assert nearness.any(), attributes


def test_more_and_larger_shapes_cover_more() -> None:
    def covered(**wanted: object) -> float:
        chosen = [each for each in SCENES if wanted.items() <= each.attributes.items()]
        ground = [np.abs(each.pixels.astype(int) - each.pixels[0, 0]).max(axis=2) > 8 for each in chosen]
        return float(np.mean(ground))

    assert covered(count=1) < covered(count=2) < covered(count=4)
    assert covered(size="small") < covered(size="medium") < covered(size="large")


def test_shapes_are_where_the_attributes_say() -> None:
    for pixels, _, attributes in SCENES:
        rows, columns = np.nonzero(np.abs(pixels.astype(int) - pixels[0, 0]).max(axis=2) > 24)
        centre = {"left": columns.mean(), "right": 127 - columns.mean(), "top": rows.mean()}
        centre["bottom"] = 127 - rows.mean()
        if attributes["place"] in centre:
            assert centre[attributes["place"]] < 50, attributes


def test_captions_say_colour_shape_and_number_in_words_of_their_own() -> None:
    for _, captions, attributes in SCENES:
        assert len(captions) == 2 and captions[0] != captions[1]
        for caption in map(str.lower, captions):
            assert any(word in caption for word in scenes.COLOUR_WORDS[attributes["colour"]]), caption
            assert any(one in caption for one, _ in _singulars(attributes["shape"])), caption
            assert "  " not in caption and not caption.startswith(","), caption
    assert len({caption for scene in SCENES for caption in scene.captions}) > 390


def _singulars(shape: str) -> list[tuple[str, str]]:
    """Words for a shape; the plurals begin with the singular."""
    return [(one, several) for one, several in scenes.SHAPE_WORDS[shape]]


def test_every_attribute_occurs() -> None:
    assert {scene.attributes["shape"] for scene in SCENES} == set(SHAPES) == set(scenes.SHAPE_WORDS)
    assert {scene.attributes["colour"] for scene in SCENES} == set(COLOURS) == set(scenes.COLOUR_WORDS)


def test_a_folder_has_every_picture_and_a_row_for_every_caption(tmp_path: Path) -> None:
    write_scenes(tmp_path / "new" / "folder", 5, seed=1)
    with (tmp_path / "new" / "folder" / "captions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["caption"] for row in rows] == [caption for each in SCENES[:5] for caption in each.captions]
    assert set(rows[0]) == {"image", "caption", *SCENES[0].attributes}
    for number, scene in enumerate(SCENES[:5]):
        with Image.open(tmp_path / "new" / "folder" / rows[2 * number]["image"]) as picture:
            assert (np.asarray(picture) == scene.pixels).all()


def test_no_scenes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1, got 0"):
        make_scenes(0)
