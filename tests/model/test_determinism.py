"""The same seed gives the same model bytes, whatever the threads and the storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ
from crossbyte.compute.executor import BLOCK_ROWS
from crossbyte.data.synthetic import make_pairs

PAIRS = make_pairs(100, 12, 20, random_state=3)
SMALL = {"n_bits": 16, "n_components": 4, "n_atoms": 16, "max_iter": 1, "random_state": 0}
MAPPINGS = ("sparse", "cca", "contrastive", "auto", "unit")


def model_bytes(images: Any = PAIRS.images, texts: Any = PAIRS.texts, **changes: Any) -> bytes:
    if changes.get("mapping") == "unit":
        changes |= {"mapping": "cca", "scoring": "unit"}
    return CMCQ(**(SMALL | changes)).fit(images, texts).to_bytes()


@pytest.fixture(scope="module", params=MAPPINGS)
def reference(request: pytest.FixtureRequest) -> tuple[str, bytes]:
    """A mapping and its model of the plain pairs, with one thread."""
    return request.param, model_bytes(mapping=request.param, n_jobs=1)


@pytest.mark.parametrize("n_jobs", [2, 3, None])
def test_any_number_of_threads(reference: tuple[str, bytes], n_jobs: int | None) -> None:
    mapping, expected = reference
    assert model_bytes(mapping=mapping, n_jobs=n_jobs) == expected


def test_another_seed_gives_another_model(reference: tuple[str, bytes]) -> None:
    mapping, expected = reference
    assert model_bytes(mapping=mapping, random_state=1) != expected


def test_a_generator_is_as_good_as_its_seed() -> None:
    """Only the parameter in the file differs: a generator is kept as null."""
    by_seed = CMCQ(**SMALL).fit(PAIRS.images, PAIRS.texts)
    by_generator = CMCQ(**(SMALL | {"random_state": np.random.default_rng(0)})).fit(PAIRS.images, PAIRS.texts)
    by_generator.random_state = 0
    assert by_generator.to_bytes() == by_seed.to_bytes()


def test_refitting_a_model_gives_it_again() -> None:
    model = CMCQ(**SMALL).fit(PAIRS.images, PAIRS.texts)
    first = model.to_bytes()
    model.fit(PAIRS.images[:60], PAIRS.texts[:60])
    assert model.to_bytes() != first
    assert model.fit(PAIRS.images, PAIRS.texts).to_bytes() == first


def strided(values: np.ndarray) -> np.ndarray:
    wide = np.full((2 * values.shape[0], 2 * values.shape[1]), -1, dtype=values.dtype)
    wide[1::2, ::2] = values
    return wide[1::2, ::2]


VARIANTS = {
    "fortran": np.asfortranarray,
    "strided": strided,
    "reversed twice": lambda values: np.ascontiguousarray(values[::-1])[::-1],
    "float64": lambda values: values.astype(np.float64),
    "big-endian": lambda values: values.astype(">f4"),
    "list": lambda values: values.tolist(),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("mapping", ["sparse", "cca"])
def test_any_storage_of_the_images(mapping: str, variant: str) -> None:
    assert model_bytes(VARIANTS[variant](PAIRS.images), mapping=mapping) == model_bytes(mapping=mapping)


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_storage_of_dense_texts(variant: str) -> None:
    dense = PAIRS.texts.toarray()
    assert model_bytes(texts=VARIANTS[variant](dense)) == model_bytes(texts=dense)


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_matrix", "lil_array", "bsr_matrix"])
def test_any_sparse_form_of_the_texts(form: str) -> None:
    assert model_bytes(texts=getattr(sparse, form)(PAIRS.texts)) == model_bytes()


def test_sparse_texts_with_stored_zeros_and_wide_indices() -> None:
    cells = sparse.coo_matrix(PAIRS.texts)
    corner = np.arange(8)
    row, column = np.concatenate([cells.row, corner]), np.concatenate([cells.col, corner])
    padded = sparse.csr_matrix((np.concatenate([cells.data, 0.0 * corner]), (row, column)), cells.shape)
    assert padded.nnz > cells.nnz
    padded.indices, padded.indptr = padded.indices.astype(np.int64), padded.indptr.astype(np.int64)
    assert model_bytes(texts=padded) == model_bytes()


def test_memory_maps(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", PAIRS.images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert model_bytes(mapped) == model_bytes()


@pytest.mark.parametrize("mapping", ["sparse", "cca"])
def test_more_than_one_block(mapping: str, tmp_path: Path) -> None:
    """Three blocks, the last one short: two threads, Fortran order and a memory map give the same bytes."""
    pairs = make_pairs(2 * BLOCK_ROWS + 77, 8, 12, random_state=0)
    params = {"n_bits": 8, "n_atoms": 8, "max_iter": 1, "mapping": mapping}
    one = model_bytes(pairs.images, pairs.texts, **params, n_jobs=1)
    assert model_bytes(np.asfortranarray(pairs.images), pairs.texts, **params, n_jobs=2) == one
    np.save(tmp_path / "images.npy", pairs.images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    assert model_bytes(mapped, pairs.texts, **params, n_jobs=3) == one


def test_answers_do_not_depend_on_the_threads() -> None:
    pairs = make_pairs(BLOCK_ROWS + 50, 12, 20, random_state=3)
    model = CMCQ(**SMALL, n_jobs=1).fit(PAIRS.images, PAIRS.texts)
    answers = []
    for n_jobs in (1, 2):
        model.set_params(n_jobs=n_jobs)
        answers.append([model.encode_images(pairs.images), *model.encode_pairs(pairs.images, pairs.texts)])
    assert all(np.array_equal(*pair) for pair in zip(*answers, strict=True))
