"""SCM: every bit against a twin that forms the similarities and what is left of them in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import scm
from crossbyte.lab.methods.hashing import sign_values
from crossbyte.lab.methods.labels import solve_related_directions, whiten_relation
from crossbyte.lab.methods.registry import make_method
from crossbyte.model.space.cca import second_moments

RIDGE = 0.01


def documents(n: int = 240, n_classes: int = 5, noise: float = 1.0) -> tuple[Any, Any, Any]:
    """Images and texts around the centres of their classes, some documents of two and one of none."""
    rng = np.random.default_rng(0)
    labels = np.eye(n_classes, dtype=np.uint8)[np.arange(n) % n_classes]
    labels[::7, 0] = 1
    labels[3] = 0
    sides = [
        labels @ rng.standard_normal((n_classes, d)) + noise * rng.standard_normal((n, d)) for d in (12, 9)
    ]
    return sides[0], sides[1], labels


def centred(rows: Any) -> Any:
    return (rows - rows.mean(axis=0)).astype(np.float32).astype(np.float64)


def similarities(labels: Any) -> Any:
    """S of all documents, row by row."""
    unit = labels / np.maximum(np.sqrt(labels.sum(axis=1)), 1.0)[:, None]
    return np.array([2.0 * unit @ row - 1.0 for row in unit])


def with_ridge(X: Any) -> Any:
    C = X.T @ X
    return C + RIDGE * np.trace(C) / len(C) * np.eye(len(C))


def twin(X: Any, Y: Any, S: Any, n_bits: int) -> tuple[list[Any], list[float], Any]:
    """Bits by the eigenproblem of the paper, from the (N, N) residual; the last residual comes with them."""
    R, bits, values = n_bits * S, [], []
    for _ in range(n_bits):
        C = X.T @ R @ Y
        squares, vectors = linalg.eigh(C @ np.linalg.solve(with_ridge(Y), C.T), with_ridge(X))
        value = float(np.sqrt(squares[-1]))
        if values and value > values[-1]:
            break
        a = vectors[:, -1]
        b = np.linalg.solve(with_ridge(Y), C.T @ a) / value
        bits.append((a, b))
        values.append(value)
        R = R - np.outer(sign_values(X @ a), sign_values(Y @ b))
    return bits, values, R


def learned(X: Any, Y: Any, S: Any, n_bits: int) -> scm.BitSequence:
    with Workers(1) as workers:
        rows = DenseRows(X.astype(np.float32)), DenseRows(Y.astype(np.float32))
        moments = (*second_moments(*rows, workers)[:2], n_bits * X.T @ S @ Y)
        return scm.learn_sequence(scm.Sides(*rows, workers), moments, n_bits, RIDGE)


def assert_same_up_to_a_turn(found: Any, a: Any, b: Any) -> None:
    """The two directions of a pair may be turned round, both together."""
    together = np.concatenate([a, b])
    turned = np.sign(found @ together)
    np.testing.assert_allclose(turned * found, together, atol=1e-6 * np.abs(together).max())


@pytest.mark.parametrize("n_bits", [1, 8, 24])
def test_every_bit_is_the_leading_pair_of_what_the_bits_before_have_left(n_bits: int) -> None:
    images, texts, labels = documents()
    X, Y, S = centred(images), centred(texts), similarities(labels)
    bits, values, _ = twin(X, Y, S, n_bits)
    found = learned(X, Y, S, n_bits)
    assert len(bits) == len(found.relations) > min(n_bits, 4) - 1
    np.testing.assert_allclose(found.relations, values, rtol=1e-6)
    for k, (a, b) in enumerate(bits):
        assert_same_up_to_a_turn(np.concatenate([found.A[:, k], found.B[:, k]]), a, b)


def test_the_bits_bring_the_products_of_codes_nearer_to_the_similarities() -> None:
    images, texts, labels = documents()
    X, Y, S = centred(images), centred(texts), similarities(labels)
    left = [np.sum((24 * S) ** 2)]
    R, found = 24 * S, learned(X, Y, S, 24)
    for a, b in zip(found.A.T, found.B.T, strict=True):
        R = R - np.outer(sign_values(X @ a), sign_values(Y @ b))
        left.append(np.sum(R**2))
    assert (np.diff(left[:9]) < 0).all() and left[-1] < 0.85 * left[0]


def test_the_system_learns_what_the_twin_does_and_ends_with_canonical_directions() -> None:
    images, texts, labels = documents(noise=3.0)
    X, Y = centred(images), centred(texts)
    bits, values, R = twin(X, Y, similarities(labels), 40)
    model = make_method("scm", 40, parameters={"ridge": RIDGE}).fit(images, texts, labels)
    n = model.details["n_sequential"]
    assert n == len(bits) < 30
    np.testing.assert_allclose(model.details["relations"], np.array(values) / len(X), rtol=1e-4)
    U, V, whitened = whiten_relation(X.T @ X, Y.T @ Y, X.T @ R @ Y, RIDGE)
    assert linalg.svdvals(whitened)[0] > values[-1]  # the next bit would have risen
    A, B = solve_related_directions(X.T @ X, Y.T @ Y, X.T @ Y, 40, RIDGE)
    again = np.arange(40 - n) % A.shape[1]
    for side, rows, directions in (("image", X, A), ("text", Y, B)):
        own = np.column_stack([bit[side == "text"] for bit in bits])
        signs = sign_values(rows @ np.hstack([own, directions[:, again]])) > 0
        codes = np.unpackbits(model.training_items(side), axis=1)[:, :40].astype(bool)
        agreeing = (codes == signs).mean(axis=0)
        assert (np.maximum(agreeing, 1 - agreeing) > 0.99).all()  # but for turns and rounding


def test_the_orthogonal_bits_are_the_leading_pairs_of_all_similarities() -> None:
    images, texts, labels = documents()
    X, Y = centred(images), centred(texts)
    A, B = solve_related_directions(X.T @ X, Y.T @ Y, X.T @ similarities(labels) @ Y, 4, RIDGE)
    model = make_method("scm", 4, parameters={"variant": "orthogonal", "ridge": RIDGE}).fit(
        images, texts, labels
    )
    for side, values in (("image", X @ A), ("text", Y @ B)):
        codes = np.unpackbits(model.training_items(side), axis=1)[:, :4]
        assert ((values > 0) == codes).mean() > 0.99
    assert model.details["n_sequential"] == 0
    G = with_ridge(X)
    cosines = A.T @ G @ A / np.sqrt(np.outer(*[np.einsum("dk,dk->k", A, G @ A)] * 2))
    np.testing.assert_allclose(cosines, np.eye(4), atol=1e-9)


def test_from_pairs_each_document_is_a_class_of_its_own_and_one_bit_takes_all() -> None:
    images, texts, _ = documents()
    X, Y = centred(images), centred(texts)
    S = 2.0 * np.eye(len(X)) - 1.0
    bits, values, _ = twin(X, Y, S, 16)
    model = make_method("scm", 16, similarity="pairs", parameters={"ridge": RIDGE}).fit(images, texts)
    assert len(bits) == model.details["n_sequential"] == 1
    np.testing.assert_allclose(model.details["relations"], np.array(values) / len(X), rtol=1e-4)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_sums_of_signs_are_taken_over_blocks_of_rows(n_jobs: int) -> None:
    rng = np.random.default_rng(0)
    rows, direction = rng.standard_normal((9000, 5)).astype(np.float32), rng.standard_normal(5)
    with Workers(n_jobs) as workers:
        found = scm.correlate_with_signs(DenseRows(rows), direction, workers)
    np.testing.assert_allclose(found, rows.T.astype(float) @ sign_values(rows @ direction), atol=1e-8)


@pytest.mark.parametrize("shape", [(6, 4), (40, 90), (3, 50)])
def test_the_leading_pair_is_that_of_the_singular_value_decomposition(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal(shape) * np.linspace(2.0, 1.0, shape[1])
    left, values, right = linalg.svd(matrix)
    u, v, value = scm.leading_pair(matrix)
    assert value == pytest.approx(values[0], rel=1e-6)
    assert abs(u @ left[:, 0]) == pytest.approx(1.0, abs=1e-4)
    assert abs(v @ right[0]) == pytest.approx(1.0, abs=1e-4)
    assert u @ matrix @ v > 0


def test_nothing_to_relate_gives_bits_that_are_never_set() -> None:
    u, v, value = scm.leading_pair(np.zeros((4, 3)))
    assert value == 0.0 and not u.any() and not v.any()
    signs = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    images, texts = signs[:, :1] * np.array([1.0, 2.0]), signs[:, 1:]
    assert not (images.T @ texts).any()
    model = make_method("scm", 9, similarity="pairs").fit(images, texts)
    assert not model.training_items("image").any() and not model.training_items("text").any()


def test_labels_that_tell_nothing_apart_still_give_codes() -> None:
    images, texts, labels = documents()
    for same in (np.ones_like(labels), np.zeros_like(labels)):
        model = make_method("scm", 16).fit(images, texts, same)
        assert np.isfinite(model.details["relations"]).all()
        assert np.unpackbits(model.training_items("text"), axis=1).std() > 0


@pytest.mark.parametrize("variant", ["sequential", "orthogonal"])
def test_unseen_documents_of_the_same_class_are_found(variant: str) -> None:
    images, texts, labels = documents(700)
    new, same = slice(500, None), labels[500:] @ labels[500:].T > 0
    model = make_method("scm", 12, parameters={"variant": variant}).fit(
        images[:500], texts[:500], labels[:500]
    )
    for asks, searched in (("image", "text"), ("text", "image")):
        rows = {"image": images[new], "text": texts[new]}
        found = model.distances(
            searched,
            model.queries(asks, rows[asks]),
            model.side_items(searched, rows[searched]),
        )
        first = np.argsort(found, axis=1, kind="stable")[:, :10]
        assert np.take_along_axis(same, first, axis=1).mean() > same.mean() + 0.25


def test_labels_teach_where_nothing_else_is_said() -> None:
    assert scm.SCM().similarity == "labels"


@pytest.mark.parametrize("wrong", [{"variant": "both"}, {"ridge": 0.0}, {"ridge": -1.0}])
def test_parameters_are_judged(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        make_method("scm", 16, parameters=wrong)
