"""SM2H: its hypergraph, its objective and updates, its sets and their distance, and what it finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossbyte._not_fitted import NotFitted
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows, Preparation
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import sm2h
from crossbyte.lab.methods import sm2h as sm2h_sets
from crossbyte.lab.methods import sm2h as sm2h_updates
from crossbyte.lab.methods.method import Method
from crossbyte.lab.methods.registry import about_method, make_method
from crossbyte.lab.methods.sm2h import EdgeWeights, Hypergraph, Penalties, State, build_hypergraph
from crossbyte.metrics.ranks import partner_ranks_ties_by_column, recall_at
from crossbyte.model.space.sparse import optimality_gap

N, DIMS, ATOMS = 40, (6, 4), 9
WEIGHTS = EdgeWeights(0.7, 2.0, 1.5)
PENALTIES = Penalties((0.05, 0.08), 0.4)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def sides(seed: int = 0) -> tuple[DenseRows, DenseRows]:
    rng = np.random.default_rng(seed)
    first, second = (DenseRows(unit(rng.standard_normal((N, d))).astype(np.float32)) for d in DIMS)
    return first, second


def labels() -> Any:
    """Some documents have two labels, one has none, and nobody has the last one."""
    known = np.eye(4, dtype=bool)[np.arange(N) % 3]
    known[::5, 1] = True
    known[0] = False
    return known


def graph(labelled: bool, n_nearest: int = 3) -> Hypergraph:
    with Workers(1) as workers:
        return build_hypergraph(sides(), n_nearest, WEIGHTS, workers, labels() if labelled else None)


def state(seed: int = 1) -> State:
    rng = np.random.default_rng(seed)
    D, E = (0.8 * unit(rng.standard_normal((ATOMS, d))) for d in DIMS)
    codes = rng.standard_normal((2 * N, ATOMS)) * (rng.random((2 * N, ATOMS)) < 0.3)
    return State(codes, (D, E))


def members(found: Hypergraph) -> list[tuple[frozenset[int], float]]:
    dense = found.incidence.toarray()
    return [
        (frozenset(np.flatnonzero(column)), weight)
        for column, weight in zip(dense.T, found.weights, strict=True)
    ]


def fit(similarity: str = "pairs", n_bits: int = 16, n: int = 300, **parameters: Any) -> tuple[Method, Any]:
    data = make_pairs(n + 100, 24, 60, n_classes=4, n_topics=12, noise=0.1, words_per_text=40, random_state=0)
    known = np.eye(4)[data.labels]
    method = make_method("sm2h", n_bits, similarity=similarity, parameters=parameters)
    return method.fit(data.images[:n], data.texts[:n], known[:n]), data


# The hypergraph


@pytest.mark.parametrize("labelled", [False, True])
def test_hyperedges_are_neighbours_halves_and_labels(labelled: bool) -> None:
    found, known, expected = members(graph(labelled)), labels(), []
    for offset, side in zip((0, N), sides(), strict=True):
        rows = side.dense().astype(float)
        for i in range(N):
            like = [j for j in range(N) if j != i and (not labelled or (known[i] & known[j]).any())]
            near = sorted(like, key=lambda j: float(np.sum((rows[i] - rows[j]) ** 2)))[:3]
            expected.append((frozenset(offset + j for j in [i, *near]), WEIGHTS.neighbours / 4))
    expected += [(frozenset((i, N + i)), WEIGHTS.pairs) for i in range(N)]
    if labelled:
        for label in range(3):
            own = np.flatnonzero(known[:, label])
            expected.append((frozenset([*own, *(N + own)]), WEIGHTS.labels))
    assert found == expected


@pytest.mark.parametrize("labelled", [False, True])
def test_the_laplacian_is_the_spread_within_hyperedges(labelled: bool) -> None:
    joined, values = graph(labelled), np.random.default_rng(0).standard_normal((2 * N, 5))
    spread = 0.0
    for vertices, weight in members(joined):
        own = values[sorted(vertices)]
        spread += weight * np.sum((own - own.mean(axis=0)) ** 2)
    assert np.vdot(values, joined.laplacian_times(values)) == pytest.approx(spread)
    np.testing.assert_allclose(joined.laplacian_times(np.ones((2 * N, 1))), 0.0, atol=1e-12)


def test_a_vertex_degree_bounds_its_curvature() -> None:
    joined = graph(True)
    matrix = joined.laplacian_times(np.eye(2 * N))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-12
    assert np.linalg.eigvalsh(np.diag(joined.degrees) - matrix)[0] > -1e-12


# The objective and its updates


def naive_objective(at: State, joined: Hypergraph, penalties: Penalties = PENALTIES) -> float:
    total = 0.5 * penalties.shrinkage * np.sum(at.codes**2)
    total += 0.5 * np.trace(at.codes.T @ joined.laplacian_times(np.eye(2 * N)) @ at.codes)
    halves = at.codes[:N], at.codes[N:]
    for side, half, atoms, lam in zip(sides(), halves, at.dictionaries, penalties.sparsities, strict=True):
        total += 0.5 * np.sum((side.dense() - half @ atoms) ** 2) + lam * np.abs(half).sum()
    return float(total) / N


@pytest.mark.parametrize("labelled", [False, True])
def test_the_objective_is_what_is_written_down(labelled: bool) -> None:
    joined = graph(labelled)
    expected = naive_objective(state(), joined)
    assert sm2h_updates.objective(state(), sides(), PENALTIES, joined) == pytest.approx(expected, rel=1e-6)


def test_the_gradient_is_that_of_differences() -> None:
    joined, at, step = graph(True), state(), 1e-6
    smooth = Penalties((0.0, 0.0), PENALTIES.shrinkage)
    problem = sm2h_updates._Problem.of(at.dictionaries, sides(), smooth, joined)
    gradient = problem.curved(at.codes) - problem.products
    for place in [(0, 0), (3, 5), (N, 2), (2 * N - 1, ATOMS - 1)]:
        moved = np.zeros_like(at.codes)
        moved[place] = step
        ends = [State(at.codes + sign * moved, at.dictionaries) for sign in (1, -1)]
        up, down = (N * naive_objective(end, joined, smooth) for end in ends)
        assert (up - down) / (2 * step) == pytest.approx(gradient[place], abs=1e-5)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("n_steps", [1, 7, 30])
def test_no_update_raises_the_objective(labelled: bool, n_steps: int) -> None:
    joined, at = graph(labelled), state()
    values = [sm2h_updates.objective(at, sides(), PENALTIES, joined)]
    for _ in range(6):
        at = sm2h_updates.update_codes(at, sides(), PENALTIES, joined, n_steps)
        values.append(sm2h_updates.objective(at, sides(), PENALTIES, joined))
        at = sm2h_updates.update_dictionaries(at, sides())
        values.append(sm2h_updates.objective(at, sides(), PENALTIES, joined))
        assert all(np.linalg.norm(atoms, axis=1).max() <= 1 + 1e-12 for atoms in at.dictionaries)
    assert (np.diff(values) <= 1e-12).all() and values[-1] < 0.8 * values[0]


def test_many_steps_end_where_no_coordinate_can_be_better() -> None:
    joined = graph(True)
    at = sm2h_updates.update_codes(state(), sides(), PENALTIES, joined, 2000)
    problem = sm2h_updates._Problem.of(at.dictionaries, sides(), PENALTIES, joined)
    gradient, lam = problem.curved(at.codes) - problem.products, problem.sparsities
    off = at.codes == 0
    assert 0.1 < off.mean() < 0.9
    assert (np.abs(gradient) - lam)[off].max() < 1e-6
    assert np.abs(gradient + lam * np.sign(at.codes))[~off].max() < 1e-6


def test_dictionaries_are_the_best_in_the_unit_ball() -> None:
    at = sm2h_updates.update_dictionaries(state(), sides())
    for side, half, atoms in zip(sides(), np.split(at.codes, 2), at.dictionaries, strict=True):
        assert optimality_gap(half.T @ half, half.T @ side.dense(), atoms) < 1e-5


def test_rows_alone_are_coded_at_the_minimum_of_their_own_part() -> None:
    rows, atoms, lam, rho = sides()[0], state().dictionaries[0], 0.07, 0.6
    with Workers(1) as workers:
        codes = sm2h_updates.sparse_codes(rows, atoms, lam, rho, workers)
    gradient = (codes @ atoms - rows.dense()) @ atoms.T + rho * codes
    assert (np.abs(gradient) - lam)[codes == 0].max() < 1e-4
    assert np.abs(gradient + lam * np.sign(codes))[codes != 0].max() < 1e-4


def test_it_starts_from_one_code_for_both_halves_with_more_atoms_than_documents() -> None:
    with Workers(1) as workers:
        at, penalties = sm2h_updates.initial_state(
            sides(), N + 5, 0.3, 1.0, np.random.default_rng(0), workers
        )
    np.testing.assert_array_equal(at.codes[:N], at.codes[N:])
    for side, atoms, lam in zip(sides(), at.dictionaries, penalties.sparsities, strict=True):
        np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0)
        most = np.abs(side.dense() @ atoms.T).max(axis=1)
        assert lam == pytest.approx(0.3 * most.mean(), rel=1e-6)


# Sets and their distance


def test_large_are_the_most_positive_coefficients() -> None:
    codes = np.array([[0.1, 0.5, -0.9, 0.3], [0.2, 0.2, 0.2, 0.0], [-1.0, -2.0, 0.0, -3.0]])
    expected = np.array([[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(sm2h_sets.mark_large_coefficients(codes, 2), expected)
    np.testing.assert_array_equal(sm2h_sets.mark_large_coefficients(codes, 9), codes > 0)


def naive_jaccard(left: Any, right: Any, weights: Any) -> float:
    shared, either = weights[left & right].sum(), weights[left | right].sum()
    return float(1.0 - shared / either) if either else 1.0


@pytest.mark.parametrize("n_atoms", [1, 11, 64, 200])
def test_distances_are_those_of_sets_in_any_batch(n_atoms: int) -> None:
    rng = np.random.default_rng(n_atoms)
    weights = rng.integers(0, 65, n_atoms).astype(np.float32)
    queries, items = (rng.random((n, n_atoms)) < 0.3 for n in (13, 29))
    queries[0], items[0] = False, False
    packed = [np.packbits(sets, axis=1) for sets in (queries, items)]
    found = sm2h_sets.jaccard_distances(*packed, weights)
    expected = [[naive_jaccard(query, item, weights) for item in items] for query in queries]
    assert found.dtype == np.float32 and found.min() >= 0 and found.max() <= 1
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for i in range(len(queries)):
        alone = sm2h_sets.jaccard_distances(packed[0][i : i + 1], packed[1][:7], weights)
        np.testing.assert_array_equal(found[i : i + 1, :7], alone)


def test_atoms_weigh_as_much_as_both_halves_agree_on_them() -> None:
    rng = np.random.default_rng(0)
    images = (rng.random((4000, 4)) < [0.1, 0.3, 0.3, 0.3]).astype(float)
    texts = (rng.random((4000, 4)) < 0.3).astype(float)
    texts[:, :2], texts[:, 3] = images[:, :2], 1.0 - images[:, 3]
    weights = sm2h_sets.atom_weights(images, texts)
    assert weights.dtype == np.float32 and (weights == np.rint(weights)).all()
    assert weights[0] == 64 and weights[1] == pytest.approx(64 * np.log(0.3) / np.log(0.1), abs=2)
    assert weights[2] <= 2 and weights[3] == 0
    np.testing.assert_array_equal(sm2h_sets.atom_weights(np.ones((5, 3)), np.ones((5, 3))), 64.0 * np.ones(3))


def test_atoms_on_which_no_halves_agree_weigh_the_same() -> None:
    sets = np.zeros((50, 2))
    sets[:25] = 1.0
    np.testing.assert_array_equal(sm2h_sets.atom_weights(sets, 1.0 - sets), np.ones(2))


# The system


def test_whitened_rows_have_unit_variance_and_then_unit_length() -> None:
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((400, 8)) @ rng.standard_normal((8, 8)) + 3.0
    with Workers(1) as workers:
        for n_components in (None, 5):
            learned = sm2h.learn_whitening(raw, n_components, 1e-9, "images", workers)
            assert learned.components is not None and learned.n_dims == (n_components or 8)
            values = (raw * learned.scale - learned.mean) @ learned.components.T
            np.testing.assert_allclose(values.T @ values / 400, np.eye(learned.n_dims), atol=1e-4)
            prepared = learned.apply(raw, workers).dense()
            np.testing.assert_allclose(prepared, unit(values), atol=1e-5)
    assert isinstance(learned, Preparation)


@pytest.mark.parametrize("similarity", ["pairs", "labels"])
def test_a_fit_lowers_its_objective_in_every_round(similarity: str) -> None:
    method, _ = fit(similarity)
    history = method.details["objective"]
    assert len(history) == method.parameters["max_iter"] + 1
    assert (np.diff(history) <= 1e-12).all() and history[-1] < history[0]
    images, texts = method.details["atoms_per_code"]
    assert 1.0 < images <= 4.0 and 1.0 < texts <= 4.0 and abs(images - texts) < 1.5


def test_codes_are_sets_of_at_most_so_many_atoms() -> None:
    for parameters, most in (({}, 4), ({"set_size": 2}, 2), ({"set_size": 99}, 12)):
        method, _ = fit(n_bits=12, n=100, max_iter=2, **parameters)
        for side in ("image", "text"):
            bits = np.unpackbits(method.training_items(side), axis=1)
            assert 0 < bits.sum(axis=1).max() <= most and not bits[:, 12:].any()


def test_partners_lie_near_only_because_the_halves_are_coupled() -> None:
    recalls = []
    for pair_weight in (0.0, 30.0):
        method, data = fit(n_bits=32, pair_weight=pair_weight)
        new = slice(300, None)
        found = method.distances(
            "text", method.queries("image", data.images[new]), method.side_items("text", data.texts[new])
        )
        recalls.append(recall_at(partner_ranks_ties_by_column(found), 10))
    assert recalls[1] > recalls[0] and recalls[1] > 0.4


@pytest.mark.parametrize(
    ("similarity", "name"),
    [("pairs", "neighbour_weight"), ("labels", "neighbour_weight"), ("labels", "label_weight")],
)
def test_the_more_hyperedges_weigh_the_nearer_is_what_they_join(similarity: str, name: str) -> None:
    shares = []
    for weight in (0.0, 1.0, 30.0):
        method, data = fit(similarity, **{name: weight})
        own = data.labels[:300]
        joined = own[:, None] == own  # neighbours are mostly of one class, too
        found = method.distances("text", method.training_items("image"), method.training_items("text"))
        shares.append(found[joined].mean() / found.mean())
    assert shares[0] > shares[1] > shares[2]


def test_distances_are_weighted_as_was_learned_from_the_sets_of_both_halves() -> None:
    method, _ = fit(n_bits=12)
    assert isinstance(method, sm2h.SM2H)
    codes = [method.training_items(side) for side in ("image", "text")]
    sets = [np.unpackbits(part, axis=1, count=12).astype(bool) for part in codes]
    weights = sm2h_sets.atom_weights(*(part.astype(float) for part in sets))
    assert len(set(weights)) > 3
    for given in (weights, np.arange(12, dtype=np.float32)):
        found = method.distances("text", codes[0][:20], codes[1][:30])
        np.testing.assert_array_equal(found, sm2h_sets.jaccard_distances(codes[0][:20], codes[1][:30], given))
        expected = [[naive_jaccard(query, item, given) for item in sets[1][:30]] for query in sets[0][:20]]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        method._atom_weights = np.arange(12, dtype=np.float32)


def test_many_documents_are_learned_from_in_part_and_all_are_coded_like_new_ones() -> None:
    method, data = fit(max_documents=120)
    assert method.details["n_learned_from"] == 120
    for side, rows in (("image", data.images), ("text", data.texts)):
        items = method.training_items(side)
        assert len(items) == 300
        np.testing.assert_array_equal(items, method.side_items(side, rows[:300]))


def test_labels_of_some_documents_are_enough() -> None:
    data = make_pairs(80, 10, 20, n_classes=4, random_state=0)
    known = np.eye(4, dtype=np.uint8)[data.labels]
    known[::2] = 0
    method = make_method("sm2h", 8, similarity="labels").fit(data.images, data.texts, known)
    assert np.isfinite(method.details["objective"]).all()


def test_it_says_what_is_ours_and_refuses_what_cannot_be_meant() -> None:
    assert about_method("sm2h").reconstructed and about_method("sm2h").distance == "jaccard"
    wrong = [
        ("sparsity", 0.0),
        ("sparsity", 1.0),
        ("sparsity", 2),
        ("shrinkage", -1.0),
        ("pair_weight", -1.0),
        ("n_neighbours", 0),
    ]
    for name, value in [*wrong, ("set_size", 0), ("n_components", 0), ("ridge", 0.0), ("max_documents", 1)]:
        with pytest.raises(InvalidInput, match=name):
            make_method("sm2h", 8, parameters={name: value})
    codes = np.zeros((2, 1), dtype=np.uint8)
    with pytest.raises(NotFitted):
        make_method("sm2h", 8).distances("text", codes, codes)
    method, _ = fit(n=60, max_iter=1)
    with pytest.raises(InvalidInput, match="codes"):
        method.distances("text", codes, codes)
