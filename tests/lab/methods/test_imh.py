"""IMH: the closed form against the objective itself, as the paper writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import CentredSparseRows, DenseRows
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import imh
from crossbyte.lab.methods.neighbours import ROWS_AT_ONCE, laplacian, neighbour_graph
from crossbyte.lab.methods.registry import make_method
from crossbyte.lab.methods.regression import fit_ridge

N, BITS = 60, 5
LAM, RIDGE = 0.3, 0.2


def documents(n: int = N, n_classes: int = 4) -> tuple[Any, Any, Any]:
    """Images and texts around the centres of their classes, and their labels."""
    rng = np.random.default_rng(0)
    labels = np.eye(n_classes, dtype=np.uint8)[np.arange(n) % n_classes]
    sides = [labels @ rng.standard_normal((n_classes, d)) + rng.standard_normal((n, d)) for d in (9, 6)]
    return sides[0], sides[1], labels


class Problem:
    """Both sides, their Laplacians and the pieces of the objective, formed in full."""

    def __init__(self, mu: float) -> None:
        self.mu, self.sides, self.laplacians, self.forms = mu, [], [], []
        with Workers(1) as workers:
            for raw in documents()[:2]:
                rows = DenseRows((raw - raw.mean(axis=0)).astype(np.float32))
                L = laplacian(neighbour_graph(rows, 4, workers)).toarray()
                self.sides.append(rows)
                self.laplacians.append(L)
                self.forms.append(imh.residual_form(rows, RIDGE, workers) + LAM * L)

    def objective(self, F: Any, G: Any, functions: tuple[Any, Any] | None = None) -> float:
        """λ tr(F'LF) + μ‖F - G‖² + ‖XV - F‖² + β‖V‖² of both sides; V and W the best ones if not given."""
        total = self.mu * np.sum((F - G) ** 2)
        for t, codes in enumerate((F, G)):
            X, V = self.sides[t].values.astype(np.float64), None if functions is None else functions[t]
            beta = RIDGE * np.sum(X**2) / X.shape[1]
            V = np.linalg.solve(X.T @ X + beta * np.eye(X.shape[1]), X.T @ codes) if V is None else V
            total += LAM * np.trace(codes.T @ self.laplacians[t] @ codes)
            total += np.sum((X @ V - codes) ** 2) + beta * np.sum(V**2)
        return float(total)

    def solution(self, skip_constant: bool = False) -> tuple[Any, Any]:
        return imh.solve_relaxed_codes(self.forms[0], self.forms[1], self.mu, BITS, skip_constant)


def orthonormal(rng: np.random.Generator, centred: bool, near: Any = 0.0, step: float = 1.0) -> Any:
    """Codes F with F'F = I, and F'1 = 0 if asked: any, or some that are not far from given ones."""
    start = near + step * rng.standard_normal((N, BITS))
    return np.linalg.qr(start - start.mean(axis=0) if centred else start)[0]


each_coupling = pytest.mark.parametrize("mu", [0.01, 1.0, 1e4, 1e10])


# The closed form


def test_the_form_is_what_is_left_of_the_regression() -> None:
    X = Problem(1.0).sides[0]
    F = np.random.default_rng(1).standard_normal((N, BITS))
    with Workers(1) as workers:
        A = imh.residual_form(X, RIDGE, workers)
        V = fit_ridge(X, F, RIDGE, workers)
    beta = RIDGE * np.sum(X.values.astype(np.float64) ** 2) / X.shape[1]
    left = np.sum((X.values @ V - F) ** 2) + beta * np.sum(V**2)
    assert np.trace(F.T @ A @ F) == pytest.approx(left)
    eigenvalues = np.linalg.eigvalsh(A)
    assert eigenvalues[0] > 0 and eigenvalues[-1] < 1 + 1e-9


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (12, 12)])
@pytest.mark.parametrize("thin", [False, True], ids=["dense", "sparse"])
def test_the_form_is_the_same_for_long_and_for_wide_rows(shape: tuple[int, int], thin: bool) -> None:
    values = np.random.default_rng(5).poisson(0.5, size=shape).astype(np.float32)
    mean = values.mean(axis=0, dtype=np.float64)
    X = values - mean
    beta = RIDGE * np.sum(X**2) / shape[1]
    expected = np.eye(shape[0]) - X @ np.linalg.solve(X.T @ X + beta * np.eye(shape[1]), X.T)
    rows = (
        CentredSparseRows(sparse.csr_matrix(values), mean, np.ones(len(X)))
        if thin
        else DenseRows(X.astype(np.float32))
    )
    with Workers(1) as workers:
        np.testing.assert_allclose(imh.residual_form(rows, RIDGE, workers), expected, atol=1e-6)


