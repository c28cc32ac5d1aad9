"""SePH_km and MLBE, and what they are made of: anchors, logistic regression, the objectives of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from crossbyte._not_fitted import NotFitted
from crossbyte.compute.executor import Workers
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods.labels import check_labels, normalise_labels, share_a_label
from crossbyte.lab.methods.mlbe import BLOCKS, MLBE, BitCoder, ascend_posterior, update_link, update_weights
from crossbyte.lab.methods.mlbe_bits import RelationGains, SimilarityGains, flip_bits, improve_codes
from crossbyte.lab.methods.mlbe_model import (
    CentredKernel,
    HalfState,
    PosteriorState,
    Relations,
    half_log_posterior,
    log_posterior,
    mark_nearest_documents,
    observe_relations,
)
from crossbyte.lab.methods.regression import (
    AnchorFeatures,
    LogisticBits,
    gaussian_kernel,
    loss_and_gradient,
    mean_squared_distance,
)
from crossbyte.lab.methods.seph import SePH, learn_codes, measure_divergence


def by_differences(function, at, step=1e-6):
    """Gradient of a function of one array, by central differences."""
    gradient = np.empty_like(at)
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        gradient[place] = (function(at + moved) - function(at - moved)) / (2 * step)
    return gradient


def known_pairs(n=60, n_classes=3, seed=0, image_dim=8, text_dim=12):
    """Pairs of classes far apart: images around a centre, texts with the words of their class."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % n_classes
    images = (4.0 * np.eye(image_dim))[classes] + 0.2 * rng.standard_normal((n, image_dim))
    words = np.arange(text_dim) % n_classes == classes[:, None]
    texts = words & (rng.random((n, text_dim)) < 0.8)
    labels = np.eye(n_classes, dtype=np.uint8)[classes]
    return images.astype(np.float32), sparse.csr_array(texts.astype(np.float32)), labels


def finds_the_class(model, images, texts, labels):
    """Share of right labels among the ten nearest training documents of every query, both tasks."""
    hits = []
    for asked, rows, searched in (("image", images, "text"), ("text", texts, "image")):
        distances = model.distances(searched, model.queries(asked, rows), model.training_items(searched))
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :10]
        hits.append(np.einsum("nl,nkl->nk", labels, labels[nearest]).mean())
    return hits


# Anchors


def test_the_kernel_is_the_exponential_of_the_distance():
    rng = np.random.default_rng(0)
    rows, anchors = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    expected = [[np.exp(-((row - anchor) ** 2).sum() / 2.5) for anchor in anchors] for row in rows]
    np.testing.assert_allclose(gaussian_kernel(rows, anchors, 2.5), expected)


def test_the_width_is_the_mean_over_all_pairs_of_rows():
    rows = np.random.default_rng(1).standard_normal((7, 3)) + 100
    expected = np.mean([[((left - right) ** 2).sum() for left in rows] for right in rows])
    assert mean_squared_distance(rows) == pytest.approx(expected)


def test_anchors_are_the_same_for_sparse_rows_and_do_not_look_at_neighbours():
    _, texts, _ = known_pairs()
    dense, narrow = (
        AnchorFeatures.fit(rows, 5, np.random.default_rng(0), Workers(1), unit=False, name="texts")
        for rows in (texts.toarray(), texts)
    )
    np.testing.assert_array_equal(dense.anchors, narrow.anchors)
    np.testing.assert_array_equal(narrow.apply(texts)[7:8], narrow.apply(texts[7:8]))


def test_more_anchors_than_rows_are_cut_and_their_kernel_has_a_unit_diagonal():
    images, _, _ = known_pairs(n=6)
    features = AnchorFeatures.fit(images, 50, np.random.default_rng(0), Workers(1), unit=True, name="images")
    assert features.apply(images).shape == (6, 6)
    np.testing.assert_allclose(np.diag(features.gram()), 1.0, atol=1e-9)


# Logistic regression


def regression_problem(n=40, k=6, c=3, seed=0):
    rng = np.random.default_rng(seed)
    rows, anchors = rng.standard_normal((n, 2)), rng.standard_normal((k, 2))
    features, gram = gaussian_kernel(rows, anchors, 2.0), gaussian_kernel(anchors, anchors, 2.0)
    return features, gram, np.sign(rng.standard_normal((n, c)) + rows[:, :1])


