"""Systems on canonical correlation, CMCQ and composite quantization alone, beside their oracles."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from crossbyte import CMCQ
from crossbyte.calibration.baselines import residual_quantize
from crossbyte.compute.executor import Workers
from crossbyte.data.synthetic import Pairs, make_pairs
from crossbyte.errors import InvalidInput, MissingExtra
from crossbyte.lab.methods import cca_quantized
from crossbyte.lab.methods.registry import GROUPS, about_method, make_method
from crossbyte.model import params
from crossbyte.model.quantization.codebooks import deal_dimensions, decode
from crossbyte.model.space.cca import unit_rows

N_TRAIN = 300
PAIRS: Pairs = make_pairs(360, 24, 40, n_classes=4, n_topics=12, noise=0.1, words_per_text=30, random_state=0)
IMAGES, TEXTS = PAIRS.images[:N_TRAIN], PAIRS.texts[:N_TRAIN]
NEW_IMAGES, NEW_TEXTS = PAIRS.images[N_TRAIN:], PAIRS.texts[N_TRAIN:]
QUANTIZERS = GROUPS["quantizers"]
QUICK: dict[str, dict[str, Any]] = {"cca-lsq": {"train_iters": 3}}
SMALL: dict[str, Any] = {"n_atoms": 48, "max_iter": 2}


@cache
def fitted(key: str, n_bits: int = 16) -> Any:
    return make_method(key, n_bits, parameters=QUICK.get(key)).fit(IMAGES, TEXTS)


def points_of(n: int = 400, d: int = 10) -> NDArray[np.float32]:
    """Points whose dimensions vary less and less, as those of a canonical space do."""
    rng = np.random.default_rng(0)
    return (rng.standard_normal((n, d)) * 0.8 ** np.arange(d)).astype(np.float32)


def decoded(words: Any, codes: Any) -> NDArray[np.float32]:
    with Workers(1) as workers:
        return decode(words, codes, workers)


def naive_distances(queries: Any, items: Any) -> Any:
    return ((queries[:, None].astype(np.float64) - items[None]) ** 2).sum(axis=2)


# One space for all


def test_all_share_the_space_that_the_estimator_learns() -> None:
    model = CMCQ(16, scoring="unit", max_iter=1, random_state=0).fit(IMAGES, TEXTS)
    expected = model.transform_images(NEW_IMAGES), model.transform_texts(NEW_TEXTS)
    for key in ("cca", "cca-pq", "cca-rq", "cmcq-cca"):
        method = fitted(key)
        assert np.array_equal(method.queries("image", NEW_IMAGES), expected[0])
        assert np.array_equal(method.queries("text", NEW_TEXTS), expected[1])
        assert method.details["n_components"] == 16


def test_what_the_estimator_may_do_to_features_all_may() -> None:
    images = np.abs(IMAGES)
    powers = {"image_power": 0.5, "text_power": 0.7}
    model = CMCQ(16, scoring="unit", max_iter=1, random_state=0, **powers).fit(images, TEXTS)
    for key in ("cca", "cca-opq"):
        method = make_method(key, 16, parameters=powers).fit(images, TEXTS)
        assert np.array_equal(
            method.queries("image", np.abs(NEW_IMAGES)), model.transform_images(np.abs(NEW_IMAGES))
        )
        assert np.array_equal(method.queries("text", NEW_TEXTS), model.transform_texts(NEW_TEXTS))
    plain, rooted = (make_method("cca-itq", 16, parameters=each).fit(images, TEXTS) for each in ({}, powers))
    assert not np.array_equal(plain.training_items("image"), rooted.training_items("image"))
    for key in ("cca-rq", "cca-itq"):
        with pytest.raises(InvalidInput, match="image_power"):
            make_method(key, 16, parameters={"image_power": 0.0})


def test_the_middle_of_both_halves_is_coded_once() -> None:
    method = make_method("cca-middle-rq", 16, parameters={"n_components": 12}).fit(IMAGES, TEXTS)
    halves = [method.queries("image", IMAGES), method.queries("text", TEXTS)]
    middles = unit_rows((halves[0] + halves[1]) / 2)
    codes = method.training_items("image")
    assert codes.shape == (N_TRAIN, 2) and codes.dtype == np.uint8
    assert np.array_equal(codes, method.pair_items("text", IMAGES, TEXTS))
    with Workers(1) as workers:
        expected = residual_quantize(middles, middles, 2, np.random.default_rng(0), workers)
    queries = method.queries("text", NEW_TEXTS)
    for side in ("image", "text"):
        found = method.distances(side, queries, codes)
        assert np.allclose(found, naive_distances(queries, expected), atol=1e-5)
    lost = ((middles - expected) ** 2).sum() / (middles**2).sum()
    assert method.details["quantization_error"]["document"] == pytest.approx(lost, rel=1e-4)
    # Learned from middles, it codes middles better than halves.
    alone = halves[1] - decoded(method._quantizer.codewords, method.side_items("text", TEXTS))
    assert lost < (alone**2).sum() / (halves[1] ** 2).sum()
    assert make_method("cca-middle-rq", 32).parameters["n_components"] == 128


def test_keyword_overlap_is_the_cosine_of_words_and_tells_its_bytes() -> None:
    words = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], dtype=np.float32)
    images = np.zeros((4, 2), dtype=np.float32)
    plain = make_method("keywords", 16).fit(images, sparse.csr_array(words))
    queries = plain.queries("text", words[:1])
    found = plain.distances("image", queries, plain.training_items("image"))
    assert np.allclose(found, [[0, 1 - 0.5**0.5, 1, 1 - 0.5**0.5]])
    weighted = make_method("keywords", 16, parameters={"idf": True}).fit(images, words)
    rare = 1 + np.log([5 / 4, 5 / 2, 5 / 3])  # in three, one and two of four texts
    found = weighted.distances("image", weighted.queries("text", words[:1]), weighted.training_items("text"))
    assert np.allclose(found[0, [1, 3]], [1 - rare[0] / np.hypot(rare[0], rare[other]) for other in (1, 2)])
    # Six words in four documents: a byte each, a second one where they are counted, four where weighed.
    for factor, expected in ((1.0, 6 / 4), (3.0, 12 / 4), (0.3, 30 / 4)):
        stored = make_method("keywords", 16).fit(images, factor * words).details["bytes_per_document"]
        assert stored == expected
    wide = make_method("keywords", 16).fit(images, np.pad(words, ((0, 0), (0, 297))))
    assert wide.details["bytes_per_document"] == 12 / 4  # numbers up to 299 take two bytes
    with pytest.raises(InvalidInput, match="counts of words"):
        make_method("keywords", 16).fit(images, words - 1)
    with pytest.raises(InvalidInput, match="images have no words"):
        plain.queries("image", images)


def test_dimensions_and_ridge_can_be_given_and_are_judged() -> None:
    wider = make_method("cca", 8, parameters={"n_components": 12, "ridge": 0.1}).fit(IMAGES, TEXTS)
    assert wider.queries("text", NEW_TEXTS).shape == (60, 12)
    with pytest.raises(InvalidInput, match="ridge"):
        make_method("cca-pq", 16, parameters={"ridge": -1.0})
    with pytest.raises(InvalidInput, match="n_components"):
        make_method("cca", 16, parameters={"n_components": 0})


def test_uncompressed_distances_are_those_of_the_points() -> None:
    method = fitted("cca")
    queries, items = method.queries("image", NEW_IMAGES), method.side_items("text", NEW_TEXTS)
    assert np.allclose(method.distances("text", queries, items), naive_distances(queries, items), atol=1e-5)


def test_a_pair_is_the_point_between_its_halves() -> None:
    method = fitted("cca")
    images, texts = method.queries("image", NEW_IMAGES), method.queries("text", NEW_TEXTS)
    middle = (images + texts) / 2
    pairs = method.pair_items("text", NEW_IMAGES, NEW_TEXTS)
    assert np.allclose(pairs, middle / np.linalg.norm(middle, axis=1, keepdims=True), atol=1e-6)
    without_words = sparse.csr_array(NEW_TEXTS.shape, dtype=np.float32)
    assert np.allclose(method.pair_items("image", NEW_IMAGES, without_words), images, atol=1e-6)
    with pytest.raises(InvalidInput, match="one text per image"):
        method.pair_items("text", NEW_IMAGES[:3], NEW_TEXTS)


# Standard quantizers


@pytest.mark.parametrize("key", QUANTIZERS)
def test_coded_distances_are_exact_to_what_the_codes_stand_for(key: str) -> None:
    method = fitted(key)
    queries, items = method.queries("image", NEW_IMAGES), method.side_items("text", NEW_TEXTS)
    points = decoded(method._quantizers["text"].codewords, items["codes"])
    found = method.distances("text", queries, items)
    assert np.allclose(found, naive_distances(queries, points), atol=1e-5)
    assert all(0 < error < 0.5 for error in method.details["quantization_error"].values())


@pytest.mark.parametrize("key", QUANTIZERS)
def test_items_with_equal_codes_are_tied_wherever_they_stand(key: str) -> None:
    method = fitted(key, 8)
    items = np.tile(method.side_items("image", NEW_IMAGES[:5]), 7)
    found = method.distances("image", method.queries("text", NEW_TEXTS[:3]), items)
    assert np.array_equal(found.reshape(3, 7, 5), np.repeat(found[:, None, :5], 7, axis=1))


def test_additive_quantizers_are_those_of_faiss() -> None:
    points = points_of()
    residual = faiss.ResidualQuantizer(10, 2, 8)
    residual.cp.seed, residual.cp.min_points_per_centroid = 5, 1
    local = faiss.LocalSearchQuantizer(10, 2, 8)
    local.random_seed, local.train_iters = 5, 3
    ours = cca_quantized.train_rq(points, 16, 5), cca_quantized.train_lsq(points, 16, 5, 3)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    for theirs, own in zip((residual, local), ours, strict=True):
        theirs.train(points)
        codes = theirs.compute_codes(points)
        assert np.array_equal(own.encode(points), codes)
        assert np.allclose(decoded(own.codewords, codes), theirs.decode(codes), atol=1e-6)
    faiss.omp_set_num_threads(threads)


@pytest.mark.parametrize(("n_dims", "n_bits", "n_parts"), [(10, 32, 4), (3, 64, 3), (8, 32, 4), (5, 3, 1)])
def test_product_codes_name_the_nearest_word_of_each_part(n_dims: int, n_bits: int, n_parts: int) -> None:
    """Also where the parts do not divide the dimensions, and where there are more bytes than dimensions."""
    points = points_of(d=n_dims)
    trained = cca_quantized.train_pq(points, n_bits, 0)
    used = trained.codewords.any(axis=1)  # (M, d): which dimensions a part has
    assert len(used) == n_parts and (used.sum(axis=0) == 1).all()
    assert np.ptp(used.sum(axis=1)) <= 1
    codes = trained.encode(points)
    for part, dims in enumerate(used):
        words = trained.codewords[part][: 2 ** min(n_bits, 8), dims]
        nearest = naive_distances(points[:, dims], words)
        assert np.allclose(nearest[np.arange(400), codes[:, part]], nearest.min(axis=1), atol=1e-6)


def test_dealt_parts_vary_alike() -> None:
    dealt = deal_dimensions(np.array([9.0, 1.0, 8.0, 7.0, 2.0]), 2)
    assert dealt.tolist() == [[0, 4, 1], [2, 3, -1]]


@pytest.mark.parametrize("n_dims", [8, 10])
def test_a_rotation_is_taken_back(n_dims: int) -> None:
    """Otherwise words and points would have nothing in common; into a wider space where parts need it."""
    points = points_of(d=n_dims)
    trained = cca_quantized.train_opq(points, 32, 0)
    lost = points - decoded(trained.codewords, trained.encode(points))
    assert trained.codewords.shape == (4, 256, n_dims)
    assert (lost**2).sum() < 0.1 * (points**2).sum()


@pytest.mark.parametrize("key", QUANTIZERS)
def test_few_points_and_parts_of_a_byte_give_no_warning(key: str, capfd: pytest.CaptureFixture[str]) -> None:
    for n_bits in (1, 3, 16):
        method = make_method(key, n_bits, parameters=QUICK.get(key)).fit(IMAGES[:20], TEXTS[:20])
        codes = method.training_items("image")["codes"]
        assert codes.shape == (20, -(-n_bits // 8)) and codes.max() < 2 ** min(n_bits, 8)
    assert capfd.readouterr() == ("", "")


def test_many_points_are_sampled() -> None:
    points = points_of()
    whole, sampled, again = (cca_quantized.train_lsq(points, 8, 0, 2, most) for most in (400, 300, 300))
    assert np.array_equal(sampled.codewords, again.codewords) and not np.array_equal(
        sampled.codewords, whole.codewords
    )
    assert sampled.encode(points).shape == (400, 1)
    assert cca_quantized._sample_points(points, 8, 0, 10).shape == (256, 10)


def test_lengths_between_bytes_are_refused() -> None:
    for key in QUANTIZERS:
        with pytest.raises(InvalidInput, match="multiple of 8, or less than 8; got 12"):
            make_method(key, 12)


def test_without_faiss_only_its_systems_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for key in QUANTIZERS:
        assert about_method(key).name
        with pytest.raises(MissingExtra, match=r"pip install 'crossbyte\[faiss\]'"):
            make_method(key, 16)
    assert make_method("cca", 16).fit(IMAGES, TEXTS).details == {"n_components": 16}


# CMCQ and composite quantization


@pytest.mark.parametrize("key", ["cmcq", "cmcq-cca"])
def test_cmcq_is_the_estimator(key: str) -> None:
    method = make_method(key, 16, seed=4, parameters=SMALL if key == "cmcq" else {"max_iter": 2})
    chosen = {name: value for name, value in method.parameters.items() if name != "similarity"}
    make = CMCQ.paper if key == "cmcq" else partial(CMCQ, mapping="cca", scoring="unit")
    model = make(16, random_state=4, **chosen).fit(IMAGES, TEXTS)
    method.fit(IMAGES, TEXTS)
    image_codes, text_codes = model.encode_pairs(NEW_IMAGES, NEW_TEXTS)
    queries = method.queries("text", NEW_TEXTS)
    for items, codes in (
        (method.training_items("image"), model.image_codes_),
        (method.side_items("image", NEW_IMAGES), model.encode_images(NEW_IMAGES)),
        (method.pair_items("image", NEW_IMAGES, NEW_TEXTS), image_codes),
    ):
        assert np.array_equal(items[:, :2], codes)
        expected = model.distances(texts=NEW_TEXTS, image_codes=codes)
        assert np.array_equal(method.distances("image", queries, items), expected)
    assert np.array_equal(method.pair_items("text", NEW_IMAGES, NEW_TEXTS)[:, :2], text_codes)
    assert method.details["objective"] == model.objective_history_[-1].total


def test_the_quantization_error_is_that_of_the_training_points() -> None:
    method = make_method("cmcq-cca", 16, parameters={"max_iter": 2}).fit(IMAGES, TEXTS)
    for side, rows in (("image", IMAGES), ("text", TEXTS)):
        points = method.queries(side, rows)
        codes = method.training_items(side)[:, :2]
        lost = points - decoded(method._require_fitted().quantizers[side].codewords, codes)
        expected = (lost**2).sum() / (points**2).sum()
        assert method.details["quantization_error"][side] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("change", [{"correlation": 0.0}, {"alignment": 0.0}, {"shared_codebooks": True}])
def test_the_ablations_of_the_paper_are_parameters(change: dict[str, Any]) -> None:
    method = make_method("cmcq", 8, parameters=SMALL | change).fit(IMAGES, TEXTS)
    plain = make_method("cmcq", 8, parameters=SMALL).fit(IMAGES, TEXTS)
    assert method.parameters.items() >= change.items()
    assert method.details["objective"] != plain.details["objective"]
    words = [quantizer.codewords for quantizer in method._require_fitted().quantizers.values()]
    assert np.array_equal(np.sort(words[0], axis=1), np.sort(words[1], axis=1)) == (
        "shared_codebooks" in change
    )


def test_wrong_parameters_are_refused_before_any_work() -> None:
    for key, change in (("cmcq", {"sparsity": 0.0}), ("cq", {"query_map": "x"}), ("cmcq-auto", {"tol": -1})):
        with pytest.raises(InvalidInput, match=next(iter(change))):
            make_method(key, 16, parameters=change)


def test_texts_too_wide_for_canonical_correlation_are_reduced_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "MAX_GRAM_DIMS", 30)
    monkeypatch.setattr(params, "_FEWER_TEXT_COMPONENTS", 20)
    quantized = make_method("cmcq-cca", 8, parameters={"max_iter": 1}).fit(IMAGES, TEXTS)
    plain = make_method("cca", 8).fit(IMAGES, TEXTS)
    assert quantized._require_fitted().text_preparation.n_dims == 20
    assert np.array_equal(plain.queries("text", NEW_TEXTS), quantized.queries("text", NEW_TEXTS))


def test_what_was_chosen_is_told() -> None:
    chosen = {"n_components": 8, "ridge": 0.5, "max_iter": 1}
    method = make_method("cmcq-auto", 8, parameters=chosen).fit(IMAGES, TEXTS)
    told = method.details["chosen"]
    assert told["n_trials"] >= 3 and told["n_components"] == 8 and told["ridge"] == 0.5
    assert told["image_power"] in (0.5, 1.0) and told["text_power"] in (0.5, 1.0)


# One code for a document


@pytest.mark.parametrize(("key", "mapping"), [("cmcq-default", "cca"), ("cmcq-auto", "auto")])
def test_one_code_is_that_of_the_estimator(key: str, mapping: str) -> None:
    method = make_method(key, 16, seed=4, parameters={"max_iter": 1}).fit(IMAGES, TEXTS)
    model = CMCQ(16, mapping=mapping, max_iter=1, random_state=4).fit(IMAGES, TEXTS)
    codes = model.encode_documents(NEW_IMAGES, NEW_TEXTS)
    for side, queries in (("text", NEW_IMAGES), ("image", NEW_TEXTS)):
        asked = {"images" if side == "text" else "texts": queries}
        points = method.queries("image" if side == "text" else "text", queries)
        assert np.array_equal(method.training_items(side)[:, :2], model.document_codes_)
        items = method.pair_items(side, NEW_IMAGES, NEW_TEXTS)
        assert np.array_equal(items[:, :2], codes)
        expected = model.distances(**asked, document_codes=codes)
        whole = method.distances(side, points, items)
        assert np.allclose(whole, expected + model.fitted_.document_constant, atol=1e-4)
    assert list(method.details["quantization_error"]) == ["document"]
    assert 0 < method.details["quantization_error"]["document"] < 1


def test_whole_documents_and_single_halves_can_be_searched_together() -> None:
    method = make_method("cmcq-default", 16, parameters={"max_iter": 1}).fit(IMAGES, TEXTS)
    queries = method.queries("image", NEW_IMAGES)
    whole, half = method.pair_items("text", NEW_IMAGES, NEW_TEXTS), method.side_items("text", NEW_TEXTS)
    assert whole.shape == half.shape
    mixed = np.concatenate([whole, half])[np.random.default_rng(0).permutation(2 * len(whole))]
    found = method.distances("text", queries, mixed)
    learned = method._require_fitted()
    for item, distances in zip(mixed, found.T, strict=True):
        kind, constant = ("document", learned.document_constant) if item[-1] else ("text", 0.0)
        expected = learned.quantizers[kind].table(queries).distances(item[None, :-1])[:, 0]
        assert np.allclose(distances, expected + constant, atol=1e-4)
    exact = naive_distances(queries, decoded(learned.document_quantizer.codewords, whole[:, :2]))
    near = method.distances("text", queries, whole) - learned.document_constant
    step = np.ptp(learned.document_quantizer.cross_levels) / 255  # a cross term is rounded to a byte
    assert np.median(np.abs(near - exact)) < step


@pytest.mark.parametrize("item", ["both", "text", "image"])
def test_a_kernel_document_may_have_one_code(item: str) -> None:
    chosen = {"anchors": 60, "max_iter": 1, "item": item}
    method = make_method("cmcq-kernel", 16, parameters=chosen).fit(IMAGES, TEXTS)
    plain = make_method("cmcq-kernel", 16, parameters={**chosen, "item": "sides"}).fit(IMAGES, TEXTS)
    assert np.array_equal(method.training_items("image"), method.training_items("text"))
    assert np.array_equal(method.queries("image", NEW_IMAGES), plain.queries("image", NEW_IMAGES))
    assert list(method.details["quantization_error"]) == ["document"]
    assert np.array_equal(method.pair_items("image", IMAGES, TEXTS), method.training_items("image"))
    other_images = method.pair_items("image", IMAGES[::-1], TEXTS)
    same = np.array_equal(other_images, method.training_items("image"))
    assert same == (item == "text")  # the image's code is then the text's
    other_texts = method.pair_items("text", IMAGES, TEXTS[::-1])
    assert np.array_equal(other_texts, method.training_items("text")) == (item == "image")
    with pytest.raises(InvalidInput, match="item"):
        make_method("cmcq-kernel", 16, parameters={"item": "picture"})
    with pytest.raises(InvalidInput):
        method.pair_items("text", NEW_IMAGES[:3], NEW_TEXTS)


def test_composite_quantization_alone_leaves_the_points_where_they_are() -> None:
    near, far = (
        make_method("cq", 16, parameters=SMALL | {"cross_penalty": each}).fit(IMAGES, TEXTS)
        for each in (0.0, 1.0)
    )
    for side, rows in (("image", NEW_IMAGES), ("text", NEW_TEXTS)):
        assert np.array_equal(near.queries(side, rows), far.queries(side, rows))
    history = far._require_fitted().history
    assert len({record.terms.alignment for record in history}) == 1
    assert {record.terms.correlation for record in history} == {0.0}
    assert history[-1].terms.image_quantization <= history[0].terms.image_quantization


def test_with_both_halves_known_composite_codes_know_the_mapping_alone() -> None:
    """Points of pairs are pulled together by λ; their codes are found apart."""
    method = make_method("cq", 16, parameters=SMALL).fit(IMAGES, TEXTS)
    learned = method._require_fitted()
    with Workers(1) as workers:
        points = learned.fold_in(NEW_IMAGES, NEW_TEXTS, workers)
        expected = learned.text_quantizer.encode(points[1], workers)
    assert np.array_equal(method.pair_items("text", NEW_IMAGES, NEW_TEXTS), expected)