@pytest.mark.parametrize("skip_constant", [False, True])
@each_coupling
def test_no_other_codes_cost_less(mu: float, skip_constant: bool) -> None:
    problem, rng = Problem(mu), np.random.default_rng(2)
    F, G = problem.solution(skip_constant)
    np.testing.assert_allclose(F.T @ F, np.eye(BITS), atol=1e-10)
    least = problem.objective(F, G)
    coupling = mu * np.linalg.inv(problem.forms[1] + mu * np.eye(N))
    for trial in range(40):
        near = (F, 10.0 ** -(trial % 5)) if trial % 2 else ()
        other = orthonormal(rng, skip_constant, *near)
        assert problem.objective(other, coupling @ other) >= least * (1 - 1e-7)
        moved = G + 10.0 ** -(trial % 5) * rng.standard_normal(G.shape)
        assert problem.objective(F, moved) >= least * (1 - 1e-7)


@pytest.mark.parametrize("mu", [0.01, 1.0, 100.0])
def test_the_gradients_vanish_where_nothing_binds(mu: float) -> None:
    problem, rng = Problem(mu), np.random.default_rng(3)
    F, G = problem.solution()
    with Workers(1) as workers:
        V, W = (fit_ridge(X, Z, RIDGE, workers) for X, Z in zip(problem.sides, (F, G), strict=True))

    def slope(G: Any, V: Any, W: Any, move: str) -> float:
        here = {"G": G, "V": V, "W": W}
        direction, values = rng.standard_normal(here[move].shape), []
        for step in (1e-4, -1e-4):
            at = here | {move: here[move] + step * direction}
            values.append(problem.objective(F, at["G"], (at["V"], at["W"])))
        return (values[0] - values[1]) / 2e-4

    for move in "GVW":
        assert abs(slope(G, V, W, move)) < 1e-6
        assert abs(slope(G + 0.1, V + 0.1, W + 0.1, move)) > 1e-3


@each_coupling
def test_the_form_of_the_paper_has_the_same_least_eigenvectors(mu: float) -> None:
    """D = B_X + E'B_Y E + μ(I - E)'(I - E); with a large μ it is ours that keeps its digits."""
    problem = Problem(mu)
    F, G = problem.solution()
    B_X, B_Y = problem.forms
    E = np.linalg.inv(np.eye(N) + B_Y / mu)
    D = B_X + E.T @ B_Y @ E + mu * (np.eye(N) - E).T @ (np.eye(N) - E)
    values, vectors = np.linalg.eigh((D + D.T) / 2)
    assert np.trace(F.T @ D @ F) == pytest.approx(values[:BITS].sum(), rel=1e-6)
    cosines = np.linalg.svd(vectors[:, :BITS].T @ F)[1]
    np.testing.assert_allclose(cosines, 1.0, atol=1e-6)
    np.testing.assert_allclose(G, E @ F, atol=1e-9)


def test_a_strong_coupling_makes_both_halves_equal_and_a_weak_one_does_not() -> None:
    strong, weak = Problem(1e6).solution(), Problem(0.01).solution()
    np.testing.assert_allclose(strong[0], strong[1], atol=1e-5)
    assert np.linalg.norm(weak[1]) < 0.5 * np.linalg.norm(weak[0])


def test_constant_codes_can_be_left_out() -> None:
    problem = Problem(1.0)
    F = problem.solution(True)[0]
    np.testing.assert_allclose(F.sum(axis=0), 0.0, atol=1e-9)
    D = np.arange(9.0).reshape(3, 3) + np.arange(9.0).reshape(3, 3).T + 40 * np.eye(3)
    values, vectors = np.linalg.eigh(imh.move_constant_last(D))
    np.testing.assert_allclose(np.abs(vectors[:, -1]), 3**-0.5)
    H = np.eye(3) - 1 / 3
    np.testing.assert_allclose(values[:2], np.linalg.eigvalsh(H @ D @ H)[1:])
    few = [form[:4, :4] for form in problem.forms]
    assert [imh.solve_relaxed_codes(*few, 1.0, BITS, skip)[0].shape for skip in (False, True)] == [
        (4, 4),
        (4, 3),
    ]


def test_with_centred_rows_the_constant_is_an_eigenvector_that_says_nothing() -> None:
    problem = Problem(1.0)
    F = imh.solve_relaxed_codes(*problem.forms, 1.0, N, False)[0]
    cosines = np.abs(F.sum(axis=0)) / N**0.5
    assert cosines.max() == pytest.approx(1.0, abs=1e-6) and cosines.argmax() > 0
    with Workers(1) as workers:
        V = fit_ridge(problem.sides[0], F[:, cosines.argmax() : cosines.argmax() + 1], RIDGE, workers)
    np.testing.assert_allclose(V, 0.0, atol=1e-6)


# The system


