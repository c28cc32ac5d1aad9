"""The estimator: what it promises about shapes, codes, distances and finding partners."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, InvalidInput, NotCalibrated
from crossbyte.compute.executor import Workers
from crossbyte.data.synthetic import make_pairs

PAIRS = make_pairs(400, 24, 40, random_state=0)
N, N_NEW, M, D = 300, 100, 2, 8
IMAGES, TEXTS = PAIRS.images[:N], PAIRS.texts[:N]
NEW_IMAGES, NEW_TEXTS = PAIRS.images[N:], PAIRS.texts[N:]
SMALL = {"n_bits": 8 * M, "n_components": D, "n_atoms": 32, "max_iter": 3, "random_state": 0}

PAPER = {"mapping": "sparse", "cross_term": "constant"}
UNIT = {"mapping": "cca", "scoring": "unit", "cross_term": "constant"}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "likelihood constant": {"cross_term": "constant"},
    "given ridge": {"ridge": 0.5},
    "sparse": PAPER,
    "cca": UNIT,
    "contrastive": {"mapping": "contrastive", "cross_term": "constant"},
    "auto": {"mapping": "auto"},
    "ridge": PAPER | {"query_map": "ridge"},
    "shared": PAPER | {"shared_codebooks": True},
    "shared cca": {"shared_codebooks": True},
    "no correlation": PAPER | {"correlation": 0.0},
    "no alignment": PAPER | {"alignment": 0.0},
    "no penalty": UNIT | {"cross_penalty": 0.0},
    "ratio": PAPER | {"sparsity_mode": "ratio"},
    "stored": PAPER | {"cross_term": "stored"},
    "stored cca": UNIT | {"cross_term": "stored"},
    "reduced": PAPER | {"image_components": 10, "text_components": 12},
    "one byte": UNIT | {"n_bits": 8},
    "default, one byte": {"n_bits": 8},
}
CHOOSES_RIDGES = ("default", "likelihood constant", "default, one byte")
FITTED: dict[str, CMCQ] = {}


def fitted(variant: str) -> CMCQ:
    """Each variant is fitted once for all tests; a test that changes a model loads its own copy."""
    if variant not in FITTED:
        FITTED[variant] = CMCQ(**(SMALL | VARIANTS[variant])).fit(IMAGES, TEXTS)
    return FITTED[variant]


def copy_of(variant: str) -> CMCQ:
    return CMCQ.from_bytes(fitted(variant).to_bytes())


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> CMCQ:
    return fitted(request.param)


def recall_of_own(distances: np.ndarray, k: int = 10) -> float:
    """Share of queries whose own row is among the k nearest."""
    ranks = (distances < np.diag(distances)[:, None]).sum(axis=1)
    return float((ranks < k).mean())


# Shapes and types


def test_shapes_and_types_of_what_was_learned(model: CMCQ) -> None:
    m, d = model.n_bits // 8, model.n_components_
    assert model.image_codebooks_.shape == model.text_codebooks_.shape == (m, 256, d)
    assert model.image_codebooks_.dtype == model.text_codebooks_.dtype == np.float32
    assert model.image_codes_.shape == model.text_codes_.shape == (N, m)
    assert model.image_codes_.dtype == model.text_codes_.dtype == np.uint8
    assert isinstance(model.image_cross_, float)
    assert isinstance(model.text_cross_, float)
    assert (model.n_features_in_, model.n_text_features_) == (24, 40)
    assert d == D


def test_shapes_and_types_of_new_items(model: CMCQ) -> None:
    m = model.n_bits // 8
    points = model.transform_images(NEW_IMAGES), model.transform_texts(NEW_TEXTS)
    codes = model.encode_images(NEW_IMAGES), model.encode_texts(NEW_TEXTS)
    pairs = model.encode_pairs(NEW_IMAGES, NEW_TEXTS)
    decoded = model.decode_images(codes[0]), model.decode_texts(codes[1])
    assert all(x.shape == (N_NEW, D) and x.dtype == np.float32 for x in (*points, *decoded))
    assert all(c.shape == (N_NEW, m) and c.dtype == np.uint8 for c in (*codes, *pairs))
    assert isinstance(pairs, tuple)
    assert all(np.isfinite(x).all() for x in (*points, *decoded))


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("variant", ["sparse", "cca", "stored", "ridge"])
def test_any_number_of_new_items(variant: str, n: int) -> None:
    model = fitted(variant)
    assert model.encode_images(NEW_IMAGES[:n]).shape == (n, M)
    assert model.encode_texts(NEW_TEXTS[:n]).shape == (n, M)
    assert [len(codes) for codes in model.encode_pairs(NEW_IMAGES[:n], NEW_TEXTS[:n])] == [n, n]
    assert model.distances(images=NEW_IMAGES[:n], text_codes=model.text_codes_).shape == (n, N)
    assert model.distances(images=NEW_IMAGES, text_codes=model.text_codes_[:n]).shape == (N_NEW, n)


def test_items_do_not_depend_on_the_items_beside_them(model: CMCQ) -> None:
    """BLAS adds in another order for another number of rows, so points agree only to rounding."""
    rows = [5, 17, 3]
    for transform, new in ((model.transform_images, NEW_IMAGES), (model.transform_texts, NEW_TEXTS)):
        np.testing.assert_allclose(transform(new[rows]), transform(new)[rows], atol=1e-4)


@pytest.mark.parametrize("variant", ["cca", "stored cca", "ridge"])
def test_codes_do_not_depend_on_the_items_beside_them(variant: str) -> None:
    model, rows = fitted(variant), [5, 17, 3]
    np.testing.assert_array_equal(
        model.encode_images(NEW_IMAGES[rows]), model.encode_images(NEW_IMAGES)[rows]
    )
    np.testing.assert_array_equal(model.encode_texts(NEW_TEXTS[rows]), model.encode_texts(NEW_TEXTS)[rows])


def test_fit_returns_the_model_and_keeps_its_parameters() -> None:
    model = CMCQ(**SMALL, mapping="cca")
    before = model.get_params()
    assert model.fit(IMAGES, TEXTS) is model
    assert model.get_params() == before


# What was used


def test_what_was_used_is_told(model: CMCQ) -> None:
    if model.mapping != "auto":
        assert model.mapping_ == model.mapping
        assert model.correlation_ == model.correlation
        assert model.cross_penalty_ == model.cross_penalty
        assert model.cross_term_ == model.cross_term
        chooses = any(model is fitted(name) for name in CHOOSES_RIDGES)
        assert any("ridge" in trial.params for trial in model.selection_) is chooses
    assert model.mapping_ in ("sparse", "cca", "contrastive")
    assert model.ridge_ > 0


def test_matrices_of_the_sparse_mapping() -> None:
    model = fitted("reduced")
    assert model.image_dictionary_.shape == (32, 10)
    assert model.text_basis_.shape == (D, 12)
    assert model.image_map_.shape == (32, D)
    for bounded in (model.image_dictionary_, model.text_basis_, model.image_map_):
        assert (np.linalg.norm(bounded, axis=1) <= 1 + 1e-6).all()


@pytest.mark.parametrize("name", ["image_dictionary_", "text_basis_", "image_map_"])
def test_other_mappings_have_no_such_matrices(name: str) -> None:
    assert not hasattr(fitted("cca"), name)
    with pytest.raises(AttributeError, match=f"{name} belongs to mapping='sparse'"):
        getattr(fitted("cca"), name)


def test_documented_attributes_exist() -> None:
    section = inspect.getdoc(CMCQ).split("Attributes\n")[1].split("References\n")[0]  # type: ignore[union-attr]
    names = [name for line in re.findall(r"^\w[^\n]*", section, re.M) for name in re.findall(r"\w+_\b", line)]
    assert {"image_codes_", "objective_history_", "selection_", "n_features_in_"} <= set(names)
    missing = [name for name in names if not hasattr(fitted("sparse"), name)]
    assert missing == ["report_"]  # that of calibrate
    with pytest.raises(NotCalibrated, match="call calibrate"):
        _ = fitted("sparse").report_


def test_shared_codebooks_are_shared() -> None:
    for variant in ("shared", "shared cca"):
        np.testing.assert_array_equal(fitted(variant).image_codebooks_, fitted(variant).text_codebooks_)
    assert not np.array_equal(fitted("sparse").image_codebooks_, fitted("sparse").text_codebooks_)


def test_without_correlation_its_term_is_zero() -> None:
    assert all(record.terms.correlation == 0 for record in fitted("no correlation").objective_history_)
    assert all(record.terms.alignment == 0 for record in fitted("no alignment").objective_history_)
    assert all(record.terms.image_penalty == 0 for record in fitted("no penalty").objective_history_)


def test_correlation_draws_the_codes_of_a_pair_together() -> None:
    def gap(correlation: float) -> float:
        model = CMCQ(**SMALL, **UNIT, correlation=correlation).fit(IMAGES, TEXTS)
        apart = model.decode_images(model.image_codes_) - model.decode_texts(model.text_codes_)
        return float((apart**2).sum(axis=1).mean())

    assert gap(3.0) < 0.7 * gap(0.0)


def test_objective_never_rises(model: CMCQ) -> None:
    totals = np.array([record.total for record in model.objective_history_])
    assert model.objective_history_[0].block == "start"
    assert len(totals) > 3
    assert np.isfinite(totals).all()
    if model.sparsity_mode == "absolute":
        assert (np.diff(totals) <= 1e-8 * totals[:-1]).all()
        assert totals[-1] < totals[0]


def test_max_iter_and_tol_end_the_rounds() -> None:
    once = CMCQ(**(SMALL | UNIT | {"max_iter": 1})).fit(IMAGES, TEXTS)
    assert once.objective_history_[-1].round == 1
    easy = CMCQ(**(SMALL | UNIT | {"max_iter": 50}), tol=0.5).fit(IMAGES, TEXTS)
    assert easy.objective_history_[-1].round == 1


def test_progress_is_told_step_by_step() -> None:
    steps: list[Any] = []
    model = CMCQ(**SMALL, callback=steps.append).fit(IMAGES, TEXTS)
    assert list(dict.fromkeys(step.stage for step in steps)) == ["prepare", "space", "codebooks", "alternate"]
    assert all(1 <= step.done <= step.total for step in steps)
    assert steps[-1].objective == model.objective_history_[-1].total


# Dimensions


def test_components_default_to_the_bits() -> None:
    model = CMCQ.paper(8, n_atoms=16, max_iter=1, random_state=0).fit(IMAGES, TEXTS)
    assert model.n_components_ == 8
    assert model.n_components is None


def test_components_of_likelihoods_do_not_depend_on_the_bits() -> None:
    few, many = (CMCQ(bits, max_iter=1, random_state=0).fit(IMAGES, TEXTS) for bits in (8, 24))
    assert few.n_components_ == many.n_components_ == 24  # 128, capped at the width of the images


@pytest.mark.parametrize("mapping", ["cca", "contrastive"])
def test_components_are_capped_at_the_rank(mapping: str) -> None:
    model = CMCQ(8, mapping=mapping, n_components=30, max_iter=1, random_state=0)
    model.fit(IMAGES[:, :5], TEXTS)
    assert model.n_components_ <= 5
    assert model.transform_texts(NEW_TEXTS).shape == (N_NEW, model.n_components_)


@pytest.mark.parametrize("mapping", ["sparse", "cca", "contrastive"])
def test_more_components_than_features(mapping: str) -> None:
    params = SMALL | {"mapping": mapping, "n_components": 12, "max_iter": 1}
    model = CMCQ(**params).fit(IMAGES[:, :3], TEXTS[:, :2].toarray() + np.eye(N, 2))
    assert np.isfinite(model.transform_images(NEW_IMAGES[:, :3])).all()
    assert np.isfinite(model.transform_texts(NEW_TEXTS[:, :2])).all()


@pytest.mark.parametrize("mapping", ["sparse", "cca", "contrastive"])
def test_texts_of_one_column(mapping: str) -> None:
    texts = IMAGES[:, :1] + 0.1 * IMAGES[:, 1:2]
    model = CMCQ(**(SMALL | {"mapping": mapping, "max_iter": 1})).fit(IMAGES, texts)
    assert model.encode_texts(texts).shape == (N, M)
    assert np.isfinite(model.training_distances(texts=texts)).all()


# Distances


def naive_distances(model: CMCQ, points: np.ndarray, words: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Sum of table entries, less (M - 1)|x|², without the cross term; in float64."""
    points, words = points.astype(np.float64), words.astype(np.float64)
    total = np.zeros((len(points), len(codes)))
    for m in range(len(words)):
        table = ((points[:, None, :] - words[m][None]) ** 2).sum(axis=2)
        total += table[:, codes[:, m]]
    return total - (len(words) - 1) * (points**2).sum(axis=1)[:, None]


