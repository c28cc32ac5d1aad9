"""Explanations are exact: they add up, agree with the search, and say what a swap really does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from crossbyte import CMCQ, Index
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput, UnknownId
from crossbyte.index.explain.explanation import Explanation
from support.index_samples import sample
from support.index_twin import Twin, document_model, features, small_model
from support.random_models import random_index, random_model, random_queries

HALF_ULP = 2.0**-24  # of float32, relative
TARGETS = ("image", "text", "document")


def random_cases(index: Index, n: int, seed: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Ids and queries: both directions and by example, all targets and codings."""
    rng, queries = np.random.default_rng(seed), random_queries(n, seed)
    ids = index.ids()
    for i in range(n):
        target = TARGETS[rng.integers(3)]
        fitting = [id for id in ids if _has(id, target)]
        kind = ("images", "texts", "texts", "images", "like")[rng.integers(5)]
        query = ids[rng.integers(len(ids))] if kind == "like" else queries[kind][i]
        yield fitting[rng.integers(len(fitting))], {kind: query, "target": target}


def _has(id: Any, target: str) -> bool:
    """Whether a document of ``random_index`` can be found with a target; its id says so."""
    own = {"i": "image"}.get(id[0], "both") if isinstance(id, str) else "text"
    return target == "document" or own in (target, "both")


def check_sum(explanation: Explanation) -> float:
    """Shares and constant are the distance; returns what float32 has rounded away, relative to it."""
    shares = sum(share.share for share in explanation.shares)
    assert shares + explanation.constant == pytest.approx(explanation.distance, rel=1e-6, abs=1e-12)
    entries = [abs(share.entry) for share in explanation.shares]
    constants = explanation.constants
    largest = sum(entries) + len(entries) * constants.squared_length + abs(constants.cross_term)
    assert abs(constants.rounding) <= (len(entries) + 4) * HALF_ULP * (largest + 1)
    return abs(constants.rounding) / abs(explanation.distance)


