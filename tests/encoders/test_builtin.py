"""Built-in encoders: deterministic, independent of the batch, kept as data, and sane on simple things."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

from crossbyte.encoders.base import EncoderState, encoder_fingerprint
from crossbyte.encoders.builtin_image import BuiltinImageEncoder
from crossbyte.encoders.builtin_text import (
    BuiltinTextEncoder,
    fold_text,
    hash_column,
    split_pieces,
    split_words,
)
from crossbyte.errors import InvalidInput
from support.paths import PACKAGE

RED, BLUE, GREEN, WHITE = (220, 30, 30), (30, 60, 220), (40, 170, 60), (255, 255, 255)
TEXTS = ["A dog runs in the snow", "The cat and the dog", "Two cats sleep", "A red car in the street", "the"]


def shape_picture(shape, colour, size=96, centre=(0.5, 0.5), ground=WHITE):
    """A filled circle or square on a plain ground."""
    y, x = (np.mgrid[0:size, 0:size] + 0.5) / size
    dy, dx = np.abs(y - centre[0]), np.abs(x - centre[1])
    inside = np.hypot(dy, dx) < 0.3 if shape == "circle" else np.maximum(dy, dx) < 0.26
    return np.where(inside[..., None], colour, ground).astype(np.uint8)


def noise_picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


PICTURES = [
    shape_picture("circle", RED),
    shape_picture("square", BLUE),
    shape_picture("circle", GREEN, ground=(20, 20, 20)),
    noise_picture(50, 80),
]


@pytest.fixture(scope="module")
def images():
    return BuiltinImageEncoder.learn(PICTURES)


@pytest.fixture(scope="module")
def texts():
    return BuiltinTextEncoder.learn(TEXTS)


def likeness(rows):
    rows = rows.toarray() if sparse.issparse(rows) else rows
    lengths = np.linalg.norm(rows, axis=1)
    return (rows @ rows.T) / np.outer(lengths, lengths)


# Both sides


def test_a_picture_gives_the_same_bytes_alone_and_in_any_batch(images):
    whole = images.encode(PICTURES)
    assert whole.dtype == np.float32
    for at, picture in enumerate(PICTURES):
        assert images.encode([picture]).tobytes() == whole[at : at + 1].tobytes()
    assert images.encode(PICTURES[::-1])[::-1].tobytes() == whole.tobytes()


def test_a_picture_gives_the_same_bytes_whatever_threads_blas_has(images):
    picture = noise_picture(90, 120)
    expected = images.encode([picture])
    for n_threads in (1, 2, 4):
        with threadpool_limits(n_threads), ThreadPoolExecutor(1) as thread:
            assert np.array_equal(images._encode_one(picture), expected[0])
            assert np.array_equal(thread.submit(images.encode, [picture]).result(), expected)


def test_a_text_gives_the_same_row_alone_and_in_any_batch(texts):
    whole = texts.encode(TEXTS)
    for at, text in enumerate(TEXTS):
        alone = texts.encode([text])
        assert alone.indices.tolist() == whole[at].indices.tolist()
        assert alone.data.tobytes() == whole[at].data.tobytes()


@pytest.mark.parametrize("cls, sample", [(BuiltinImageEncoder, PICTURES), (BuiltinTextEncoder, TEXTS)])
def test_learning_twice_gives_the_same_encoder(cls, sample):
    assert cls.learn(sample).state.fingerprint == cls.learn(sample).state.fingerprint


def test_an_encoder_comes_back_from_its_state(images, texts):
    again = BuiltinImageEncoder.from_state(images.state)
    assert again.state.fingerprint == images.state.fingerprint
    assert again.encode(PICTURES).tobytes() == images.encode(PICTURES).tobytes()
    again = BuiltinTextEncoder.from_state(texts.state)
    assert again.state.fingerprint == texts.state.fingerprint
    assert again.vocabulary() == texts.vocabulary()
    assert (again.encode(TEXTS) != texts.encode(TEXTS)).nnz == 0


@pytest.mark.parametrize("cls, sample", [(BuiltinImageEncoder, PICTURES), (BuiltinTextEncoder, TEXTS)])
def test_states_are_json_and_plain_arrays(cls, sample):
    state = cls.learn(sample).state
    assert json.loads(json.dumps(dict(state.settings))) == dict(state.settings)
    assert all(array.dtype.kind in "fui" for array in state.arrays.values())
    assert state.dimension == cls.learn(sample).encode(sample[:1]).shape[1]


def test_encoders_of_other_samples_have_other_fingerprints(images, texts):
    assert BuiltinImageEncoder.learn(PICTURES[:2]).state.fingerprint != images.state.fingerprint
    assert BuiltinTextEncoder.learn(TEXTS[:3]).state.fingerprint != texts.state.fingerprint


def test_a_fingerprint_covers_kind_settings_names_shapes_and_values():
    settings, array = {"version": 1}, np.arange(4, dtype=np.float32)
    prints = {
        encoder_fingerprint("a", settings, {"x": array}),
        encoder_fingerprint("b", settings, {"x": array}),
        encoder_fingerprint("a", {"version": 2}, {"x": array}),
        encoder_fingerprint("a", settings, {"y": array}),
        encoder_fingerprint("a", settings, {"x": array.reshape(2, 2)}),
        encoder_fingerprint("a", settings, {"x": array.astype(np.float64)}),
        encoder_fingerprint("a", settings, {"x": array + 1}),
    }
    assert len(prints) == 7
    assert encoder_fingerprint("a", settings, {"x": array.astype(">f4")}) == encoder_fingerprint(
        "a", settings, {"x": array}
    )


@pytest.mark.parametrize("cls", [BuiltinImageEncoder, BuiltinTextEncoder])
def test_a_foreign_or_newer_state_is_refused(cls, images):
    for state in (
        EncoderState("onnx", "x", 3, "00", {}, {}),
        images.state._replace(settings={"version": 99}),
    ):
        with pytest.raises(InvalidInput, match="expected a"):
            cls.from_state(state)


def test_wrong_items_are_refused_with_their_type(images, texts):
    with pytest.raises(InvalidInput, match="expected str, got bytes"):
        texts.encode([b"dog"])
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(InvalidInput, match="height, width, 3"):
            images.encode([wrong])
    with pytest.raises(InvalidInput, match="at least one"):
        BuiltinImageEncoder.learn([])


def test_no_items_give_no_rows(images, texts):
    assert images.encode([]).shape == (0, images.state.dimension)
    assert texts.encode([]).shape == (0, texts.state.dimension)


# Pictures


@pytest.mark.parametrize("size", [(1, 1), (1, 512), (512, 1), (2, 3), (5, 7), (512, 600), (16, 4000)])
def test_pictures_of_any_size_and_shape(images, size):
    rows = images.encode([noise_picture(*size), np.full((*size, 3), 255, np.uint8)])
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) > 0).all()


@pytest.mark.parametrize(
    "sample",
    [
        [np.full((1, 1, 3), 7, np.uint8)],
        [np.zeros((40, 40, 3), np.uint8)] * 5,
        [shape_picture("circle", RED)] * 3,
        [noise_picture(9, 300)],
    ],
)
def test_degenerate_samples_still_make_an_encoder(sample):
    rows = BuiltinImageEncoder.learn(sample).encode([*sample, *PICTURES])
    assert np.isfinite(rows).all()
    assert len(np.unique(rows[len(sample) :], axis=0)) == len(PICTURES)


def test_the_width_does_not_depend_on_the_sample(images):
    small = BuiltinImageEncoder.learn([np.zeros((1, 1, 3), np.uint8)])
    assert small.state.dimension == images.state.dimension
    assert 500 <= small.state.dimension <= 1500


def test_the_same_shape_of_another_size_is_nearer_than_another_shape(images):
    names = [("circle", RED, 96), ("circle", RED, 240), ("square", BLUE, 96), ("square", BLUE, 60)]
    like = likeness(images.encode([shape_picture(shape, colour, size) for shape, colour, size in names]))
    assert like[0, 1] > 0.95
    assert like[2, 3] > 0.9
    assert max(like[0, 2], like[0, 3], like[1, 2], like[1, 3]) < min(like[0, 1], like[2, 3])


def test_colour_and_shape_both_count(images):
    kinds = [("circle", RED), ("circle", BLUE), ("square", RED), ("square", BLUE)]
    like = likeness(images.encode([shape_picture(*kind) for kind in kinds]))
    assert like[0, 3] < like[0, 1]
    assert like[0, 3] < like[0, 2]


def test_line_drawings_are_told_apart_by_their_shape(images):
    def ring(shape):
        filled = shape_picture(shape, (0, 0, 0))[..., 0] == 0
        inside = (
            filled[2:-2, 2:-2] & filled[4:, 2:-2] & filled[:-4, 2:-2] & filled[2:-2, 4:] & filled[2:-2, :-4]
        )
        line = filled & ~np.pad(inside, 2)
        return np.repeat(np.where(line, 0, 255)[..., None], 3, axis=2).astype(np.uint8)

    like = likeness(images.encode([ring("circle"), ring("square"), np.roll(ring("circle"), 2, axis=1)]))
    assert like[0, 2] > like[0, 1]


# Texts


@pytest.mark.parametrize("text", ["", "   ", "?!… — ***", "\n\t", "\u200b", "\ud800", "🐶"])
def test_a_text_that_says_nothing_is_a_zero_row(texts, text):
    assert texts.encode([text, "dog"])[0].nnz == 0
    assert texts.words_of(text) == []


def test_rows_are_sorted_float32_and_of_fixed_length(texts):
    rows = texts.encode(TEXTS)
    assert rows.dtype == np.float32
    assert rows.has_sorted_indices
    assert np.allclose(rows.power(2).sum(axis=1), rows[0].power(2).sum(), atol=1e-5)
    assert rows.shape[1] <= 8192


def test_an_unknown_word_finds_its_relatives(texts):
    like = likeness(texts.encode(["dogz", "dog", "cat", "street", "Cats"]))
    assert like[0, 1] > max(like[0, 2], like[0, 3]) + 0.05
    assert like[4, 2] > max(like[4, 0], like[4, 3])


def test_known_words_dominate(texts):
    like = likeness(texts.encode(["the cat", "cat", "catalogue of cattle"]))
    assert like[0, 1] > like[1, 2]


def test_words_that_are_everywhere_weigh_less(texts):
    columns, row = texts.vocabulary(), texts.encode(["the cat"])
    assert row[0, columns["the"]] < row[0, columns["cat"]]


def test_case_width_accents_and_ligatures_are_folded(texts):
    assert fold_text("Élan ＤＯＧ ﬁre Straße") == "elan dog fire strasse"
    assert (texts.encode(["DOG"]) != texts.encode(["ｄóg"])).nnz == 0
    assert split_words("Łódź smørrebrød œuvre") == ["lodz", "smorrebrod", "oeuvre"]


def test_other_scripts_have_words():
    assert split_words("dog's l'été 3D_x") == ["dog", "s", "l", "ete", "3d", "x"]
    assert split_words("Собака ΣΚΎΛΟΣ") == ["собака", "σκυλοσ"]
    assert split_words("कुत्ता दौड़ता") == [fold_text("कुत्ता"), fold_text("दौड़ता")]
    assert split_words("한국어 개") == ["한국어", "개"]
    assert split_words("犬が走る") == ["犬", "が", "走", "る", "犬が", "が走", "走る"]
    assert split_words("iPhone手机") == ["iphone", "手", "机", "手机"]


@pytest.mark.parametrize(
    "known, query, other",
    [
        ("雪の中を走る犬", "犬と雪", "赤い車"),
        ("สุนัขวิ่งในหิมะ", "สุนัข", "รถสีแดง"),
        ("강아지가 눈에서 달린다", "강아지", "빨간 자동차"),
        ("собака бежит по снегу", "собаки", "красная машина"),
        ("كلب يجري في الثلج", "الكلب", "سيارة حمراء"),
    ],
)
def test_queries_in_other_scripts_find_their_text(known, query, other):
    like = likeness(BuiltinTextEncoder.learn([known, other]).encode([query, known, other]))
    assert like[0, 1] > like[0, 2] + 0.05


def test_pieces_have_the_borders_of_their_word():
    assert split_pieces("dog") == [" do", "dog", "og ", " dog", "dog ", " dog "]
    assert split_pieces("a") == [" a "]
    assert split_pieces("犬") == [" 犬", "犬 ", " 犬 "]
    assert len(split_pieces("x" * 10_000)) < 200


def test_known_words_have_columns_and_rare_ones_share():
    sample = [f"common word{number}" for number in range(3000)]
    encoder = BuiltinTextEncoder.learn(sample)
    columns = encoder.vocabulary()
    assert len(columns) == 3001
    assert columns["common"] == 0
    assert len(set(columns.values())) < 3001
    for word in ("common", "word7", "word2999"):
        assert encoder.encode([word])[0, columns[word]] > 0


def test_words_of_a_text_come_once_and_as_they_are_seen(texts):
    assert texts.words_of("The DOG, the unknown dog!") == ["the", "dog", "unknown"]


@pytest.mark.parametrize("sample", [[], [""], ["dog"], ["dog"] * 4, ["?"]])
def test_degenerate_texts_still_make_an_encoder(sample):
    encoder = BuiltinTextEncoder.learn(sample)
    assert encoder.encode(["dog", ""]).getnnz(axis=1).tolist()[1] == 0
    assert encoder.encode(["dog"]).nnz > 0
    assert BuiltinTextEncoder.from_state(encoder.state).state.fingerprint == encoder.state.fingerprint


def test_a_very_long_text_is_cut(texts):
    assert texts.encode(["dog " * 200_000]).nnz < 50


def test_columns_do_not_depend_on_the_process():
    assert hash_column("dog", 2**32) == 2167159165
    code = (
        f"from {BuiltinTextEncoder.__module__} import {BuiltinTextEncoder.__name__} as B;"
        "e = B.learn(['a dog', 'two cats']); r = e.encode(['dogz cat']);"
        "print(e.state.fingerprint, r.indices.tolist(), r.data.tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(PACKAGE.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