@pytest.mark.parametrize("variant", ["sparse", "cca", "shared", "ridge", "one byte", "likelihood constant"])
def test_constant_distances_are_the_sum_of_table_entries(variant: str) -> None:
    model = fitted(variant)
    queries = model.transform_texts(NEW_TEXTS[:9])
    expected = (
        naive_distances(model, queries, model.image_codebooks_, model.image_codes_) + model.image_cross_
    )
    got = model.distances(texts=NEW_TEXTS[:9], image_codes=model.image_codes_)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=2e-5)


def cross_terms(words: np.ndarray, codes: np.ndarray) -> np.ndarray:
    parts = np.stack([words[m][codes[:, m]] for m in range(len(words))]).astype(np.float64)
    return (parts.sum(axis=0) ** 2).sum(axis=1) - (parts**2).sum(axis=(0, 2))


def exact_distances(points: np.ndarray, decoded: np.ndarray) -> np.ndarray:
    return ((points[:, None].astype(np.float64) - decoded[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("variant", ["sparse", "cca"])
def test_constant_distances_miss_the_exact_ones_by_the_cross_term_alone(variant: str) -> None:
    model = fitted(variant)
    got = model.training_distances(images=NEW_IMAGES[:9])
    exact = exact_distances(model.transform_images(NEW_IMAGES[:9]), model.decode_texts(model.text_codes_))
    missing = model.text_cross_ - cross_terms(model.text_codebooks_, model.text_codes_)
    np.testing.assert_allclose(got - exact, np.broadcast_to(missing, got.shape), atol=2e-5)


@pytest.mark.parametrize("variant", ["sparse", "cca"])
@pytest.mark.parametrize("target", ["image", "text"])
def test_stored_distances_are_closer_to_the_exact_ones(variant: str, target: str) -> None:
    """Same codebooks and codes in both models, so only the treatment of the cross term differs."""
    constant = fitted(variant)
    stored = fitted("stored" if variant == "sparse" else "stored cca")
    np.testing.assert_array_equal(constant.image_codebooks_, stored.image_codebooks_)
    errors = [training_error(model, target) for model in (constant, stored)]
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < 1e-2


def training_error(model: CMCQ, target: str) -> float:
    """Largest error of the distance to training items, from a few queries."""
    if target == "text":
        points, decoded = model.transform_images(NEW_IMAGES[:9]), model.decode_texts(model.text_codes_)
        got = model.training_distances(images=NEW_IMAGES[:9])
    else:
        points, decoded = model.transform_texts(NEW_TEXTS[:9]), model.decode_images(model.image_codes_)
        got = model.training_distances(texts=NEW_TEXTS[:9])
    return float(np.abs(got - exact_distances(points, decoded)).max())


def test_queries_of_either_kind_reach_items_of_either_kind() -> None:
    model = fitted("cca")
    for query in ({"images": NEW_IMAGES}, {"texts": NEW_TEXTS}):
        for items in ({"image_codes": model.image_codes_}, {"text_codes": model.text_codes_}):
            assert model.distances(**query, **items).shape == (N_NEW, N)


@pytest.mark.parametrize("variant", ["sparse", "cca", "stored", "stored cca", "one byte"])
def test_a_query_point_has_the_same_table_in_any_batch(variant: str) -> None:
    quantizer = fitted(variant).fitted_.image_quantizer
    points = fitted(variant).transform_texts(NEW_TEXTS)
    whole, alone = quantizer.table(points), quantizer.table(points[40:41])
    np.testing.assert_array_equal(alone.tables[0], whole.tables[40])
    np.testing.assert_array_equal(alone.offsets[0], whole.offsets[40])


def test_a_query_has_the_same_distances_in_any_batch(model: CMCQ) -> None:
    whole = model.training_distances(images=NEW_IMAGES)
    np.testing.assert_allclose(
        model.training_distances(images=NEW_IMAGES[40:41]), whole[40:41], rtol=1e-4, atol=1e-4
    )


# Finding


def test_training_texts_find_their_images_far_above_chance(model: CMCQ) -> None:
    chance = 10 / N
    assert recall_of_own(model.training_distances(texts=TEXTS)) > 10 * chance
    assert recall_of_own(model.training_distances(images=IMAGES)) > 5 * chance


def test_unseen_partners_are_found_far_above_chance(model: CMCQ) -> None:
    chance = 10 / N_NEW
    ranks = model.partner_ranks(NEW_IMAGES, NEW_TEXTS)
    assert model.score(NEW_IMAGES, NEW_TEXTS) == ranks.recall(10)
    # Without alignment nothing but the codes ties the sides together: that is what the ablation shows.
    assert ranks.recall(10) > 2 * chance or model.alignment == 0
    assert ranks.image_to_text.shape == ranks.text_to_image.shape == (N_NEW,)
    assert ranks.image_to_text.min() >= 0
    assert ranks.text_to_image.max() < N_NEW
    np.testing.assert_allclose(ranks.hits(10).mean(), ranks.recall(10))


def test_canonical_spaces_find_half_of_the_unseen_partners() -> None:
    assert min(fitted(name).score(NEW_IMAGES, NEW_TEXTS) for name in ("cca", "contrastive", "auto")) > 0.35


def test_strangers_are_found_by_chance_only() -> None:
    """The score cannot come from the rows' order: shuffled texts have no partner to find."""
    shuffled = np.roll(np.arange(N_NEW), 50)
    assert fitted("cca").score(NEW_IMAGES, NEW_TEXTS[shuffled]) < 0.2


def test_a_group_is_found_through_any_of_its_rows() -> None:
    groups = np.arange(N_NEW) // 5
    model = fitted("cca")
    assert model.score(NEW_IMAGES, NEW_TEXTS, groups) >= model.score(NEW_IMAGES, NEW_TEXTS)


def test_ranks_agree_with_the_distances() -> None:
    model = fitted("stored cca")
    distances = model.distances(images=NEW_IMAGES, text_codes=model.encode_texts(NEW_TEXTS))
    nearer = (distances < np.diag(distances)[:, None]).sum(axis=1)
    ties = (distances == np.diag(distances)[:, None]).sum(axis=1)
    ranks = model.partner_ranks(NEW_IMAGES, NEW_TEXTS).image_to_text
    assert ((nearer <= ranks) & (ranks < nearer + ties)).all()


def test_folded_in_pairs_are_found_better_than_images_alone() -> None:
    """A pair's image code has seen the text, so the text finds it."""
    model = fitted("sparse")
    folded, _ = model.encode_pairs(NEW_IMAGES, NEW_TEXTS)
    alone = model.encode_images(NEW_IMAGES)
    by_pair, by_image = (
        recall_of_own(model.distances(texts=NEW_TEXTS, image_codes=codes)) for codes in (folded, alone)
    )
    assert by_pair > by_image + 0.1


def test_own_codes_are_nearest_in_the_common_space() -> None:
    model = fitted("cca")
    points, codes = model.transform_texts(NEW_TEXTS), model.encode_texts(NEW_TEXTS)
    error = ((points - model.decode_texts(codes)) ** 2).sum(axis=1).mean()
    other = ((points - model.decode_texts(np.roll(codes, 1, axis=0))) ** 2).sum(axis=1).mean()
    assert error < 0.5 * other


# The query map


def test_query_map_may_be_changed_after_fitting() -> None:
    model, ridge = copy_of("sparse"), fitted("ridge")
    paper = model.transform_images(NEW_IMAGES), model.transform_texts(NEW_TEXTS)
    model.set_params(query_map="ridge")
    np.testing.assert_array_equal(model.transform_images(NEW_IMAGES), ridge.transform_images(NEW_IMAGES))
    np.testing.assert_array_equal(model.encode_texts(NEW_TEXTS), ridge.encode_texts(NEW_TEXTS))
    assert not np.array_equal(model.transform_images(NEW_IMAGES), paper[0])
    model.query_map = "paper"
    np.testing.assert_array_equal(model.transform_texts(NEW_TEXTS), paper[1])


def test_query_map_is_for_the_sparse_mapping_only() -> None:
    model = copy_of("cca")
    before = model.transform_images(NEW_IMAGES)
    model.query_map = "ridge"
    np.testing.assert_array_equal(model.transform_images(NEW_IMAGES), before)


# Sparse and empty texts


@pytest.mark.parametrize("variant", ["sparse", "cca"])
def test_dense_texts_give_nearly_the_same_model_as_sparse_ones(variant: str) -> None:
    model = fitted(variant)
    dense = CMCQ(**(SMALL | VARIANTS[variant])).fit(IMAGES, TEXTS.toarray())
    scores = [one.score(NEW_IMAGES, NEW_TEXTS) for one in (model, dense)]
    assert abs(scores[0] - scores[1]) < 0.1
    totals = [one.objective_history_[0].total for one in (model, dense)]
    assert totals[0] == pytest.approx(totals[1], rel=0.1)


@pytest.mark.parametrize("variant", ["sparse", "cca", "contrastive", "ridge", "reduced"])
def test_dense_queries_are_placed_where_sparse_ones_are(variant: str) -> None:
    model = fitted(variant)
    np.testing.assert_allclose(
        model.transform_texts(NEW_TEXTS.toarray()), model.transform_texts(NEW_TEXTS), atol=1e-4
    )


@pytest.mark.parametrize("as_stored", ["dense", "sparse"])
@pytest.mark.parametrize("variant", ["sparse", "cca", "contrastive", "ridge", "reduced"])
def test_empty_texts_become_zero_points(variant: str, as_stored: str) -> None:
    texts = NEW_TEXTS[:6].toarray()
    texts[2] = 0
    texts = type(NEW_TEXTS)(texts) if as_stored == "sparse" else texts
    points = fitted(variant).transform_texts(texts)
    assert (points[2] == 0).all()
    assert (np.linalg.norm(points[[0, 1, 3, 4, 5]], axis=1) > 0).all()
    assert fitted(variant).encode_texts(texts).shape == (6, M)


@pytest.mark.parametrize("mapping", ["sparse", "cca", "contrastive"])
def test_empty_texts_may_be_trained_on(mapping: str) -> None:
    texts = TEXTS.toarray()
    texts[::10] = 0
    model = CMCQ(**(SMALL | {"mapping": mapping, "max_iter": 1})).fit(IMAGES, type(TEXTS)(texts))
    assert (model.transform_texts(texts)[::10] == 0).all()
    assert np.isfinite(model.text_codebooks_).all()


# One code for a document


def test_the_defaults_give_one_code_to_a_pair() -> None:
    model = CMCQ(max_iter=1, random_state=0).fit(IMAGES, TEXTS)
    assert model.mapping_ == "cca" and model.cross_term_ == "stored"
    assert model.fitted_.settings.scoring == "likelihood" and model.fitted_.has_document_codes
    assert model.document_codes_.shape == (N, 4) and model.document_codes_.dtype == np.uint8
    assert model.image_codes_ is model.text_codes_ is not model.document_codes_
    assert model.fitted_.image_quantizer is model.fitted_.text_quantizer
    assert set(model.fitted_.quantizers) == {"image", "text", "document"}
    assert np.isfinite(model.fitted_.document_constant)


def test_new_documents_are_coded_as_the_fitted_ones() -> None:
    model = fitted("default")
    np.testing.assert_array_equal(model.encode_documents(IMAGES, TEXTS), model.document_codes_)


def test_shapes_and_types_of_new_documents() -> None:
    model = fitted("default")
    for n in (0, 1, 7):
        codes = model.encode_documents(NEW_IMAGES[:n], NEW_TEXTS[:n])
        assert codes.shape == (n, M) and codes.dtype == np.uint8
        assert model.decode_documents(codes).shape == (n, D)
        assert model.distances(images=NEW_IMAGES, document_codes=codes).shape == (N_NEW, n)


def test_documents_and_points_do_not_depend_on_the_items_beside_them() -> None:
    model, rows = fitted("default"), [5, 17, 3]
    images, texts = NEW_IMAGES[rows], NEW_TEXTS[rows]
    np.testing.assert_array_equal(
        model.encode_documents(images, texts), model.encode_documents(NEW_IMAGES, NEW_TEXTS)[rows]
    )
    np.testing.assert_array_equal(model.encode_images(images), model.encode_images(NEW_IMAGES)[rows])
    np.testing.assert_array_equal(model.encode_texts(texts), model.encode_texts(NEW_TEXTS)[rows])
    np.testing.assert_array_equal(model.transform_images(images), model.transform_images(NEW_IMAGES)[rows])
    np.testing.assert_array_equal(model.transform_texts(texts), model.transform_texts(NEW_TEXTS)[rows])


@pytest.mark.parametrize("variant", ["default", "likelihood constant"])
def test_distances_to_documents_are_those_of_what_they_decode_to(variant: str) -> None:
    model = fitted(variant)
    codes = model.encode_documents(NEW_IMAGES, NEW_TEXTS)
    got = model.distances(texts=NEW_TEXTS[:9], document_codes=codes)
    points, decoded = model.transform_texts(NEW_TEXTS[:9]), model.decode_documents(codes)
    if variant == "default":
        np.testing.assert_allclose(got, exact_distances(points, decoded), atol=2e-2, rtol=1e-2)
        return
    quantizer = model.fitted_.document_quantizer
    assert quantizer is not None
    naive = naive_distances(model, points, quantizer.codewords, codes) + quantizer.epsilon
    np.testing.assert_allclose(got, naive, atol=2e-4)


def test_a_document_is_found_by_its_own_halves_better_than_by_one_code_of_a_half() -> None:
    model = fitted("default")
    whole = model.encode_documents(NEW_IMAGES, NEW_TEXTS)
    half = model.encode_images(NEW_IMAGES)
    by_whole = recall_of_own(model.distances(texts=NEW_TEXTS, document_codes=whole))
    assert by_whole > recall_of_own(model.distances(texts=NEW_TEXTS, image_codes=half)) + 0.1


def test_weights_of_two_codes_do_not_matter_to_one() -> None:
    changed = CMCQ(**SMALL, correlation=3.0, cross_penalty=2.0).fit(IMAGES, TEXTS)
    np.testing.assert_array_equal(changed.document_codes_, fitted("default").document_codes_)


def test_models_of_two_codes_have_no_document_codes() -> None:
    for variant in ("sparse", "cca", "shared cca", "contrastive"):
        model = fitted(variant)
        assert not model.fitted_.has_document_codes and model.fitted_.document_codes is None
        with pytest.raises(InvalidInput, match="scoring='likelihood'"):
            model.encode_documents(NEW_IMAGES, NEW_TEXTS)


@pytest.mark.parametrize("mapping", ["sparse", "contrastive"])
def test_a_likelihood_needs_canonical_coordinates(mapping: str) -> None:
    with pytest.raises(InvalidInput, match="^scoring: expected 'unit' with mapping="):
        CMCQ(**SMALL, mapping=mapping, scoring="likelihood").fit(IMAGES, TEXTS)


def test_the_blocks_of_halves_and_documents_are_told() -> None:
    blocks = [record.block for record in fitted("default").objective_history_]
    assert blocks[:5] == ["start", "C", "P", "Q", "b"] and blocks[-2:] == ["E", "b"]
    rounds = [record.round for record in fitted("default").objective_history_]
    assert rounds == sorted(rounds) and rounds[-1] <= 6


def test_training_documents_are_known_in_the_dictionary_of_each_side() -> None:
    learned = fitted("default").fitted_
    codes = learned.codes_by_side
    np.testing.assert_array_equal(codes["document"], learned.document_codes)
    with Workers(1) as workers:
        documents, halves = (
            learned.quantizers[side].to_coding(learned.quantizers[side].decode(codes[side], workers))
            for side in ("document", "image")
        )
    own = ((halves - documents) ** 2).sum(axis=1).mean()
    assert own < 0.5 * ((halves - documents[::-1]) ** 2).sum(axis=1).mean()
    paper = fitted("sparse").fitted_
    np.testing.assert_array_equal(paper.codes_by_side["text"], paper.text_codes)