def penalised_loss(features, gram, signs, weights, intercepts, penalty):
    margins = signs * (features @ weights + intercepts)
    return np.log1p(np.exp(-margins)).sum() + penalty * np.einsum("kc,kl,lc->", weights, gram, weights)


def test_the_gradient_of_the_logistic_loss_is_that_of_differences():
    rng = np.random.default_rng(0)
    inputs, signs = rng.standard_normal((9, 4)), np.sign(rng.standard_normal((9, 3)))
    solution, penalties = 3 * rng.standard_normal((4, 3)), np.array([0.3, 1.0, 0.1, 0.0])
    gradient = loss_and_gradient(solution, inputs, signs, penalties)[1]
    numeric = by_differences(lambda z: loss_and_gradient(z, inputs, signs, penalties)[0], solution)
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)


def test_the_loss_does_not_overflow():
    loss, gradient = loss_and_gradient(
        np.array([[1e4]]), np.array([[1.0], [-1.0]]), np.ones((2, 1)), np.zeros(1)
    )
    assert loss == pytest.approx(1e4)
    np.testing.assert_allclose(gradient, [[1.0]])


def test_the_regression_reaches_the_minimum_of_the_stated_objective():
    features, gram, signs = regression_problem()
    found = LogisticBits.fit(features, gram, signs, Workers(1), penalty=0.1)

    def loss(weights, intercepts):
        return penalised_loss(features, gram, signs, weights, intercepts, 0.1)

    slope = by_differences(lambda weights: loss(weights, found.intercepts), found.weights)
    assert np.abs(slope).max() < 0.01
    assert np.abs(by_differences(lambda b: loss(found.weights, b), found.intercepts)).max() < 0.01


def test_a_bit_is_learned_alike_alone_and_beside_many():
    features, gram, signs = regression_problem(c=20)
    together = LogisticBits.fit(features, gram, signs, Workers(2), penalty=0.1).log_odds(features)
    alone = LogisticBits.fit(features, gram, signs[:, 4:5], Workers(1), penalty=0.1).log_odds(features)
    np.testing.assert_allclose(together[:, 4:5], alone, atol=0.01)


def test_a_bit_of_one_class_stays_finite_and_predicts_that_class():
    features, gram, signs = regression_problem()
    signs[:, 0], signs[:, 1] = 1.0, -1.0
    odds = LogisticBits.fit(features, gram, signs, Workers(1)).log_odds(features)
    np.testing.assert_allclose(odds[:, 0], np.log(41.0))
    np.testing.assert_allclose(odds[:, 1], -np.log(41.0))
    assert np.isfinite(odds).all()


# Labels


def test_labels_are_judged():
    with pytest.raises(InvalidInput, match="got none"):
        check_labels(None, 3, "SePH_km")
    with pytest.raises(InvalidInput, match="one row per document"):
        check_labels(np.eye(2), 3, "SePH_km")
    with pytest.raises(InvalidInput, match="0 and 1"):
        check_labels(2 * np.eye(3), 3, "SePH_km")
    assert check_labels(sparse.csr_array(np.eye(3)), 3, "SePH_km").dtype == bool


def test_cosines_and_shared_labels():
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    np.testing.assert_allclose(
        normalise_labels(labels) @ normalise_labels(labels).T, [[1, 0.5**0.5, 0], [0.5**0.5, 1, 0], [0, 0, 0]]
    )
    np.testing.assert_array_equal(share_a_label(labels, labels), [[1, 1, 0], [1, 1, 0], [0, 0, 0]])


# SePH_km


def divergence_ref(H, labels, weight):
    """KL(P || Q) and the penalty, by loops over pairs."""
    pairs = [(i, j) for i in range(len(H)) for j in range(len(H)) if i != j]
    P = np.array([labels[i] @ labels[j] for i, j in pairs])
    Q = np.array([1 / (1 + ((H[i] - H[j]) ** 2).sum() / 4) for i, j in pairs])
    P, Q = P / P.sum(), Q / Q.sum()
    return -(P * np.log(Q)).sum() + weight / H.size * ((abs(H) - 1) ** 2).sum()


def divergence_problem(n=9, c=4, scale=0.8):
    rng = np.random.default_rng(3)
    labels = rng.random((n, 5)) < 0.4
    labels[0] = False  # a document without any label
    return scale * rng.standard_normal((n, c)), normalise_labels(labels)


