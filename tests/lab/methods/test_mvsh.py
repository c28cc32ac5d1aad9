"""MVSH: averages and bits against twins that solve every step in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import mvsh
from crossbyte.lab.methods.registry import make_method


def documents(n: int = 160, n_classes: int = 4, noise: float = 0.6) -> tuple[Any, Any, Any]:
    """Images and texts around the centres of their classes, and their labels; one document has none."""
    rng = np.random.default_rng(0)
    labels = np.eye(n_classes, dtype=np.uint8)[np.arange(n) % n_classes]
    sides = [
        labels @ rng.standard_normal((n_classes, d)) + noise * rng.standard_normal((n, d)) for d in (9, 6)
    ]
    labels[3] = 0
    return sides[0], sides[1], labels


def affinity(n: int = 40) -> Any:
    """A symmetric matrix of entries in (0, 1], from distances that no space has: not positive definite."""
    rows = np.random.default_rng(1).standard_normal((n, 3))
    views = [mvsh.divide_by_mean(np.sum((X[:, None] - X) ** 2, axis=2)) for X in (rows, rows[:, ::-1] ** 3)]
    return np.exp(-mvsh.alpha_average(views, [0.3, 0.7], 3.0))


# The average


def test_known_averages() -> None:
    views = [np.array([[1.0, 4.0], [2.0, 9.0]]), np.array([[3.0, 1.0], [2.0, 1.0]])]
    weights = [0.5, 0.5]
    np.testing.assert_allclose(mvsh.alpha_average(views, weights, -1.0), [[2.0, 2.5], [2.0, 5.0]])
    np.testing.assert_allclose(mvsh.alpha_average(views, weights, 1.0), [[3**0.5, 2.0], [2.0, 3.0]])
    np.testing.assert_allclose(mvsh.alpha_average(views, weights, 3.0), [[1.5, 1.6], [2.0, 1.8]])
    skewed = mvsh.alpha_average(views, [1.0, 0.0], 0.5)
    np.testing.assert_allclose(skewed, views[0])


def test_averages_fall_with_alpha_and_stay_between_the_views() -> None:
    rng = np.random.default_rng(2)
    views = [rng.random((6, 6)) + 0.1 for _ in range(3)]
    found = [
        mvsh.alpha_average(views, [0.2, 0.3, 0.5], alpha) for alpha in (-9, -1, 0, 0.999, 1, 1.001, 3, 9)
    ]
    assert all((higher >= lower - 1e-12).all() for higher, lower in zip(found, found[1:], strict=False))
    assert (found[0] <= np.max(views, axis=0)).all() and (found[-1] >= np.min(views, axis=0)).all()
    np.testing.assert_allclose(found[3], found[5], rtol=2e-3)


def alpha_divergence(p: float, q: float, alpha: float) -> float:
    """Amari's, of two positive numbers."""
    if alpha == 1.0:
        return float(q * np.log(q / p) + p - q)
    if alpha == -1.0:
        return float(p * np.log(p / q) + q - p)
    mixed = (1 - alpha) / 2 * p + (1 + alpha) / 2 * q - p ** ((1 - alpha) / 2) * q ** ((1 + alpha) / 2)
    return float(4 / (1 - alpha**2) * mixed)


@pytest.mark.parametrize("alpha", [-3.0, -1.0, 0.0, 0.5, 1.0, 3.0])
def test_no_other_average_has_a_smaller_divergence_from_the_views(alpha: float) -> None:
    values, weights = [0.3, 2.0, 5.0], [0.2, 0.5, 0.3]
    q = float(mvsh.alpha_average([np.array([[each]]) for each in values], weights, alpha)[0, 0])

    def divergence(at: float) -> float:
        return sum(w * alpha_divergence(p, at, alpha) for w, p in zip(weights, values, strict=True))

    for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0):
        assert divergence(factor * q) > divergence(q)
    assert abs(divergence(q * (1 + 1e-5)) - divergence(q * (1 - 1e-5))) < 1e-9


