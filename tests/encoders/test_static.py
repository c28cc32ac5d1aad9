"""Static sentence vectors, and the choice of the text encoder for those who name none."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from crossbyte.encoders import default_text_encoder, make_encoder, restore_encoder, static
from crossbyte.errors import DataFileError, InvalidInput, MissingExtra, WrongEncoder

CAPTIONS = [
    "A dog runs on the beach.",
    "Two children play in the snow",
    "a man rides a red bicycle",
    "A puppy is running along the sea shore .",
    "Kids are playing outside in winter",
    "somebody cycles down a street",
]
SCRIPTS = {
    "English": "A dog runs on the beach with a red ball",
    "German": "Ein Hund läuft am Strand und spielt mit einem roten Ball",
    "French": "Un chien court sur la plage et joue avec une balle rouge",
}
UNKNOWN_SCRIPTS = {
    "Chinese": "两只狗在草地上奔跑",
    "Arabic": "كلب يجري في الحديقة",
    "Thai": "สุนัขวิ่งในสวน",
    "Russian": "собака бежит по пляжу и играет с мячом",
    "Russian in long pieces": "группа людей стоит перед старым зданием",
    "Ukrainian": "дві дівчинки граються на пляжі",
    "Japanese": "犬が公園を走る",
    "Greek": "ένας σκύλος τρέχει στην παραλία",
    "emoji": "🐶 ❤️ 🌊",
    "nothing": "... !!",
}


@pytest.fixture(scope="module")
def encoder() -> Any:
    return make_encoder("static", "text", [])


def test_texts_of_one_meaning_are_near(encoder: Any) -> None:
    rows = encoder.encode(CAPTIONS)
    assert rows.shape == (6, 256) and rows.dtype == np.float32
    centred = rows - rows.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    assert (centred[:3] @ centred[3:].T).argmax(axis=1).tolist() == [0, 1, 2]


def test_a_row_is_the_mean_of_the_rows_of_its_pieces_at_unit_length(encoder: Any) -> None:
    files = static.find_files()
    assert files is not None
    vectors = static.load_vectors(files)
    for text in CAPTIONS:
        pieces = vectors.tokenizer.encode(text, add_special_tokens=False).ids
        expected = vectors.table[pieces].astype(np.float64).mean(axis=0)
        assert np.allclose(encoder.encode([text])[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_a_row_depends_on_its_text_alone(encoder: Any) -> None:
    together = encoder.encode(CAPTIONS)
    assert np.array_equal(together, np.concatenate([encoder.encode([text]) for text in CAPTIONS]))
    with ThreadPoolExecutor(4) as threads:
        assert all(np.array_equal(rows, together) for rows in threads.map(encoder.encode, [CAPTIONS] * 8))


def test_strange_texts_have_finite_rows(encoder: Any) -> None:
    rows = encoder.encode(["", " \n", "...", "<s>", "\ud800 dog", "x" * 100_000, "🐶", "\x00 a"])
    assert np.isfinite(rows).all()
    assert [bool(row.any()) for row in rows] == [False, False, False, True, True, True, True, True]
    long = encoder.encode(["dog " * 50_000, "dog " * 60_000])
    assert np.array_equal(long[0], long[1])  # beyond the bound nothing counts
    with pytest.raises(InvalidInput, match="expected texts as str, got int"):
        encoder.encode([3])
    assert encoder.encode([]).shape == (0, 256)


def test_the_state_is_small_and_makes_it_again(encoder: Any) -> None:
    state = encoder.state
    assert state.kind == "static" and state.arrays == {} and "/" not in str(state.settings)
    again = restore_encoder(state, "text")
    assert np.array_equal(np.asarray(again.encode(CAPTIONS)), encoder.encode(CAPTIONS))
    assert restore_encoder(state, "text", "static").state == state
    with pytest.raises(WrongEncoder, match="is of another kind"):
        restore_encoder(state, "text", "builtin")
    with pytest.raises(WrongEncoder, match="no encoder of images"):
        restore_encoder(state, "image")
    with pytest.raises(InvalidInput, match="'static' encodes texts and was given as the encoder of images"):
        make_encoder("static", "image", [])


def test_vectors_of_another_release_are_another_encoder(encoder: Any) -> None:
    files = static.find_files()
    assert files is not None
    other = static.load_vectors(files)._replace(digest="0" * 32)
    made = static.StaticTextEncoder(other)
    with pytest.raises(WrongEncoder, match="'static'.*fingerprint"):
        restore_encoder(made.state, "text")


def test_how_the_tokenizers_json_is_written_does_not_count(tmp_path: Path, encoder: Any) -> None:
    import json

    files = static.find_files()
    assert files is not None
    copy = tmp_path / "tokenizer.json"
    copy.write_text(json.dumps(json.loads(files.tokenizer.read_text(encoding="utf-8")), indent=3))
    vectors = static.load_vectors(static.StaticFiles(files.table, copy))
    assert static.StaticTextEncoder(vectors).state == encoder.state


@pytest.mark.parametrize("language", SCRIPTS)
def test_scripts_that_it_knows(encoder: Any, language: str) -> None:
    assert encoder.knows_script([SCRIPTS[language]])
    spec, reason = default_text_encoder([SCRIPTS[language]] * 3)
    assert spec == "static" and "know the words" in reason


@pytest.mark.parametrize("language", UNKNOWN_SCRIPTS)
def test_scripts_that_it_does_not_know_get_hashed_words(encoder: Any, language: str) -> None:
    assert not encoder.knows_script([UNKNOWN_SCRIPTS[language]])
    spec, reason = default_text_encoder([UNKNOWN_SCRIPTS[language]] * 3)
    assert spec == "builtin" and "do not know the words" in reason


def test_most_of_the_sample_decides(encoder: Any) -> None:
    chinese, english = UNKNOWN_SCRIPTS["Chinese"], SCRIPTS["English"]
    assert default_text_encoder([english] * 2000 + [chinese] * 100)[0] == "static"
    assert default_text_encoder([english] * 20 + [chinese] * 400)[0] == "builtin"
    assert default_text_encoder([])[0] == "static"
    assert not encoder.knows_script([])


@pytest.mark.parametrize("missing", ["wordllama", "tokenizers"])
def test_without_its_package_the_message_says_what_to_install(
    missing: str, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else found(name))
    spec, reason = default_text_encoder(CAPTIONS)
    assert spec == "builtin" and "pip install 'crossbyte[photo]'" in reason
    for make in (
        lambda: make_encoder("static", "text", []),
        lambda: restore_encoder(encoder.state, "text"),
    ):
        with pytest.raises(MissingExtra, match=r"needs tokenizers and wordllama.*crossbyte\[photo\]"):
            make()


def test_damaged_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = static.find_files()
    assert files is not None
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(files.table.read_bytes()[:1000])
    small = tmp_path / "small.safetensors"
    save_file({"embedding.weight": np.zeros((10, 4), np.float32)}, small)
    other = tmp_path / "other.safetensors"
    save_file({"weights": np.zeros((10, 4), np.float32)}, other)
    noise = tmp_path / "tokenizer.json"
    noise.write_text("{}")
    for pair in (
        (cut, files.tokenizer),
        (small, files.tokenizer),
        (other, files.tokenizer),
        (files.table, noise),
    ):
        with pytest.raises(DataFileError, match="cannot be used.*install it again"):
            static.load_vectors(static.StaticFiles(*pair))
    monkeypatch.setattr(static, "find_files", lambda: static.StaticFiles(cut, files.tokenizer))
    spec, reason = default_text_encoder(CAPTIONS)
    assert spec == "builtin" and "install it again" in reason


def test_the_package_itself_is_never_imported() -> None:
    program = (
        "import sys; from crossbyte.encoders import make_encoder; "
        "make_encoder('static', 'text', []).encode(['a dog']); "
        "print(*sorted({'wordllama', 'requests', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