def test_the_divergence_is_that_of_loops():
    H, labels = divergence_problem()
    value = measure_divergence(H, labels, Workers(1), binary_weight=0.7).value
    assert value == pytest.approx(divergence_ref(H, labels, 0.7))


def test_the_gradient_of_the_divergence_is_that_of_differences():
    H, labels = divergence_problem()
    gradient = measure_divergence(H, labels, Workers(1), binary_weight=0.7).gradient
    numeric = by_differences(lambda h: measure_divergence(h, labels, Workers(1), binary_weight=0.7).value, H)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)


def test_the_divergence_does_not_depend_on_blocks_or_threads():
    H, labels = divergence_problem(n=300)
    with Workers(3) as many:
        threaded = measure_divergence(H, labels, many, binary_weight=0.1)
    plain = measure_divergence(H, labels, Workers(1), binary_weight=0.1)
    assert threaded.value == plain.value == pytest.approx(divergence_ref(H, labels, 0.1))
    np.testing.assert_array_equal(threaded.gradient, plain.gradient)


def test_learned_codes_are_never_worse_than_the_start_and_more_steps_never_hurt():
    start, labels = divergence_problem(n=40, scale=1e-4)
    settings = {"binary_weight": 0.01, "learning_rate": 5.0}
    values = [
        measure_divergence(
            learn_codes(labels, start, Workers(1), n_iter=n, **settings),
            labels,
            Workers(1),
            binary_weight=0.01,
        )
        for n in (1, 5, 20, 60)
    ]
    falls = np.diff([found.value for found in values])
    assert (falls <= 1e-6).all() and falls.sum() < -0.05


def test_labels_that_no_two_documents_share_teach_nothing():
    images, texts, _ = known_pairs(n=4)
    with pytest.raises(InvalidInput, match="in common"):
        SePH(n_bits=4).fit(images, texts, np.eye(4))


def test_seph_gives_the_documents_of_one_class_one_code():
    images, texts, labels = known_pairs()
    model = SePH(n_bits=8, n_anchors=10).fit(images, texts, labels)
    codes = model.training_items("text")
    assert len(np.unique(np.column_stack([codes, labels]), axis=0)) == 3 == len(np.unique(codes, axis=0))
    assert min(finds_the_class(model, *known_pairs(seed=1))) == 1.0
    np.testing.assert_array_equal(model.pair_items("text", images, texts), codes)


def test_seph_learns_codes_from_a_part_and_predicts_the_rest():
    images, texts, labels = known_pairs(n=90)
    model = SePH(n_bits=8, n_anchors=10, max_documents=45).fit(images, texts, labels)
    assert model.details == {"n_learned_from": 45}
    assert model.training_items("image").shape == (90, 1)
    assert min(finds_the_class(model, images, texts, labels)) > 0.95


def test_the_unified_rule_weighs_both_sides_and_the_prior():
    images, texts, labels = known_pairs()
    model = SePH(n_bits=6, n_anchors=5).fit(images, texts, labels)
    odds = [model._views[side].log_odds(rows) for side, rows in (("image", images), ("text", texts))]
    # As strong as what is predicted of some documents, for every other bit the other way.
    model._prior = np.median(np.abs(sum(odds)), axis=0) * [1, -1, 1, -1, 1, -1]
    plus, minus = (1 / (1 + np.exp(-sign * np.stack(odds))) for sign in (1, -1))
    prior = 1 / (1 + np.exp(-model._prior))
    expected = plus.prod(axis=0) / prior > minus.prod(axis=0) / (1 - prior)
    assert (expected != (plus.prod(axis=0) > minus.prod(axis=0))).any(axis=0).sum() >= 3
    np.testing.assert_array_equal(model.pair_items("image", images, texts), np.packbits(expected, axis=1))


