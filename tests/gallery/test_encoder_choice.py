"""Which encoders a gallery gets: those that are named, or the best on this machine; and again when opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crossbyte.cli import app
from crossbyte.data.captions.layout import read_raw
from crossbyte.data.captions.raw_documents import RawDocuments
from crossbyte.data.scenes import write_scenes
from crossbyte.encoders import catalogue, download_network, static
from crossbyte.errors import NoEncoder, WrongEncoder
from crossbyte.gallery.build import build_gallery
from crossbyte.gallery.gallery import Gallery
from support.hub import Hub, publish_networks, serve_hub
from support.raw_samples import QUICK
from support.token_networks import WORDS, make_table, write_clip_folder, write_text_network, write_tokenizer

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with photographs, which is the current one."""
    write_scenes(tmp_path / "photos", 12)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hub(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with small networks, which are all that the catalogue knows."""
    (here / "networks").mkdir()
    with serve_hub() as hub:
        monkeypatch.setattr(catalogue, "NETWORKS", publish_networks(hub, here / "networks"))
        monkeypatch.setenv(catalogue.HUB_VARIABLE, hub.address)
        monkeypatch.setenv(catalogue.CACHE_VARIABLE, str(here / "cache"))
        yield hub


def read_photos(here: Path, caption: str | None = None) -> RawDocuments:
    """Read the photographs, all with the same caption where one is given."""
    documents = read_raw(here / "photos")
    if caption is not None:
        documents.texts[:] = [[f"{caption} {row}"] for row in range(len(documents))]
    return documents


def fit(capsys: Captured, *options: str) -> dict[str, dict[str, str]]:
    """Run ``fit`` on the photographs, and read what it says of its encoders."""
    code = app.run(["fit", "photos", "--quiet", "--json", "--param", "max_iter=2", "--bits", "16", *options])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    said = json.loads(captured.out)
    return {name: said[name] for name in ("encoders", "encoder_reasons")}


def test_texts_are_static_vectors_where_these_know_the_words(here: Path) -> None:
    built = build_gallery(read_photos(here), here / "a.cb", **QUICK)
    states = built.model.encoder_states_
    assert (states["text"].kind, states["image"].kind) == ("static", "builtin-images")
    assert built.reasons["text"].startswith("static sentence vectors")
    assert "crossbyte encoders download" in built.reasons["image"]
    with Gallery.open(here / "a.cb") as gallery:  # restored from the model alone
        assert len(gallery.search(text="a red star", k=3)) == 3
        assert gallery.encode_texts(["a star"]).shape == (1, 256)


def test_other_scripts_are_hashed_words(here: Path) -> None:
    built = build_gallery(read_photos(here, "красная звезда на синем фоне"), here / "a.cb", **QUICK)
    assert built.model.encoder_states_["text"].kind == "builtin-texts"
    assert "do not know the words of these texts" in built.reasons["text"]


def test_hashed_words_where_static_vectors_are_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "find_files", lambda: None)
    built = build_gallery(read_photos(here), here / "a.cb", **QUICK)
    assert built.model.encoder_states_["text"].kind == "builtin-texts"
    assert "pip install 'crossbyte[photo]'" in built.reasons["text"]


def test_an_index_of_static_vectors_says_what_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_gallery(read_photos(here), here / "a.cb", **QUICK)
    monkeypatch.setattr(static, "find_files", lambda: None)
    with Gallery.open(here / "a.cb") as gallery, pytest.raises(Exception, match="crossbyte\\[photo\\]"):
        gallery.search(text="a red star")


def test_named_encoders_have_no_reasons(here: Path, capsys: Captured) -> None:
    assert fit(capsys, "--encoder", "builtin")["encoder_reasons"] == {}


def test_a_downloaded_network_is_chosen_for_pictures(hub: Hub, here: Path, capsys: Captured) -> None:
    download_network("tiny-eyes")
    found = fit(capsys)
    assert found["encoders"]["image"] == "tiny-eyes"
    assert "tiny-eyes, the best network for pictures on this machine" in found["encoder_reasons"]["image"]
    n_asked = len(hub.asked)
    assert app.run(["search", "photos.cb", "--image", "photos/scene-00001.png", "--target", "image"]) == 0
    assert "scene-00001.png" in capsys.readouterr().out and len(hub.asked) == n_asked
    shutil.rmtree(here / "cache")
    with Gallery.open("photos.cb") as gallery, pytest.raises(NoEncoder, match="encoders download tiny-eyes"):
        gallery.search(image="photos/scene-00001.png")


def test_without_onnx_runtime_a_downloaded_network_is_not_chosen(
    hub: Hub, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download_network("tiny-eyes")
    monkeypatch.setattr("crossbyte.encoders.registry.is_installed", lambda name: False)
    built = build_gallery(read_photos(here), here / "a.cb", **QUICK)
    assert built.model.encoder_states_["image"].kind == "builtin-images"
    assert "pip install 'crossbyte[onnx]'" in built.reasons["image"]


def test_networks_by_name_for_each_side(hub: Hub, capsys: Captured) -> None:
    download_network("tiny-eyes")
    download_network("tiny-ears")
    found = fit(capsys, "--encoder", "tiny-eyes", "--encoder", "tiny-ears")
    assert found == {"encoders": {"image": "tiny-eyes", "text": "tiny-ears"}, "encoder_reasons": {}}
    assert app.run(["search", "photos.cb", "--text", "a red star", "-k", "2"]) == 0


def test_a_name_that_was_not_downloaded_is_told_before_any_work(
    hub: Hub, here: Path, capsys: Captured
) -> None:
    assert app.run(["fit", "photos", "--encoder", "tiny-clip"]) == 2
    assert "crossbyte encoders download tiny-clip" in capsys.readouterr().err
    assert hub.asked == [] and not (here / "photos.cb.files").exists()


def test_two_encoders_of_one_side_are_refused(hub: Hub, capsys: Captured) -> None:
    download_network("tiny-ears")
    assert app.run(["fit", "photos", "--encoder", "tiny-ears", "--text-encoder", "static"]) == 2
    said = capsys.readouterr().err
    assert "expected one encoder of texts, got 'static' and 'tiny-ears'" in said


def test_a_folder_beside_that_has_a_networks_name_is_not_taken_for_it(hub: Hub, here: Path) -> None:
    download_network("tiny-clip")
    other = write_clip_folder(here / "tiny-clip", rescale_factor=1 / 128)
    sides = {"image_encoder": "tiny-clip", "text_encoder": "tiny-clip"}
    build_gallery(read_photos(here), here / "a.cb", **QUICK, **sides)
    with Gallery.open(here / "a.cb") as gallery:
        assert gallery.encode_texts(["a red dog"]).shape == (1, 6)
    with Gallery.open(here / "a.cb", text_encoder=f"clip:{other}") as gallery, pytest.raises(WrongEncoder):
        gallery.encode_texts(["a red dog"])


def test_a_clip_folder_serves_both_sides_and_is_found_again(here: Path, capsys: Captured) -> None:
    folder = write_clip_folder(here / "clip")
    assert fit(capsys, "--encoder", "clip")["encoders"] == {"image": "clip", "text": "clip"}
    with Gallery.open("photos.cb") as gallery:
        assert gallery.encode_texts(["a red dog"]).shape == (1, 6)
        assert len(gallery.search(image="photos/scene-00001.png", k=2)) == 2
    folder.rename(here / "moved")
    with Gallery.open("photos.cb") as gallery, pytest.raises(NoEncoder, match="--text-encoder clip:FOLDER"):
        gallery.search(text="a red dog")
    with Gallery.open("photos.cb", text_encoder=str(here / "moved")) as gallery:
        assert len(gallery.search(text="a red dog", k=2)) == 2


def test_an_onnx_file_of_texts_is_known_by_its_inputs(hub: Hub, here: Path, capsys: Captured) -> None:
    path = here / "networks" / "ears" / "model.onnx"
    assert fit(capsys, "--encoder", str(path))["encoders"]["text"] == "model"
    with Gallery.open("photos.cb") as gallery:
        first = gallery.encode_texts(["a red dog"])
    write_text_network(path, make_table(seed=5))
    with Gallery.open("photos.cb") as gallery, pytest.raises(WrongEncoder):
        gallery.encode_texts(["a red dog"])
    assert np.isfinite(first).all()


@pytest.mark.parametrize("missing", ["tokenizer.json", "preprocessor_config.json", "onnx/text_model.onnx"])
def test_a_clip_folder_that_is_not_whole(here: Path, capsys: Captured, missing: str) -> None:
    folder = write_clip_folder(here / "clip")
    (folder / missing).unlink()
    assert app.run(["fit", "photos", "--encoder", "clip:clip"]) == 2
    assert Path(missing).name in capsys.readouterr().err
    assert not (here / "photos.cb").exists()


@pytest.mark.parametrize("damage", ["network", "tokenizer", "other tokenizer"])
def test_a_damaged_network_is_told_before_any_picture_is_read(
    hub: Hub, here: Path, capsys: Captured, damage: str
) -> None:
    path = here / "networks" / "ears" / "model.onnx"
    tokenizer = path.with_name("tokenizer.json")
    if damage == "network":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "tokenizer":
        tokenizer.write_text("{}")
    else:
        write_tokenizer(tokenizer, [*WORDS, *(f"more{number}" for number in range(50))])
    assert app.run(["fit", "photos", "--text-encoder", str(path), "--quiet"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 2
    said = {
        "network": "cannot open it",
        "tokenizer": "expected a tokenizer.json",
        "other tokenizer": "belong",
    }
    assert said[damage] in captured.err
    assert not (here / "photos.cb").exists() and not (here / "photos.cb.files").exists()
