"""CLIP exports: a folder with two networks, a tokenizer, and the preparation of pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossbyte.encoders import make_encoder, restore_encoder, share_space
from crossbyte.encoders.base import EncoderState
from crossbyte.encoders.clip_folder import read_preprocessor
from crossbyte.encoders.registry import encoder_kind
from crossbyte.errors import DataFileError, InvalidInput, NoEncoder, WrongEncoder
from crossbyte.gallery.companion import CompanionFiles
from support.token_networks import (
    PREPROCESSOR,
    make_table,
    write_clip_folder,
    write_text_network,
    write_vision_network,
)

RNG = np.random.default_rng(8)
PICTURES = [RNG.integers(0, 256, (*size, 3), dtype=np.uint8) for size in [(8, 8), (20, 30), (40, 9)]]
TEXTS = ["a red dog", "blue cat sits on grass", ""]


def made(spec: Path | str, side: str) -> Any:
    return make_encoder(str(spec), side, [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_clip_folder(tmp_path / "small-clip")


def test_both_sides_have_one_width_and_length_one(folder: Path) -> None:
    images, texts = (made(folder, side) for side in ("image", "text"))
    rows = images.encode(PICTURES), texts.encode(TEXTS)
    assert rows[0].shape == (3, 6) and rows[1].shape == (3, 6)
    assert np.allclose(np.linalg.norm(rows[0], axis=1), 1) and np.allclose(
        np.linalg.norm(rows[1][:2], axis=1), 1
    )
    assert not rows[1][2].any()
    assert share_space(images.state, texts.state)
    assert images.state.name == "small-clip" and str(folder.parent) not in str(images.state)


def test_pictures_are_prepared_as_the_folder_says(folder: Path) -> None:
    matrix = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    resized = Image.fromarray(PICTURES[1]).resize((12, 8), Image.Resampling.BICUBIC).crop((2, 0, 10, 8))
    levels = (np.asarray(resized) / 255 - np.array([0.5, 0.4, 0.3])) / np.array([0.2, 0.25, 0.5])
    expected = levels.mean(axis=(0, 1)) @ matrix
    found = made(folder, "image").encode([PICTURES[1]])[0]
    assert np.allclose(found, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("form", ["clip:{}", "{}"])
def test_the_folder_and_its_prefix_are_specifications(folder: Path, form: str) -> None:
    spec = form.format(folder)
    assert encoder_kind(spec) == "clip"
    assert made(spec, "text").state == made(folder, "text").state


def test_a_folder_of_something_else_is_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no encoder"):
        made(tmp_path, "image")
    with pytest.raises(
        FileNotFoundError, match="expected a CLIP export with vision_model.onnx and text_model"
    ):
        made(f"clip:{tmp_path}", "image")
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        made(f"clip:{tmp_path / 'absent'}", "image")


@pytest.mark.parametrize("name", ["tokenizer.json", "preprocessor_config.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name}: there is no such file"):
        made(folder, "image")


def test_precisions(tmp_path: Path) -> None:
    folder = write_clip_folder(tmp_path / "q", variant="_quantized", inner=".")
    quantized = made(folder, "text").state
    write_vision_network(folder / "vision_model.onnx", seed=9)  # without its other half
    assert made(folder, "text").state == quantized
    write_text_network(
        folder / "text_model.onnx", make_table(seed=9), pooled="text_embeds", inputs=["input_ids"]
    )
    assert made(folder, "text").state != quantized


def test_the_state_makes_each_side_again(folder: Path, tmp_path: Path) -> None:
    for side, items in (("image", PICTURES), ("text", TEXTS)):
        encoder = made(folder, side)
        for given in (str(folder), f"clip:{folder}"):
            again: Any = restore_encoder(encoder.state, side, given)
            assert again.state == encoder.state
            assert np.array_equal(again.encode(items), encoder.encode(items))
        with pytest.raises(NoEncoder, match=f"--{side}-encoder clip:FOLDER"):
            restore_encoder(encoder.state, side)
        with pytest.raises(WrongEncoder, match="of the other side"):
            restore_encoder(encoder.state, "text" if side == "image" else "image", str(folder))
        other = write_clip_folder(tmp_path / f"other-{side}", image_mean=[0.1, 0.1, 0.1])
        with pytest.raises(WrongEncoder, match="holds other files"):
            restore_encoder(encoder.state, side, str(other))


def test_long_texts_are_cut_at_the_context(folder: Path) -> None:
    table = make_table()
    row = made(folder, "text").encode(["dog " * 200])[0]
    expected = table[[2, *[5] * 75, 3]].mean(axis=0)
    assert np.allclose(row, expected / np.linalg.norm(expected), atol=1e-5)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 5}))
    expected = table[[2, 5, 5, 5, 3]].mean(axis=0)
    row = made(folder, "text").encode(["dog " * 200])[0]
    assert np.allclose(row, expected / np.linalg.norm(expected), atol=1e-5)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 10**30}))
    assert made(folder, "text").state.settings["description"]["max_tokens"] == 77


def test_spellings_of_the_preparation(tmp_path: Path) -> None:
    def read(**changes: Any) -> Any:
        path = tmp_path / "preprocessor_config.json"
        path.write_text(
            json.dumps({key: value for key, value in (PREPROCESSOR | changes).items() if value != "-"})
        )
        return read_preprocessor(path)

    usual = read()
    assert (usual["size"], usual["fit"], usual["short_side"]) == ([8, 8], "crop", 8)
    assert read(size=8, crop_size=8) == usual | {"size": 8}
    assert read(size={"height": 8, "width": 6}, crop_size="-", do_center_crop=False) == {
        **{key: usual[key] for key in ("scaling", "resampling")},
        "size": [8, 6],
        "fit": "squash",
    }
    assert read(resample=2)["resampling"] == "bilinear"
    assert read(do_normalize=False)["scaling"] == {"mean": 0.0, "std": 1.0, "range": 1.0}
    assert read(do_rescale=False)["scaling"]["range"] == 255.0
    for changes, message in (
        ({"resample": 17}, "resample: expected one of"),
        ({"size": "-"}, "expected size"),
        ({"size": {"longest_edge": 3}}, "expected shortest_edge"),
        ({"crop_size": "-"}, "expected crop_size"),
        ({"do_resize": False}, "expected do_resize"),
        ({"image_mean": "-"}, "expected image_mean"),
        ({"rescale_factor": "a"}, "rescale_factor"),
        ({"size": {"height": 8, "width": 8}, "crop_size": 6}, "expected no crop"),
    ):
        with pytest.raises(DataFileError, match=message):
            read(**changes)


def test_only_two_sides_of_one_network_share_a_space(folder: Path, tmp_path: Path) -> None:
    images, texts = (made(folder, side).state for side in ("image", "text"))
    other = made(write_clip_folder(tmp_path / "b", image_mean=[0.1, 0.1, 0.1]), "text").state
    assert not share_space(images, other)
    assert not share_space(images, images) and not share_space(texts, images)
    assert not share_space(images, make_encoder("static", "text", []).state)

    def open_clip(side: str, weights: str, width: int = 4) -> EncoderState:
        return EncoderState("open-clip", "ViT", width, side, {"side": side, "weights": weights}, {})

    assert share_space(open_clip("image", "a"), open_clip("text", "a"))
    assert not share_space(open_clip("image", "a"), open_clip("text", "b"))
    assert not share_space(open_clip("image", "a"), open_clip("text", "a", 5))


def test_a_gallery_remembers_where_the_folder_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CompanionFiles.of(tmp_path / "photos.cb")
    monkeypatch.chdir(folder.parent)
    specs = {"image": "small-clip", "text": "clip:small-clip"}
    files.keep_local_encoders(specs)
    assert files.local_encoders() == {"image": f"clip:{folder}", "text": f"clip:{folder}"}
    files.keep_local_encoders({"image": "net.onnx", "text": "os:system"})
    assert files.local_encoders() == {"image": str(folder.parent / "net.onnx")}