@pytest.mark.parametrize("n_bits", [1, 40])
def test_seph_with_one_bit_and_with_more_bits_than_features(n_bits):
    images, texts, labels = known_pairs()
    model = SePH(n_bits=n_bits, n_anchors=10).fit(images, texts, labels)
    assert model.training_items("image").shape == (60, -(-n_bits // 8))
    assert min(finds_the_class(model, images, texts, labels)) > 0.6


def test_seph_is_a_function_of_data_and_seed_and_writes_to_nothing():
    images, texts, labels = known_pairs()
    before = images.copy(), texts.toarray(), labels.copy()
    first, again = (SePH(n_bits=12, n_anchors=10, n_jobs=n).fit(images, texts, labels) for n in (1, 2))
    np.testing.assert_array_equal(first.training_items("text"), again.training_items("text"))
    np.testing.assert_array_equal(first.queries("image", images), again.queries("image", images))
    np.testing.assert_array_equal(first.queries("text", texts)[3:4], first.queries("text", texts[3:4]))
    for kept, now in zip(before, (images, texts.toarray(), labels), strict=True):
        np.testing.assert_array_equal(kept, now)


def test_seph_says_what_it_needs():
    images, texts, _ = known_pairs()
    with pytest.raises(InvalidInput, match="labels"):
        SePH().fit(images, texts)
    with pytest.raises(InvalidInput, match="learns from labels"):
        SePH(similarity="pairs")
    with pytest.raises(NotFitted):
        SePH().queries("image", images)


# MLBE


def random_state(n=9, c=4, seed=0):
    """A state with everything different from everything else."""
    rng = np.random.default_rng(seed)

    def half():
        similarities, weights = rng.standard_normal((n, n)), 0.3 * rng.standard_normal((c, c))
        codes = np.sign(rng.standard_normal((n, c)))
        return HalfState(
            similarities + similarities.T, codes, weights + weights.T, 0.4, *(0.5 + rng.random(2))
        )

    related = (rng.random((n, n)) < 0.4).astype(float)
    observed = (rng.random((n, n)) < 0.7).astype(float)
    return PosteriorState(half(), half(), Relations(related, observed), 0.3, 1.7)


def log_posterior_ref(state):
    """By loops over pairs, term by term."""
    total = -0.5 * np.log(state.link_spread) - (state.link**2 / 2 + 1) / state.link_spread
    for half in (state.image, state.text):
        n, c = half.codes.shape
        for i in range(n):
            for j in range(i, n):
                error = half.similarities[i, j] - half.codes[i] @ half.weights @ half.codes[j]
                total -= np.log(half.noise) / 2 + (error**2 + half.noise_before) / (2 * half.noise)
        for k in range(c):
            total -= sum(
                np.log(half.spread) / 2 + half.weights[k, m] ** 2 / (2 * half.spread) for m in range(k, c)
            )
        total -= 1 / half.spread
    for i, j in np.argwhere(state.relations.observed):
        sign = 1 if state.relations.related[i, j] else -1
        product = state.image.codes[i] @ state.text.codes[j]
        total -= np.log1p(np.exp(-sign * state.link * product))
    return total


def test_the_log_posterior_is_that_of_loops():
    for seed in range(3):
        state = random_state(seed=seed)
        assert log_posterior(state) == pytest.approx(log_posterior_ref(state))


def slope_of_weights(half, step=1e-5):
    """Derivative of the posterior by the symmetric weights, by differences."""
    return by_differences(
        lambda W: half_log_posterior(replace(half, weights=(W + W.T) / 2)), half.weights, step
    )


@pytest.mark.parametrize("size", [{"n": 20, "c": 4}, {"n": 3, "c": 6}])
def test_weights_are_the_maximum_even_with_more_bits_than_documents(size):
    half = random_state(**size).image
    assert np.abs(slope_of_weights(half)).max() > 1.0
    found = update_weights(half, max_iter=200)
    np.testing.assert_array_equal(found.weights, found.weights.T)
    assert np.abs(slope_of_weights(found)).max() < 1e-4


def nudged(state, where, factor):
    """The state with one number multiplied; ``where`` is "link", or "image.noise" and the like."""
    side, _, name = where.rpartition(".")
    changed = {name: factor * getattr(getattr(state, side) if side else state, name)}
    return replace(state, **({side: replace(getattr(state, side), **changed)} if side else changed))


VARIANCES = ["image.spread", "text.spread", "image.noise", "text.noise"]


@pytest.mark.parametrize(
    ("block", "where"), [*enumerate(VARIANCES, start=2), (8, "link"), (9, "link_spread")]
)
def test_variances_and_link_are_at_their_maximum(block, where):
    state = BLOCKS[block](random_state(n=30))
    highest = log_posterior(state)
    assert log_posterior(nudged(state, where, 0.98)) < highest > log_posterior(nudged(state, where, 1.02))


def test_a_link_without_evidence_stays_positive():
    state = random_state()
    opposite = replace(
        state, relations=Relations(state.image.codes @ state.text.codes.T < 0, np.ones((9, 9)))
    )
    assert update_link(opposite).link == 1e-3


def turned(state, side, i, k):
    """The state with one bit turned."""
    codes = getattr(state, side).codes.copy()
    codes[i, k] *= -1
    return replace(state, **{side: replace(getattr(state, side), codes=codes)})


@pytest.mark.parametrize("side", ["image", "text"])
def test_bits_are_turned_until_the_document_is_at_its_best(side):
    state = random_state(n=12)
    relations = state.relations if side == "image" else state.relations.transpose()
    half, other = (state.image, state.text) if side == "image" else (state.text, state.image)
    codes = improve_codes(half, other.codes, relations, state.link)
    better = replace(state, **{side: replace(half, codes=codes)})
    assert log_posterior(better) > log_posterior(state)
    last = int(np.flatnonzero((codes != half.codes).any(axis=1))[-1])  # nothing changed after it
    gains = [log_posterior(turned(better, side, last, k)) - log_posterior(better) for k in range(4)]
    assert max(gains) <= 1e-9


def test_codes_that_cannot_gain_are_left_alone_and_are_a_maximum_over_single_bits():
    state, codes = random_state(n=12), None
    while codes is None or (codes != state.image.codes).any():
        if codes is not None:
            state = replace(state, image=replace(state.image, codes=codes))
        codes = improve_codes(state.image, state.text.codes, state.relations, state.link)
    highest = log_posterior(state)
    assert all(log_posterior(turned(state, "image", i, k)) <= highest for i in range(12) for k in range(4))


def test_gains_of_links_are_those_of_the_likelihood():
    state = random_state()
    links = RelationGains.of_relations(state.relations, state.text.codes, state.link)
    gains = links.gains(state.image.codes)
    flat = replace(state.image, similarities=np.zeros((9, 9)), weights=np.zeros((4, 4)))
    state = replace(state, image=flat)
    expected = [
        [log_posterior(turned(state, "image", i, k)) - log_posterior(state) for k in range(4)]
        for i in range(9)
    ]
    np.testing.assert_allclose(gains, expected, atol=1e-9)


def test_every_block_is_accepted_only_if_the_posterior_does_not_fall():
    for seed in range(3):
        state = random_state(n=15, seed=seed)
        value = log_posterior(state)
        for update in BLOCKS * 2:
            state = update(state)
            assert log_posterior(state) >= value - 1e-9
            value = log_posterior(state)


def test_a_block_that_would_lower_the_posterior_is_refused(monkeypatch):
    state = random_state()
    worse = [lambda state: replace(state, link=5.0), lambda state: replace(state, link_spread=1e-3)]
    monkeypatch.setattr("crossbyte.lab.methods.mlbe.BLOCKS", worse)
    sweeps = list(ascend_posterior(state, 5))
    assert len(sweeps) == 2 and sweeps[-1][0] is state and sweeps[-1][1] == sweeps[0][1]


def test_the_posterior_never_falls_and_its_sums_agree():
    images, texts, labels = known_pairs()
    history = MLBE(n_bits=8, similarity="labels").fit(images, texts, labels).details["log_posterior"]
    assert len(history) > 2 and (np.diff(history) >= 0).all()
    sweeps = list(ascend_posterior(random_state(n=25), 10))
    for state, value in sweeps:
        assert value == pytest.approx(log_posterior(state))


def test_new_documents_get_the_code_that_explains_their_similarities():
    half = random_state(n=40, c=5).image
    truth = np.sign(np.random.default_rng(1).standard_normal((6, 5)))
    images = half.codes @ half.weights
    pull = SimilarityGains(images.T @ images, truth @ images.T @ images, 1.0)
    gains, errors = pull.gains(truth), []
    for k in range(5):
        other = truth.copy()
        other[:, k] *= -1
        errors.append(-np.square((truth - other) @ images.T).sum(axis=1) / 2)
    np.testing.assert_allclose(gains, np.transpose(errors), atol=1e-9)
    near = truth.copy()
    near[:, 0] *= -1
    np.testing.assert_array_equal(flip_bits(near, pull, None), truth)


def test_relations_are_observed_as_asked():
    related = np.eye(20, dtype=bool)
    relations = observe_relations(related, 3.0, np.random.default_rng(0))
    assert relations.observed.sum() == 80 and (relations.observed[related] == 1).all()
    assert (observe_relations(related, 1e6, np.random.default_rng(0)).observed == 1).all()


def test_nearest_documents_and_centred_similarities():
    images, _, _ = known_pairs(n=12)
    kernel = CentredKernel.fit(images, 0.5, "images")
    similarities = kernel.own_similarities()
    np.testing.assert_allclose(similarities.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(similarities, kernel.similarities(images), atol=1e-12)
    assert (mark_nearest_documents(similarities, 4).reshape(12, 4, 3)[0, :, 0]).all()
    np.testing.assert_array_equal(mark_nearest_documents(similarities, 1), np.eye(12, dtype=bool))
    assert mark_nearest_documents(similarities, 99).all()


@pytest.mark.parametrize("similarity", ["pairs", "labels"])
@pytest.mark.parametrize("max_documents", [500, 60])
def test_mlbe_finds_the_class_of_new_documents(similarity, max_documents):
    images, texts, labels = known_pairs(n=120)
    model = MLBE(n_bits=12, similarity=similarity, max_documents=max_documents, n_neighbours=15)
    model.fit(images, texts, labels)
    assert model.details["n_learned_from"] == min(120, max_documents)
    assert min(finds_the_class(model, *known_pairs(n=120, seed=1))) > 0.8


def test_labels_are_not_looked_at_where_pairs_teach():
    images, texts, labels = known_pairs()
    with_labels = MLBE(n_bits=8).fit(images, texts, labels)
    without = MLBE(n_bits=8).fit(images, texts)
    np.testing.assert_array_equal(with_labels.training_items("text"), without.training_items("text"))


def test_a_query_is_coded_by_its_own_features_alone():
    images, texts, labels = known_pairs()
    model = MLBE(n_bits=10, similarity="labels").fit(images, texts, labels)
    together = model.queries("text", texts)
    for row in (0, 7, 59):
        np.testing.assert_array_equal(model.queries("text", texts[row : row + 1]), together[row : row + 1])
    np.testing.assert_array_equal(model.side_items("image", images), model.queries("image", images))
    coder = model._coders["image"]
    assert isinstance(coder, BitCoder) and coder.code(images).shape == (60, 10)


@pytest.mark.parametrize("similarity", ["pairs", "labels"])
@pytest.mark.parametrize("n_bits", [1, 40])
def test_mlbe_with_one_bit_and_with_more_bits_than_features(n_bits, similarity):
    images, texts, labels = known_pairs()
    model = MLBE(n_bits=n_bits, similarity=similarity, n_neighbours=15).fit(images, texts, labels)
    assert model.training_items("image").shape == (60, -(-n_bits // 8))
    assert min(finds_the_class(model, images, texts, labels)) > (0.45 if n_bits == 1 else 0.9)


def test_mlbe_is_a_function_of_data_and_seed_and_writes_to_nothing():
    images, texts, labels = known_pairs(n=90)
    before = images.copy(), texts.toarray(), labels.copy()
    settings = {"n_bits": 12, "similarity": "labels", "max_documents": 50}
    first, again, dense, other = (
        MLBE(**settings, n_jobs=jobs, random_state=seed).fit(images, rows, labels)
        for rows, jobs, seed in ((texts, 1, 0), (texts, 2, 0), (texts.toarray(), 1, 0), (texts, 1, 1))
    )
    for same in (again, dense):
        np.testing.assert_array_equal(first.training_items("text"), same.training_items("text"))
        np.testing.assert_array_equal(first.queries("image", images), same.queries("image", images))
    assert (first.training_items("text") != other.training_items("text")).any()
    for kept, now in zip(before, (images, texts.toarray(), labels), strict=True):
        np.testing.assert_array_equal(kept, now)


@pytest.mark.parametrize("labels", [np.ones((60, 1)), np.zeros((60, 2))])
def test_labels_that_relate_all_documents_or_none_do_no_harm(labels):
    images, texts, _ = known_pairs()
    model = MLBE(n_bits=8, similarity="labels").fit(images, texts, labels)
    assert np.isfinite(model.details["log_posterior"]).all()


@pytest.mark.parametrize("wrong", [{"max_documents": 1}, {"negatives": -1.0}, {"width": 0.0}, {"noise": 0.0}])
def test_parameters_of_mlbe_are_judged(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        MLBE(**wrong)


def test_mlbe_says_what_it_needs():
    images, texts, _ = known_pairs()
    with pytest.raises(InvalidInput, match="got none"):
        MLBE(similarity="labels").fit(images, texts)
    with pytest.raises(NotFitted):
        MLBE().training_items("image")