def test_a_fit_is_made_of_these_pieces_with_the_parameters_that_it_has() -> None:
    problem = Problem(0.7)
    parameters = {"n_neighbours": 4, "smoothness": LAM, "ridge": RIDGE, "pair_weight": 0.7}
    method = make_method("imh", BITS, parameters=parameters)
    with Workers(1) as workers:
        found = method._learn_functions(*problem.sides, None, workers)
        for bits, rows, codes in zip(found, problem.sides, problem.solution(True), strict=True):
            np.testing.assert_allclose(bits.weights, fit_ridge(rows, codes, RIDGE, workers))


@pytest.mark.parametrize("similarity", ["pairs", "labels"])
def test_every_bit_halves_the_training_documents(similarity: str) -> None:
    data = documents(200)
    method = make_method("imh", 12, similarity=similarity).fit(*data)
    for side in ("image", "text"):
        bits = np.unpackbits(method.training_items(side), axis=1)[:, :12]
        assert (np.abs(bits.sum(axis=0) - 100.0) <= 2).all()


def test_medians_are_those_of_the_training_documents_not_of_a_batch() -> None:
    images, texts, _ = documents(200)
    method = make_method("imh", 12).fit(images, texts)
    codes = method.queries("image", images)
    far = np.argsort(images[:, 0])[:20]  # a batch of its own kind
    np.testing.assert_array_equal(method.queries("image", images[far]), codes[far])
    np.testing.assert_array_equal(codes, method.training_items("image"))


def test_medians_are_over_all_documents_where_a_part_is_learned_from() -> None:
    images, texts, labels = documents(300)
    method = make_method("imh", 8, similarity="labels", parameters={"max_documents": 40}).fit(
        images, texts, labels
    )
    assert method.details == {"n_learned_from": 40}
    for side in ("image", "text"):
        bits = np.unpackbits(method.training_items(side), axis=1)
        assert (np.abs(bits.sum(axis=0) - 150.0) <= 2).all()
    assert make_method("imh", 8).fit(images, texts).details == {"n_learned_from": 300}


def test_labels_say_who_may_be_a_neighbour() -> None:
    images, texts, labels = documents(200)
    parameters = {"smoothness": 0.1, "n_neighbours": 20}
    found = {}
    wrong = np.repeat(np.eye(4, dtype=np.uint8), 50, axis=0)
    for name, given in (("own", labels), ("renamed", np.roll(labels, 1, axis=1)), ("wrong", wrong)):
        method = make_method("imh", 8, similarity="labels", parameters=parameters).fit(images, texts, given)
        found[name] = method.training_items("image")
    np.testing.assert_array_equal(found["own"], found["renamed"])  # only who shares one counts
    found["none"] = make_method("imh", 8, parameters=parameters).fit(images, texts).training_items("image")
    assert all((found["own"] != found[name]).any() for name in ("wrong", "none"))


def test_more_bits_than_documents_end_in_bits_that_are_never_set() -> None:
    images, texts, _ = documents(6)
    codes = make_method("imh", 16).fit(images, texts).training_items("text")
    bits = np.unpackbits(codes, axis=1)
    assert bits[:, :5].any(axis=0).all() and not bits[:, 5:].any()


def test_wide_sparse_texts_are_never_written_out_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    most, dense = 0, CentredSparseRows.dense

    def watched(rows: CentredSparseRows) -> Any:
        nonlocal most
        most = max(most, rows.shape[0])
        return dense(rows)

    monkeypatch.setattr(CentredSparseRows, "dense", watched)
    rng = np.random.default_rng(6)
    wide = sparse.random_array((700, 3000), density=0.002, rng=rng, format="csr")
    make_method("imh", 8).fit(rng.standard_normal((700, 5)), wide)
    assert 0 < most <= ROWS_AT_ONCE < 700


def test_sparse_and_dense_texts_give_the_same() -> None:
    rng = np.random.default_rng(4)
    topics = np.arange(150) % 5
    texts = rng.poisson(0.2 + 1.5 * (np.arange(30) % 5 == topics[:, None])).astype(np.float32)
    images = np.eye(5)[topics] @ rng.standard_normal((5, 8)) + 0.5 * rng.standard_normal((150, 8))
    dense, thin = (make_method("imh", 16).fit(images, rows) for rows in (texts, sparse.csr_matrix(texts)))
    for side in ("image", "text"):
        differing = dense.training_items(side) ^ thin.training_items(side)
        assert np.bitwise_count(differing).mean() < 0.05  # a row at the median of a bit may fall either way


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_neighbours", 0),
        ("smoothness", -1.0),
        ("ridge", 0.0),
        ("pair_weight", 0.0),
        ("skip_constant", "no"),
        ("max_documents", 1),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        make_method("imh", 16, parameters={name: value})
