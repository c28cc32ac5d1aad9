"""MMNN: gradients and losses beside plain twins, descent that descends, and what the networks find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import mmnn
from crossbyte.lab.methods import mmnn as siamese
from crossbyte.lab.methods.hashing import hamming_distances
from crossbyte.lab.methods.labels import SignedPairs, draw_signed_pairs
from crossbyte.lab.methods.method import Side
from crossbyte.lab.methods.mmnn import (
    MMNN,
    DescentSettings,
    Network,
    Relation,
    TrainingPairs,
    learn_input_scaling,
    loss_gradients,
    pass_forward,
    total_loss,
    train_networks,
)
from crossbyte.lab.methods.neighbours import neighbour_graph

N_TRAIN = 400
TASKS: list[tuple[Side, Side]] = [("image", "text"), ("text", "image")]
QUICK: dict[str, Any] = {"n_pairs": 4000, "n_epochs": 5, "n_hidden": 32}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def two_sides(n: int = 30) -> tuple[Any, Any]:
    return rng(1).standard_normal((n, 6)), rng(2).standard_normal((n, 4))


def networks_of(sides: tuple[Any, Any], n_outputs: int = 5) -> tuple[Network, Network]:
    """Networks with offsets, too, so that nothing is zero by accident."""
    found = [siamese.initial_network(side.shape[1], 7, n_outputs, rng(3 + k)) for k, side in enumerate(sides)]
    first, second = (
        net._replace(a=rng(5).standard_normal(7), b=rng(6).standard_normal(n_outputs)) for net in found
    )
    return first, second


def a_lesson(n_pairs: int = 40, margin: float = 2.5, decay: float = 0.1) -> TrainingPairs:
    sides = two_sides()
    ends_and_weights = (((0, 1), 1.0), ((0, 0), 0.3), ((1, 1), 2.0))
    relations = tuple(
        Relation(ends, draw_signed_pairs(30, n_pairs, rng(7 + k)), weight)
        for k, (ends, weight) in enumerate(ends_and_weights)
    )
    return TrainingPairs(sides, relations, margin, decay)


def documents(n: int = 600) -> tuple[Any, Any, Any]:
    drawn = make_pairs(n, 24, 60, n_classes=4, n_topics=12, noise=0.1, words_per_text=40, random_state=0)
    return drawn.images, drawn.texts, np.eye(4, dtype=np.uint8)[drawn.labels]


# The networks


def test_the_loss_is_that_of_a_plain_twin() -> None:
    lesson = a_lesson()
    networks = networks_of(lesson.sides)
    outputs = [
        np.tanh(np.tanh(rows @ net.W + net.a) @ net.V + net.b)
        for net, rows in zip(networks, lesson.sides, strict=True)
    ]
    expected = 0.05 * sum((net.W**2).sum() + (net.V**2).sum() for net in networks)
    for (left, right), pairs, weight in lesson.relations:
        for i, j, sign in zip(pairs.left, pairs.right, pairs.signs, strict=True):
            distance = float(np.linalg.norm(outputs[left][i] - outputs[right][j]))
            own = distance**2 if sign > 0 else max(0.0, 2.5 - distance) ** 2
            expected += weight * own / len(pairs.signs)
    assert total_loss(networks, lesson) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("part", Network._fields)
def test_gradients_are_those_of_differences(side: int, part: str) -> None:
    lesson = a_lesson()
    networks = networks_of(lesson.sides)
    found = getattr(loss_gradients(networks, lesson)[side], part)

    def shifted(place: tuple[int, ...], step: float) -> float:
        values = getattr(networks[side], part).copy()
        values[place] += step
        changed = list(networks)
        changed[side] = networks[side]._replace(**{part: values})
        return total_loss((changed[0], changed[1]), lesson)

    step = 1e-6
    for place in np.ndindex(found.shape):
        expected = (shifted(place, step) - shifted(place, -step)) / (2 * step)
        assert found[place] == pytest.approx(expected, abs=1e-7)


def test_pairs_are_drawn_together_or_pushed_apart_up_to_the_margin() -> None:
    u = np.array([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [1.0, 1.0]])
    v = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    value, (left, right) = siamese.contrastive_loss(u, v, np.array([1.0, -1.0, 1.0, -1.0]), 7.0)
    assert value == pytest.approx((25 + 4 + 25 + 49) / 4)
    # Downhill, the alike go to each other and the unlike go away; two in the same place stay.
    np.testing.assert_allclose(left, [[1.5, 2.0], [-0.6, -0.8], [1.5, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(right, -left)
    assert siamese.contrastive_loss(u[:1], v[:1], np.array([-1.0]), 4.0).value == 0.0


def test_the_loss_over_all_pairs_falls_and_the_best_epoch_is_kept() -> None:
    lesson = a_lesson()
    before = networks_of(lesson.sides)
    networks, losses = train_networks(before, lesson, DescentSettings(0.02, 30, 10), rng())
    assert len(losses) == 31
    assert losses[0] == total_loss(before, lesson)
    assert losses[-1] < 0.8 * losses[0]
    assert np.mean(np.diff(losses) < 0) > 0.8
    assert total_loss(networks, lesson) == min(losses)
    # Steps that are far too long lose nothing that was reached before them.
    wild, losses = train_networks(before, lesson, DescentSettings(20.0, 5, 10), rng())
    assert total_loss(wild, lesson) == min(losses) <= losses[0]


def test_without_an_epoch_nothing_changes() -> None:
    lesson = a_lesson()
    before = networks_of(lesson.sides)
    networks, losses = train_networks(before, lesson, DescentSettings(0.02, 0, 10), rng())
    assert networks is before
    assert losses == [total_loss(before, lesson)]


def test_all_pairs_come_once_in_each_epoch() -> None:
    pairs = SignedPairs(np.arange(7), np.arange(10, 17), np.arange(7.0))
    relations = Relation((0, 1), pairs, 1.0), Relation((0, 0), pairs, 0.5)
    lesson = TrainingPairs(two_sides(), relations, 1.0, 0.0)
    parts = list(siamese._batches(lesson, 3, rng()))
    for k in (0, 1):
        taken = [part.relations[k].pairs for part in parts]
        assert [len(of.signs) for of in taken] == [3, 3, 1]
        left = np.concatenate([of.left for of in taken])
        np.testing.assert_array_equal(np.sort(left), np.arange(7))
        for of in taken:
            np.testing.assert_array_equal(of.right, of.left + 10)
            np.testing.assert_array_equal(of.signs, of.left)


def test_a_full_step_of_the_smallest_length_lowers_the_loss() -> None:
    lesson = a_lesson()
    networks = networks_of(lesson.sides)
    stepped = siamese._add_both_networks(1.0, networks, -1e-4, loss_gradients(networks, lesson))
    assert total_loss(stepped, lesson) < total_loss(networks, lesson)


# Their inputs


def test_inputs_are_centred_have_unit_variance_together_and_no_blown_up_noise() -> None:
    rows = rng().standard_normal((500, 8)) * np.array([1e4, 3e3, 1e3, 10, 10, 10, 1, 0]) + 1e5
    with Workers(1) as workers:
        for n_dims in (5, 20):
            values = learn_input_scaling(rows, "rows", n_dims, 0.1, workers).values(rows)
            assert values.shape == (500, min(n_dims, 8))
            np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-8)
            assert values.var(axis=0).mean() == pytest.approx(1.0)
            assert (values.std(axis=0) > 0.8).sum() >= 2
            assert values.std(axis=0).min() < 0.02


def test_inputs_of_sparse_rows_are_those_of_the_same_dense_ones() -> None:
    texts = documents()[1]
    with Workers(1) as workers:
        dense = learn_input_scaling(texts.toarray(), "texts", 20, 0.1, workers)
        thin = learn_input_scaling(texts, "texts", 20, 0.1, workers)
    np.testing.assert_allclose(thin.values(texts), dense.values(texts.toarray()), atol=1e-6)


def test_a_code_is_the_sign_of_what_the_network_makes_of_the_inputs() -> None:
    images = documents()[0]
    with Workers(1) as workers:
        inputs = learn_input_scaling(images, "images", 10, 0.1, workers)
    rows = inputs.values(images)
    network = networks_of((rows, rows))[0]
    hidden, outputs = mmnn._layers_as_functions(inputs, network)
    values = outputs.values(np.tanh(hidden.values(images)))
    np.testing.assert_allclose(np.tanh(values), pass_forward(network, rows).outputs, atol=1e-6)


# The system


def precision(method: MMNN, images: Any, texts: Any, relevant: Any) -> list[float]:
    """Share of relevant items among the nearest ten, both ways."""
    sides, found = {"image": images, "text": texts}, []
    for query, searched in TASKS:
        queries = method.queries(query, sides[query])
        distances = method.distances(searched, queries, method.side_items(searched, sides[searched]))
        first = np.argsort(distances + 0.5 * rng().random(distances.shape), axis=1)[:, :10]
        found.append(float(np.take_along_axis(relevant, first, axis=1).mean()))
    return found


@pytest.mark.parametrize("similarity", ["labels", "pairs"])
def test_unseen_documents_of_the_same_class_are_found(similarity: str) -> None:
    images, texts, labels = documents()
    method = MMNN(n_bits=16, similarity=similarity, **QUICK)
    method.fit(images[:N_TRAIN], texts[:N_TRAIN], labels[:N_TRAIN])
    same = labels[N_TRAIN:] @ labels[N_TRAIN:].T > 0
    assert min(precision(method, images[N_TRAIN:], texts[N_TRAIN:], same)) > 0.5  # chance is 1/4
    losses = method.details["losses"]
    assert len(losses) == 6 and losses[-1] == min(losses) < 0.7 * losses[0]


def test_unseen_partners_are_found() -> None:
    images, texts, _ = documents()
    method = MMNN(n_bits=32, **QUICK).fit(images[:N_TRAIN], texts[:N_TRAIN])
    found = precision(method, images[N_TRAIN:], texts[N_TRAIN:], np.eye(200))
    assert min(found) > 0.025  # a partner in the first ten of every fourth query; chance is 0.005


def test_neighbours_are_looked_for_in_a_part_of_the_documents() -> None:
    images, texts, labels = documents(200)
    for similarity, expected in (("pairs", 60), ("labels", 0)):
        method = MMNN(n_bits=8, similarity=similarity, max_documents=60, **QUICK)
        assert method.fit(images, texts, labels).details["n_neighbours_among"] == expected
    assert MMNN(n_bits=8, **QUICK).fit(images, texts).details["n_neighbours_among"] == 200


def test_only_neighbours_are_of_a_part_and_pairs_across_are_of_all() -> None:
    sides = two_sides(40)
    with Workers(1) as workers:
        across, *own = MMNN(n_pairs=200, max_documents=10)._draw_relations(sides, None, rng(), workers)
    assert set(across.pairs.left) == set(across.pairs.right) == set(range(40))
    assert all(len({*of.pairs.left, *of.pairs.right}) <= 10 for of in own)


@pytest.mark.parametrize("side", ["image", "text"])
def test_the_more_pairs_within_a_side_weigh_the_nearer_are_its_neighbours(side: Side) -> None:
    images, texts, _ = documents(200)
    raw = images if side == "image" else texts
    shares = []
    with Workers(1) as workers:
        inputs = DenseRows(learn_input_scaling(raw, side, 128, 0.1, workers).values(raw).astype(np.float32))
        near = neighbour_graph(inputs, 10, workers).toarray() > 0
    for weight in (0.0, 0.3, 3.0):
        weights = {"image_weight": 0.0, "text_weight": 0.0, f"{side}_weight": weight}
        codes = MMNN(n_bits=32, **weights, **QUICK).fit(images, texts).training_items(side)
        distances = hamming_distances(codes, codes)
        shares.append(distances[near].mean() / distances.mean())
    assert shares[0] > shares[1] > shares[2]


def test_relations_join_rows_of_the_sides_that_they_name() -> None:
    sides = two_sides(40)
    labels = np.eye(4, dtype=bool)[np.arange(40) % 4]
    for known in (None, labels):
        with Workers(1) as workers:
            method = MMNN(n_pairs=60, n_neighbours=3, image_weight=0.2, text_weight=0.7)
            across, *own = method._draw_relations(sides, known, rng(), workers)
        assert (across.ends, across.weight) == ((0, 1), 1.0)
        assert [(of.ends, of.weight) for of in own] == [((0, 0), 0.2), ((1, 1), 0.7)]
        for relation in (across, *own):
            assert relation.pairs.signs.sum() == 0 and len(relation.pairs.signs) == 60
        for relation in own if known is None else []:
            rows, pairs = sides[relation.ends[0]], relation.pairs
            lengths = np.linalg.norm(rows[pairs.left] - rows[pairs.right], axis=1)
            assert lengths[pairs.signs > 0].mean() < 0.7 * lengths[pairs.signs < 0].mean()


def test_the_same_seed_gives_the_same_codes_whatever_the_threads_the_batch_and_the_storage() -> None:
    images, texts, _ = documents(200)
    one, two, other = (
        MMNN(n_bits=12, n_jobs=jobs, random_state=seed, **QUICK).fit(images, texts)
        for jobs, seed in ((1, 3), (2, 3), (1, 4))
    )
    thin = MMNN(n_bits=12, random_state=3, **QUICK).fit(sparse.csr_array(images), texts.toarray())
    sides: dict[Side, Any] = {"image": images, "text": texts}
    for side, rows in sides.items():
        codes = one.training_items(side)
        np.testing.assert_array_equal(codes, two.training_items(side))
        np.testing.assert_array_equal(codes[7:8], one.queries(side, rows[7:8]))
        assert (codes != other.training_items(side)).any()
        differing = np.bitwise_count(codes ^ thin.training_items(side)).sum()
        assert differing < 0.02 * 200 * 12  # rounding falls otherwise


def test_wide_sparse_texts_are_never_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (sparse.csr_matrix, sparse.csr_array):
        monkeypatch.setattr(kind, "toarray", None)
    wide = sparse.random_array((60, 30_000), density=0.001, rng=rng(), format="csr")
    method = MMNN(n_bits=8, n_components=8, **QUICK).fit(rng().standard_normal((60, 5)), wide)
    assert method.training_items("text").shape == (60, 1)


def test_what_cannot_be_meant_is_refused() -> None:
    wrong: dict[str, Any] = {
        "n_hidden": 0,
        "image_weight": -0.1,
        "text_weight": np.nan,
        "margin": 0.0,
        "decay": -1.0,
        "n_pairs": 1,
        "n_neighbours": 0,
        "max_documents": 2,
        "n_components": 0,
        "ridge": 0.0,
        "learning_rate": 0.0,
        "n_epochs": -1,
    }
    for name, value in wrong.items():
        with pytest.raises(InvalidInput, match=name):
            MMNN(**{name: value})
    with pytest.raises(InvalidInput, match="are not neighbours"):
        MMNN(**QUICK).fit(np.eye(2), np.eye(2))
    assert MMNN(n_bits=8, **QUICK).fit(rng().random((5, 3)), rng(1).random((5, 2))).details["losses"]
