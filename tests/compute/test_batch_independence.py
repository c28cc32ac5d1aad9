"""A row's point does not depend on the rows beside it: not on their number, nor on its place among them.

``make test-all`` runs this with the native kernels and without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ
from crossbyte.compute.executor import TILE_ROWS, Workers, deterministic_product
from crossbyte.data.preparation import Preparation
from crossbyte.data.synthetic import make_pairs

N = 5000
BATCHES = (1, 2, 3, 31, 100, TILE_ROWS, N)
PLACES = (0, 77, 4000, 4095)  # the last batches cross a canonical block
TRAIN = slice(0, 300)
# Wide enough for BLAS to choose other kernels for one row, a few and many.
PAIRS = make_pairs(N, 300, 160, random_state=1)
MODELS: dict[str, dict[str, Any]] = {
    "sparse, paper": {"mapping": "sparse"},
    "sparse, ridge": {"mapping": "sparse", "query_map": "ridge"},
    "cca": {"mapping": "cca"},
    "cca, texts reduced": {"mapping": "cca", "text_components": 24},
    "contrastive": {"mapping": "contrastive"},
}
STORAGE: dict[str, Callable[[], Any]] = {
    "images float32": lambda: PAIRS.images,
    "images float64": lambda: PAIRS.images.astype(np.float64) * (1 + 1e-9),
    "images Fortran": lambda: np.asfortranarray(PAIRS.images),
    "texts float32": lambda: PAIRS.texts.toarray().astype(np.float32),
    "texts float64": lambda: PAIRS.texts.toarray().astype(np.float64) * (1 + 1e-9),
    "texts sparse": lambda: sparse.csr_matrix(PAIRS.texts) * (1 + 1e-9),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> CMCQ:
    """A model of every mapping."""
    # The NumPy lasso is slow, and what is asked of it is the same with few atoms.
    common = {"n_components": 8, "n_atoms": 48, "max_iter": 1, "sparsity": 0.5, "random_state": 0}
    return CMCQ(16, **common, **MODELS[request.param]).fit(PAIRS.images[TRAIN], PAIRS.texts[TRAIN])


def bits(points: Any) -> Any:
    return np.ascontiguousarray(points).view(np.uint32)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("storage", STORAGE)
def test_a_point_does_not_depend_on_its_batch(model: CMCQ, storage: str, n_jobs: int) -> None:
    rows = STORAGE[storage]()
    model.set_params(n_jobs=n_jobs)
    transform = model.transform_images if storage.startswith("images") else model.transform_texts
    together = bits(transform(rows))
    for size in BATCHES:
        for at in PLACES if size < N else (0,):
            np.testing.assert_array_equal(bits(transform(rows[at : at + size])), together[at : at + size])


def test_pairs_do_not_depend_on_their_batch(model: CMCQ) -> None:
    images, texts = PAIRS.images, PAIRS.texts
    learned = model.fitted_

    def points(rows: slice) -> tuple[Any, Any]:
        with Workers(1) as workers:
            return learned.fold_in(images[rows], texts[rows], workers)

    together, codes = points(slice(0, N)), model.encode_pairs(images[:400], texts[:400])
    for size in BATCHES[:-1]:
        for found, expected in zip(points(slice(77, 77 + size)), together, strict=True):
            np.testing.assert_array_equal(bits(found), bits(expected[77 : 77 + size]))
        some = model.encode_pairs(images[77 : 77 + size], texts[77 : 77 + size])
        for found, expected in zip(some, codes, strict=True):
            np.testing.assert_array_equal(found, expected[77 : 77 + size])


def test_the_answers_to_a_query_do_not_depend_on_its_batch(model: CMCQ) -> None:
    codes = model.encode_images(PAIRS.images[:50])
    together = bits(model.distances(texts=PAIRS.texts[:300], image_codes=codes))
    for size in (1, 2, 31):
        alone = model.distances(texts=PAIRS.texts[40 : 40 + size], image_codes=codes)
        np.testing.assert_array_equal(bits(alone), together[40 : 40 + size])


def test_a_huge_row_does_not_change_the_others() -> None:
    texts = sparse.csr_matrix(PAIRS.texts).astype(np.float64) * (1 + 1e-9)
    huge = sparse.vstack([texts[:10], texts[10:11] * 1e60, texts[11:20]], format="csr")
    with Workers(1) as workers:
        preparation = Preparation.fit(texts, None, "texts", workers)
        plain, beside = (preparation.apply(rows, workers) for rows in (texts[:20], huge))
    matrix = np.random.default_rng(0).standard_normal((texts.shape[1], 8))
    others = np.delete(np.arange(20), 10)
    np.testing.assert_array_equal(beside.times(matrix)[others], plain.times(matrix)[others])
    np.testing.assert_array_equal(beside.dense()[others], plain.dense()[others])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (10, 1), (10, 9), (64, 512), (128, 64), (257, 31), (1280, 64), (1442, 32)]
)
def test_products_by_tiles(shape: tuple[int, int], dtype: Any, order: Any, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((2 * TILE_ROWS + 40, shape[0])).astype(dtype)
    matrix = np.asarray(rng.standard_normal(shape).astype(dtype), order=order)
    with Workers(1):
        together = deterministic_product(rows, matrix)
        assert together.dtype == dtype
        np.testing.assert_allclose(
            together, rows @ matrix, rtol=0, atol=1e-3 if dtype is np.float32 else 1e-10
        )
        for size in (0, 1, 2, 3, 5, 8, 9, 31, 33, 100, 129, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1):
            for at in (0, 1, 13, 40):
                found = deterministic_product(rows[at : at + size], matrix)
                np.testing.assert_array_equal(found, together[at : at + size])


def test_products_of_strided_rows(rng: np.random.Generator) -> None:
    rows, matrix = rng.standard_normal((80, 30)), rng.standard_normal((30, 7))
    with Workers(1):
        expected = deterministic_product(rows, matrix)
        np.testing.assert_array_equal(deterministic_product(np.asfortranarray(rows), matrix), expected)
        np.testing.assert_array_equal(
            deterministic_product(np.repeat(rows, 2, axis=1)[:, ::2], matrix), expected
        )