def test_distances_of_nothing_are_no_accident() -> None:
    same = np.zeros((3, 3))
    assert not mvsh.divide_by_mean(same).any()
    apart = mvsh.divide_by_mean(np.full((3, 3), 5.0))
    assert not np.diag(apart).any() and apart.mean() == pytest.approx(1.0)
    for alpha in (-9.0, 1.0, 9.0):
        found = mvsh.alpha_average([same, apart], [0.5, 0.5], alpha)
        assert np.isfinite(found).all() and (found >= 0).all()


# The bits


def test_factors_are_the_strongest_directions_of_the_centred_affinity() -> None:
    S = affinity()
    H = np.eye(40) - 1 / 40
    values, vectors = np.linalg.eigh(H @ S @ H)
    assert values[0] < -1e-3  # what has a negative strength is left out
    G = mvsh.spectral_factors(S, 7)
    np.testing.assert_allclose(G @ G.T, (vectors[:, -7:] * values[-7:]) @ vectors[:, -7:].T, atol=1e-10)
    whole = mvsh.spectral_factors(S, 400)
    assert whole.shape == (40, (values > 1e-9 * values[-1]).sum())
    assert mvsh.spectral_factors(np.ones((5, 5)), 3).shape == (5, 0)


def twin(S: Any, n_bits: int) -> tuple[Any, Any]:
    """Bits by the full projected eigenproblem, one after another; the relaxed ones beside them."""
    n = len(S)
    taken, signs, relaxed = [np.ones(n)], [], []
    for _ in range(n_bits):
        basis = np.linalg.qr(np.stack(taken, axis=1))[0]
        P = np.eye(n) - basis @ basis.T
        y = np.linalg.eigh(P @ S @ P)[1][:, -1]
        y = y * np.sign(y[np.abs(y).argmax()])
        signs.append(np.where(y > 0, 1.0, -1.0))
        relaxed.append(y)
        taken.append(signs[-1])
    return np.stack(signs, axis=1), np.stack(relaxed, axis=1)


def test_bits_are_those_of_the_full_problem() -> None:
    G = mvsh.spectral_factors(affinity(), 25)
    signs, relaxed = twin(G @ G.T, 10)
    np.testing.assert_array_equal(mvsh.sequential_bits(G, 10), signs)
    products = relaxed.T @ signs
    np.testing.assert_allclose(np.tril(products, -1), 0.0, atol=1e-9)  # each y against all signs before it
    np.testing.assert_allclose(relaxed.sum(axis=0), 0.0, atol=1e-9)


def test_no_vector_that_is_decorrelated_from_the_signs_so_far_says_more() -> None:
    G = mvsh.spectral_factors(affinity(), 25)
    signs, relaxed = twin(G @ G.T, 6)
    rng = np.random.default_rng(3)
    for bit in range(6):
        basis = np.linalg.qr(np.column_stack([np.ones(40), signs[:, :bit]]))[0]
        most = np.sum((relaxed[:, bit] @ G) ** 2)
        for step in (1e-3, 0.1, 10.0):
            other = relaxed[:, bit] + step * rng.standard_normal(40)
            other -= basis @ (basis.T @ other)
            assert np.sum((other @ G) ** 2) / (other @ other) <= most * (1 + 1e-9)


def test_signs_are_less_correlated_than_those_of_plain_eigenvectors() -> None:
    S = affinity(200)
    G = mvsh.spectral_factors(S, 60)
    plain = np.where(G[:, ::-1][:, :12] > 0, 1.0, -1.0)

    def correlation(signs: Any) -> float:
        return float(np.abs(np.corrcoef(signs.T) - np.eye(12)).mean())

    assert correlation(mvsh.sequential_bits(G, 12)) < 0.8 * correlation(plain)


def test_where_nothing_is_left_bits_are_zeros() -> None:
    G = mvsh.spectral_factors(np.eye(3), 8)
    signs = mvsh.sequential_bits(G, 6)
    assert (np.abs(signs[:, :2]) == 1.0).all() and not signs[:, 2:].any()
    assert not mvsh.sequential_bits(np.zeros((4, 0)), 3).any()
    q = mvsh.orthogonalise(np.ones(4), np.full((4, 1), 0.5))
    assert not q.any()


