"""Words get other numbers, points keep their meaning, and equal high bits come to mean something."""

from __future__ import annotations

import numpy as np

from crossbyte.model.quantization.codebooks import renumber_codewords


def books(seed: int, n_dims: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    words = rng.normal(size=(3, 256, n_dims)).astype(np.float32)
    return words, rng.integers(0, 256, (500, 3)).astype(np.uint8)


def decoded(words: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return np.stack([words[m, codes[:, m]] for m in range(len(words))])


def spread(words: np.ndarray) -> float:
    groups = words.reshape(len(words), 64, 4, -1)
    return float(((groups - groups.mean(axis=2, keepdims=True)) ** 2).sum())


def test_every_code_keeps_its_word() -> None:
    words, codes = books(0)
    new_words, new_codes = renumber_codewords(words, codes)
    assert np.array_equal(decoded(words, codes), decoded(new_words, new_codes))
    assert new_codes.dtype == np.uint8
    for old, new in zip(words, new_words, strict=True):
        assert sorted(map(tuple, old.tolist())) == sorted(map(tuple, new.tolist()))


def test_words_with_equal_high_bits_lie_closer_than_by_chance() -> None:
    words, codes = books(1)
    assert spread(renumber_codewords(words, codes)[0]) < 0.5 * spread(words)


def test_equal_words_and_one_dimension_are_no_trouble() -> None:
    words, codes = books(2, n_dims=1)
    words[0] = 0.0
    new_words, new_codes = renumber_codewords(words, codes)
    assert np.array_equal(decoded(words, codes), decoded(new_words, new_codes))
    assert (np.diff(new_words[1, :, 0].reshape(64, 4).min(axis=1)) >= 0).all() or (
        np.diff(new_words[1, :, 0].reshape(64, 4).min(axis=1)) <= 0
    ).all()


def test_it_depends_on_the_words_alone() -> None:
    words, codes = books(3)
    first, second = renumber_codewords(words, codes), renumber_codewords(words.copy(), codes[:0])
    assert np.array_equal(first[0], second[0])