def explain_random_cases(folder: Path, n_cases: int) -> np.ndarray:
    """Explain, and compare with the search; returns the relative rounding of each case."""
    roundings = []
    for i in range(32):
        model = random_model(i % 16 + 1, ("constant", "stored")[i // 16], seed=i, calibrated=i % 3 > 0)
        with random_index(folder / f"{i}.cb", model, seed=i) as index:
            for id, query in random_cases(index, -(-n_cases // 32), seed=i):
                explanation = index.explain(id, **query)
                check_against_search(index, explanation, query)
                roundings.append(check_sum(explanation))
    return np.array(roundings)


def check_against_search(index: Index, explanation: Explanation, query: dict[str, Any]) -> None:
    (hits,) = index.search(**query, k=len(index))
    place = hits.ids.index(explanation.id)
    assert (explanation.rank, explanation.n_ranked) == (place + 1, len(hits))
    assert np.float32(explanation.distance) == hits.distances[place]
    ahead = explanation.to_be_nearer.ahead
    assert (ahead is None) == (place == 0)
    if ahead is not None:
        assert (ahead.id, ahead.distance) == (hits.ids[place - 1], float(hits.distances[place - 1]))


def test_shares_and_constant_are_the_distance(tmp_path: Path) -> None:
    roundings = explain_random_cases(tmp_path, 480)
    assert len(roundings) == 480 and np.median(roundings) < 1e-6


@pytest.mark.long
def test_shares_and_constant_are_the_distance_ten_thousand_times(tmp_path: Path) -> None:
    assert len(explain_random_cases(tmp_path, 10_000)) >= 10_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Index, Twin]]:
    """A fitted, calibrated model with stored cross terms."""
    path = tmp_path_factory.mktemp("explanation") / "small.cb"
    index, twin = sample(path, small_model(32, "stored", calibrated=True))
    yield index, twin
    index.close()


def test_shares_are_those_of_the_codewords(small: tuple[Index, Twin]) -> None:
    """|c|² - 2 x'·c in float64, from the codebooks alone."""
    index, twin = small
    _, texts = features(5, seed=11)
    for text in texts:
        explanation = index.explain("p4", texts=text, target="document")
        point = index.model.transform_texts(text[None])[0].astype(float)
        shares = [share for share in explanation.shares if share.codebook is not None]
        assert [share.side for share in shares] == ["image"] * 4 + ["text"] * 4
        for share in shares:
            code = twin.entries["p4"].code(share.side)
            words = getattr(index.model, f"{share.side}_codebooks_")[share.codebook].astype(float)
            assert code is not None and share.codeword == code[share.codebook]
            expected = (words**2).sum(axis=1) - 2 * words @ point
            assert share.share == pytest.approx(expected[share.codeword], abs=1e-6)
            assert share.best_codeword == expected.argmin()
            assert share.best_entry == pytest.approx(expected.min() + point @ point, abs=1e-6)


def test_a_stored_cross_term_is_one_more_share(small: tuple[Index, Twin]) -> None:
    explanation = small[0].explain("i3", texts=features(1, seed=12)[1][0])
    *_, last = explanation.shares
    assert (last.codebook, last.n_training, last.share) == (None, None, last.entry)
    words = small[0].model.image_codebooks_.astype(float)
    code = small[1].entries["i3"].image_code
    assert code is not None
    chosen = np.array([words[m, k] for m, k in enumerate(code)])
    cross = (chosen.sum(axis=0) ** 2).sum() - (chosen**2).sum()
    levels = small[0].model.fitted_.image_quantizer.cross_levels
    assert levels is not None
    assert last.entry == pytest.approx(
        min(max(cross, levels[0]), levels[-1]), abs=float(np.diff(levels).max())
    )
    assert explanation.constants.cross_term == 0.0


def test_examples_are_training_pairs_that_share_codewords(small: tuple[Index, Twin]) -> None:
    index, twin = small
    explanation = index.explain("p2", texts=features(1, seed=13)[1][0], target="document", n_examples=7)
    training = {"image": index.model.image_codes_, "text": index.model.text_codes_}
    shared = {side: (training[side] == twin.entries["p2"].code(side)).sum(axis=1) for side in training}
    together = shared["image"] + shared["text"]
    best = sorted(range(len(together)), key=lambda row: (-together[row], row))[:7]
    assert [example.row for example in explanation.examples] == best
    assert all(e.shared == {side: shared[side][e.row] for side in shared} for e in explanation.examples)
    for share in explanation.shares:
        if share.codebook is not None:
            alike = np.flatnonzero(training[share.side][:, share.codebook] == share.codeword)
            assert share.n_training == len(alike) and len(share.training_rows) == min(7, len(alike))
            assert set(share.training_rows) <= set(alike.tolist())


@pytest.mark.parametrize("cross_term", ["constant", "stored"])
def test_a_swap_does_what_it_says(cross_term: str, tmp_path: Path) -> None:
    """Put an item with the swapped codeword into the index and look."""
    model = small_model(32, cross_term)
    index, twin = sample(tmp_path / "a.cb", model)
    text = features(1, seed=14)[1][0]
    explanation = index.explain("i5", texts=text)
    code = np.array(twin.entries["i5"].image_code, dtype=np.uint8)
    assert len(explanation.to_be_nearer.swaps) == 4
    for swap in explanation.to_be_nearer.swaps:
        every = np.repeat(code[None], 256, axis=0)
        every[:, swap.codebook] = np.arange(256)
        distances = model.distances(texts=text[None], image_codes=every)[0]
        assert distances[swap.codeword] == distances.min()
        assert swap.gain == float(distances[code[swap.codebook]]) - float(distances.min())
    best = explanation.to_be_nearer.best_possible
    assert best <= explanation.distance - max(swap.gain for swap in explanation.to_be_nearer.swaps) + 1e-6
    rng = np.random.default_rng(0)
    others = model.distances(texts=text[None], image_codes=rng.integers(0, 256, (20_000, 4), dtype=np.uint8))
    assert best <= others.min() + 1e-6


@pytest.mark.parametrize("cross_term", ["constant", "stored"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_swap_in_the_one_code_of_a_document_does_what_it_says(
    cross_term: str, target: str, tmp_path: Path
) -> None:
    """The model's constant of the coding is in the distance, and in no codeword's share."""
    model = document_model(cross_term)
    index, twin = sample(tmp_path / "a.cb", model)
    text = features(1, seed=14)[1][0]
    explanation = index.explain("p5", texts=text, target=target)
    check_sum(explanation)
    check_against_search(index, explanation, {"texts": text, "target": target})
    constant = model.fitted_.document_constant
    assert explanation.constants.coding_offset == constant != 0.0
    assert {share.side for share in explanation.shares} == {"document"}
    code = np.array(twin.entries["p5"].document_code, dtype=np.uint8)
    for swap in explanation.to_be_nearer.swaps:
        every = np.repeat(code[None], 256, axis=0)
        every[:, swap.codebook] = np.arange(256)
        distances = model.distances(texts=text[None], document_codes=every)[0]
        assert distances[swap.codeword] == distances.min()
        assert swap.gain == float(distances[code[swap.codebook]]) - float(distances.min())
    best = explanation.to_be_nearer.best_possible
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (20_000, len(code)), dtype=np.uint8)
    others = model.distances(texts=text[None], document_codes=codes)
    # Coding is in another metric than distances, and the cross term in steps: the very best is not promised.
    assert best <= np.quantile(others, 0.002) + constant + 1e-6


def models_and_queries() -> Iterator[tuple[str, CMCQ, Any, Any]]:
    """Every mapping, with and without PCA, sparse and dense texts."""
    images, texts, _ = make_pairs(300, 12, 40, random_state=0)
    settings: dict[str, dict[str, Any]] = {
        "cca": {"n_components": 6},
        "cca with PCA": {"n_components": 6, "text_components": 8, "image_components": 5},
        "cca of roots": {"n_components": 6, "image_power": 0.5, "text_power": 0.5},
        "cca, unit": {"scoring": "unit", "n_components": 6},
        "cca of roots, unit": {"scoring": "unit", "n_components": 6, "image_power": 0.5, "text_power": 0.5},
        "contrastive": {"mapping": "contrastive", "n_components": 6},
        "sparse": {"mapping": "sparse", "n_atoms": 24, "image_components": 8},
        "sparse, ridge": {"mapping": "sparse", "n_atoms": 24, "image_components": 8, "query_map": "ridge"},
    }
    for name, setting in settings.items():
        model = CMCQ(16, max_iter=2, random_state=0, n_jobs=1, **setting).fit(images, texts)
        yield name, model, images[:6], texts[:6]


def test_features_add_up_to_the_inner_product(tmp_path: Path) -> None:
    for name, model, images, texts in models_and_queries():
        with Index.from_training(tmp_path / f"{name}.cb", model, n_jobs=1) as index:
            for row in range(6):
                check_features_of(index, row, texts=texts[[row]])
                check_features_of(index, row, texts=texts[[row]].toarray())
                check_features_of(index, row, images=images[row])


def check_features_of(index: Index, id: int, **query: Any) -> None:
    model, target = index.model, "image" if "texts" in query else "text"
    decode = model.decode_images if target == "image" else model.decode_texts
    codes = model.image_codes_ if target == "image" else model.text_codes_
    if model.fitted_.has_document_codes:
        decode, codes = model.decode_documents, model.document_codes_
    if "texts" in query:
        point = model.transform_texts(query["texts"])[0]
    else:
        point = model.transform_images(query["images"][None])[0]
    product = index.explain(id, **query, n_features=3).query_features
    everything = index.explain(id, **query, n_features=1000).query_features
    shares = [feature.share for feature in everything.features]
    assert everything.others == 0.0 and product.features == everything.features[:3]
    assert sorted(shares, key=abs, reverse=True) == shares
    expected = float(point.astype(float) @ decode(codes[[id]])[0])
    scale = sum(map(abs, shares)) + abs(everything.mean)
    assert product.total == pytest.approx(expected, abs=1e-12)
    assert sum(shares) + everything.mean == pytest.approx(expected, abs=1e-6 * scale)
    listed = sum(feature.share for feature in product.features)
    assert listed + product.others + product.mean == pytest.approx(expected, abs=1e-6 * scale)


def test_atoms_explain_the_papers_image_query(tmp_path: Path) -> None:
    images, texts, _ = make_pairs(300, 12, 40, random_state=0)
    settings: dict[str, Any] = {"max_iter": 2, "random_state": 0, "n_jobs": 1}
    model = CMCQ.paper(16, n_atoms=24, image_components=8, **settings).fit(images, texts)
    with Index.from_training(tmp_path / "a.cb", model, n_jobs=1) as index:
        product = index.explain(3, images=images[0], n_features=100).query_features
    weights = np.zeros(24)
    for feature in product.features:
        assert feature.kind == "atom" and feature.name is None
        weights[feature.column] = feature.value
    point = model.transform_images(images[:1])[0]
    np.testing.assert_allclose(weights @ model.image_map_, point, atol=1e-6)


def test_words_of_the_query_and_of_the_item_have_names(tmp_path: Path) -> None:
    """Pairs of two classes with words of their own: an image is described by those of its class."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=400)
    images = rng.normal(size=(400, 6)) + 3 * kind[:, None]
    texts = (rng.random((400, 8)) < np.where(kind[:, None] == np.arange(8) // 4, 0.7, 0.05)).astype(
        np.float32
    )
    words = ["sea", "ship", "wave", "sand", "tree", "leaf", "wood", "moss"]
    model = CMCQ(8, mapping="cca", n_components=2, max_iter=2, random_state=0, n_jobs=1).fit(images, texts)
    with Index.from_training(tmp_path / "a.cb", model, n_jobs=1) as index:
        query = sp.csr_matrix(texts[[0]])
        for row in range(20):
            best = index.explain(row, texts=query, vocabulary=words).item_words[0]
            assert words.index(str(best.name)) // 4 == kind[row] and best.pull > 0
        by_list = index.explain(0, texts=query, vocabulary=words)
        by_column = {word: column for column, word in enumerate(words)}
        assert index.explain(0, texts=query, vocabulary=by_column) == by_list
    names = {feature.name for feature in by_list.query_features.features}
    assert names == {words[column] for column in np.flatnonzero(texts[0])}
    assert str(by_list.item_words[0].name) in str(by_list)


def test_an_empty_text_has_no_strong_words(small: tuple[Index, Twin]) -> None:
    product = small[0].explain("p1", texts=np.zeros(5)).query_features
    assert (product.total, product.features, product.mean, product.others) == (0.0, (), 0.0, 0.0)


def test_a_query_by_example_has_no_features(small: tuple[Index, Twin]) -> None:
    product = small[0].explain("p1", like="p2", target="image").query_features
    assert product.features == () and product.others == product.total


def test_it_is_json_and_readable(small: tuple[Index, Twin]) -> None:
    explanation = small[0].explain("p1", texts=features(1, seed=15)[1][0], target="document")
    document = explanation.to_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["shares"][0]["codebook"] == 0 and document["constants"]["coding_offset"] is not None
    text = str(explanation)
    for part in ("'p1' is number", "text codebook 3", "image cross term", "constant:", "most alike"):
        assert part in text


def test_what_is_not_understood_is_refused(small: tuple[Index, Twin]) -> None:
    index, _ = small
    images, texts = features(2, seed=16)
    with pytest.raises(UnknownId, match="'nobody'"):
        index.explain("nobody", texts=texts[0])
    with pytest.raises(UnknownId, match="like"):
        index.explain("p1", like="nobody")
    with pytest.raises(InvalidInput, match=r"'i1' has only: image; ask for target='image'"):
        index.explain("i1", images=images[0])
    with pytest.raises(InvalidInput, match="one query at a time: expected 1 row or id, got 2"):
        index.explain("p1", texts=texts)
    with pytest.raises(InvalidInput, match="got 0"):
        index.explain("p1", texts=texts[:0])
    with pytest.raises(InvalidInput, match="one kind of query"):
        index.explain("p1", texts=texts[0], images=images[0])
    with pytest.raises(InvalidInput, match="n_features"):
        index.explain("p1", texts=texts[0], n_features=-1)
    for vocabulary in (["a"], {"a": 5}, "abcde", 3):
        with pytest.raises(InvalidInput, match="vocabulary"):
            index.explain("p1", texts=texts[0], vocabulary=vocabulary)
