"""Generated pairs: shapes, determinism, and that partners and labels can be found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from crossbyte.data.synthetic import Pairs, make_pairs, nus_wide_like
from crossbyte.errors import InvalidInput
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.chance import chance_mean_average_precision, chance_recall
from crossbyte.metrics.ranks import nearest_ties_by_column, partner_ranks_ties_by_column, recall_at

N_TRAIN = 2000


def held_out_distances(pairs: Pairs) -> NDArray[np.float32]:
    """Distances of held-out images to held-out texts in a small regularised CCA space."""
    images = pairs.images - pairs.images[:N_TRAIN].mean(axis=0)
    dense = sp.csr_array(pairs.texts).toarray()
    texts = dense - dense[:N_TRAIN].mean(axis=0)
    image_map, text_map = cca(images[:N_TRAIN], texts[:N_TRAIN], 8)
    left, right = unit(images[N_TRAIN:] @ image_map), unit(texts[N_TRAIN:] @ text_map)
    return np.asarray(2 - 2 * left @ right.T, dtype=np.float32)


def cca(x: NDArray[Any], y: NDArray[Any], d: int) -> tuple[NDArray[Any], NDArray[Any]]:
    white_x, white_y = whitener(x), whitener(y)
    u, s, vt = np.linalg.svd(white_x.T @ x.T @ y @ white_y / len(x))
    return white_x @ u[:, :d] * s[:d], white_y @ vt[:d].T * s[:d]


def whitener(x: NDArray[Any]) -> NDArray[Any]:
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    return np.asarray(vectors / np.sqrt(values + 0.1 * values.mean()))


def unit(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


@pytest.fixture(scope="module", params=[True, False], ids=["sparse", "dense"])
def pairs(request: pytest.FixtureRequest) -> Pairs:
    return make_pairs(2600, 32, 100, sparse_text=request.param, random_state=0)


def test_partner_of_a_held_out_item_can_be_found(pairs: Pairs) -> None:
    distances = held_out_distances(pairs)
    chance = chance_recall(len(distances), 10)
    assert recall_at(partner_ranks_ties_by_column(distances), 10) > 8 * chance
    assert recall_at(partner_ranks_ties_by_column(distances.T), 10) > 8 * chance


def test_neighbours_share_their_label(pairs: Pairs) -> None:
    distances, labels = held_out_distances(pairs), pairs.labels[N_TRAIN:]
    score = mean_average_precision(labels[nearest_ties_by_column(distances, 50)] == labels[:, None], 50)
    shares = np.bincount(labels)[labels] / len(labels)
    assert score > 1.5 * chance_mean_average_precision(shares, 50, n_items=len(labels))


def test_noise_makes_it_harder() -> None:
    quiet, loud = (make_pairs(2600, 32, 100, noise=noise, random_state=0) for noise in (0.1, 3.0))
    recalls = [
        recall_at(partner_ranks_ties_by_column(held_out_distances(pairs)), 10) for pairs in (quiet, loud)
    ]
    assert recalls[0] > 1.5 * recalls[1]


def test_shapes_and_types() -> None:
    pairs = make_pairs(50, 6, 20, n_classes=3, random_state=0)
    assert pairs.images.shape == (50, 6) and pairs.images.dtype == np.float32
    assert isinstance(pairs.texts, sp.csr_array)
    assert pairs.texts.shape == (50, 20) and pairs.texts.dtype == np.float32
    assert pairs.labels.shape == (50,) and set(pairs.labels.tolist()) == {0, 1, 2}


def test_bags_are_binary_sorted_and_never_empty() -> None:
    texts = make_pairs(500, 4, 30, words_per_text=3, random_state=0).texts
    assert set(texts.data.tolist()) == {1.0}
    assert texts.has_canonical_format
    assert np.diff(texts.indptr).min() >= 1


def test_dense_texts() -> None:
    texts = make_pairs(50, 6, 20, sparse_text=False, random_state=0).texts
    assert isinstance(texts, np.ndarray) and texts.dtype == np.float32


def test_same_seed_same_pairs_across_blocks() -> None:
    first, second, other = (make_pairs(5000, 5, 20, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.images, second.images)
    np.testing.assert_array_equal(first.texts.toarray(), second.texts.toarray())
    np.testing.assert_array_equal(first.labels, second.labels)
    assert not np.array_equal(first.images, other.images)


def test_nus_wide_like_has_its_shape() -> None:
    pairs = nus_wide_like(3000)
    assert pairs.images.shape == (3000, 500) and pairs.images.dtype == np.float32
    assert pairs.images.min() == 0 and pairs.images.sum(axis=1).mean() == pytest.approx(250, rel=0.05)
    assert pairs.texts.shape == (3000, 1000) and 5 <= pairs.texts.nnz / 3000 <= 8
    assert set(pairs.labels.tolist()) == set(range(10))


def test_nus_wide_like_tags_follow_zipf() -> None:
    counts = np.sort(np.bincount(nus_wide_like(3000).texts.indices, minlength=1000))[::-1]
    assert counts[:100].sum() > 0.5 * counts.sum()
    assert counts[0] < 0.4 * 3000


def test_one_of_everything() -> None:
    pairs = make_pairs(1, 1, 1, n_classes=1, n_topics=1, random_state=0)
    assert np.isfinite(pairs.images).all() and pairs.texts.toarray().tolist() == [[1.0]]


@pytest.mark.parametrize(
    "wrong", [{"n_pairs": 0}, {"text_dim": 0}, {"n_topics": 0}, {"noise": -1}, {"words_per_text": 0.5}]
)
def test_refuses_nonsense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        make_pairs(**({"n_pairs": 5, "image_dim": 5, "text_dim": 5} | wrong))
