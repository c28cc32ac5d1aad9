"""Galleries of one network for pictures and texts: no captions are needed, and some are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte.cli import app
from crossbyte.data.captions.layout import read_raw
from crossbyte.data.scenes import write_scenes
from crossbyte.errors import InvalidInput
from crossbyte.gallery.build import add_documents, build_gallery
from crossbyte.gallery.gallery import Gallery, NewDocument
from support.token_networks import write_clip_folder

Captured = pytest.CaptureFixture[str]
N = 24


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with pictures without captions and a CLIP export."""
    write_scenes(tmp_path / "scenes", N)
    (tmp_path / "photos").mkdir()
    documents = read_raw(tmp_path / "scenes")
    pictures = [path for path in documents.pictures if path is not None]
    for row, path in enumerate(pictures):
        (tmp_path / "photos" / f"{row}{path.suffix}").write_bytes(path.read_bytes())
    write_clip_folder(tmp_path / "clip")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def caption(here: Path, rows: range) -> None:
    """Write captions beside some of the pictures."""
    for row in rows:
        (here / "photos" / f"{row}.txt").write_text("red dog on grass" if row % 2 else "blue cat sits")


def fit(capsys: Captured, *more: str, code: int = 0) -> Any:
    arguments = ["fit", "photos", "--encoder", "clip", "--bits", "16", "--curve", "", "-q", *more]
    assert app.run(arguments) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_pictures_alone_are_enough(here: Path, capsys: Captured) -> None:
    said = fit(capsys)
    assert "clip puts pictures and texts into one space; no captions were needed" in said
    assert "Quality was not measured" in said
    with Gallery.open("photos.cb") as gallery:
        assert gallery.index.model.mapping_ == "joint" and len(gallery) == N
        hits = gallery.search(text="red dog", k=5)
        assert len(hits.ids) == 5
        rows = gallery.encode_texts(["red dog"])
        pictures = sorted(map(str, gallery.index.ids()))
        images = gallery.encode_pictures([gallery.read_picture(Path("photos") / name) for name in pictures])
        nearest = pictures[int(np.argmax(images @ rows[0] / np.linalg.norm(images, axis=1)))]
        assert nearest in hits.ids
    with Gallery.open("photos.cb", "rw") as gallery:
        gallery.add([NewDocument("words", text="blue cat")])
        assert gallery.search(text="blue cat", k=10, target="text").ids == ["words"]
        write_scenes(here / "more", 3, 5)
        assert add_documents(gallery, read_raw(here / "more")).n_added == 3


@pytest.mark.parametrize("n", [1, 8, N])
def test_captions_of_some_or_all(here: Path, capsys: Captured, n: int) -> None:
    caption(here, range(n))
    document = json.loads(fit(capsys, "--json"))
    assert (document["mapping"], document["pairs"]) == ("joint", n)
    assert document["documents"] == N
    with Gallery.open("photos.cb") as gallery:
        settings = gallery.index.model.fitted_.settings
        assert (settings.paired, settings.n_pairs) == ((True, 0) if n == N else (False, n * (n > 1)))
        assert len(gallery.search(text="blue cat", k=3).ids) == 3


def test_another_mapping_may_be_named(here: Path, capsys: Captured) -> None:
    assert "give captions to some of them" in fit(capsys, "--mapping", "cca", code=2)
    assert "network whose pictures and texts share a space (CLIP)" in fit(capsys, "--mapping", "cca", code=2)
    assert json.loads(fit(capsys, "--mapping", "joint", "--json"))["mapping"] == "joint"


def test_encoders_of_two_spaces_keep_theirs(here: Path, capsys: Captured) -> None:
    caption(here, range(N))
    options = ["--image-encoder", "builtin", "--text-encoder", "clip", "--param", "max_iter=2", "--json"]
    assert app.run(["fit", "photos", "--bits", "16", "--curve", "", "-q", *options]) == 0
    assert json.loads(capsys.readouterr().out)["mapping"] == "cca"


def test_one_picture_is_too_few(here: Path) -> None:
    for path in (here / "photos").iterdir():
        if path.stem != "0":
            path.unlink()
    with pytest.raises(InvalidInput, match="expected at least 2 pictures to learn from, got 1"):
        build_gallery(read_raw("photos"), "one.cb", image_encoder="clip", text_encoder="clip")


def test_features_of_a_shared_space(here: Path, capsys: Captured) -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((60, 8))
    sides = {name: latent + 0.3 * rng.standard_normal((60, 8)) for name in ("images", "texts")}
    np.savez("pairs.npz", **sides)
    arguments = ["fit", "pairs.npz", "-o", "model.cbm", "--mapping", "joint", "--curve", "", "-q", "--json"]
    assert app.run([*arguments, "--index", "index.cb"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["mapping"], document["components"]) == ("joint", 8)
    assert document["report"]["mapping"] == "joint"