# The system


@pytest.mark.parametrize("alpha", [-1.0, 1.0, 3.0])
@pytest.mark.parametrize("similarity", ["pairs", "labels"])
def test_documents_of_the_same_class_are_found_far_above_chance(similarity: str, alpha: float) -> None:
    images, texts, labels = documents(400)
    parameters = {"n_anchors": 60, "alpha": alpha}
    method = make_method("mvsh", 16, similarity=similarity, parameters=parameters)
    method.fit(images[:300], texts[:300], labels[:300])
    same = labels[300:] @ labels[:300].T > 0
    for query, searched, rows in (("image", "text", images), ("text", "image", texts)):
        distances = method.distances(
            searched, method.queries(query, rows[300:]), method.training_items(searched)
        )
        first = np.argsort(distances, axis=1, kind="stable")[:, :10]
        assert np.take_along_axis(same, first, axis=1).mean() > 0.5  # chance is 1/4


def test_labels_are_a_third_view_with_a_share() -> None:
    images, texts, labels = documents()
    codes = {}
    for share in (0.0, 0.5, 1.0):
        parameters = {"label_share": share, "n_anchors": 30}
        method = make_method("mvsh", 8, similarity="labels", parameters=parameters).fit(images, texts, labels)
        codes[share] = method.training_items("text")
    without = make_method("mvsh", 8, parameters={"n_anchors": 30}).fit(images, texts)
    np.testing.assert_array_equal(codes[0.0], without.training_items("text"))
    assert (codes[0.5] != codes[0.0]).any() and (codes[0.5] != codes[1.0]).any()


def test_a_part_is_learned_from_where_there_are_many() -> None:
    images, texts, labels = documents()
    parameters = {"max_documents": 50, "n_anchors": 20}
    method = make_method("mvsh", 8, similarity="labels", parameters=parameters).fit(images, texts, labels)
    assert method.details == {"n_learned_from": 50} and len(method.training_items("image")) == 160
    assert make_method("mvsh", 8).fit(images, texts).details == {"n_learned_from": 160}


def test_bits_are_predicted_about_as_they_were_learned() -> None:
    images, texts, _ = documents(noise=0.1)
    method = make_method("mvsh", 3).fit(images, texts)
    bits = [np.unpackbits(method.training_items(side), axis=1)[:, :3] for side in ("image", "text")]
    assert (bits[0] == bits[1]).mean() > 0.9
    assert np.abs(bits[0].mean(axis=0) - 0.5).max() < 0.3


def test_two_documents_are_enough() -> None:
    images, texts, _ = documents()
    codes = make_method("mvsh", 8).fit(images[:2], texts[:2]).training_items("image")
    bits = np.unpackbits(codes, axis=1)
    assert bits[:, 0].sum() == 1 and not bits[:, 1:].any()


def test_sparse_and_dense_texts_give_the_same() -> None:
    rng = np.random.default_rng(4)
    topics = np.arange(150) % 5
    texts = rng.poisson(0.2 + 1.5 * (np.arange(30) % 5 == topics[:, None])).astype(np.float32)
    images = np.eye(5)[topics] @ rng.standard_normal((5, 8)) + 0.5 * rng.standard_normal((150, 8))
    parameters = {"n_anchors": 20}
    dense, thin = (
        make_method("mvsh", 16, parameters=parameters).fit(images, rows)
        for rows in (texts, sparse.csr_matrix(texts))
    )
    for side in ("image", "text"):
        differing = dense.training_items(side) ^ thin.training_items(side)
        assert np.bitwise_count(differing).mean() < 0.05  # a value of about zero may fall either way


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 10.0),
        ("label_share", 1.5),
        ("width", 0.0),
        ("ridge", 0.0),
        ("n_anchors", 0),
        ("max_documents", 1),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        make_method("mvsh", 16, parameters={name: value})
