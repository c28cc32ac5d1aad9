"""The space that two encoders share: cosines as they are without pairs, identities of what pairs refine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ, Index
from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import N_CODEWORDS
from crossbyte.data.preparation import DenseRows
from crossbyte.errors import DamagedModelFile, InvalidInput
from crossbyte.model.quantization import codebooks
from crossbyte.model.space import gaussian, joint
from crossbyte.model.space.joint import Refinement

N, DIMS = 240, 16
SMALL: dict[str, Any] = {"n_bits": 16, "mapping": "joint", "max_iter": 2, "random_state": 0, "n_jobs": 1}


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as entered:
        yield entered


def make_sides(seed: int = 0, n: int = N, skew: float = 0.0) -> tuple[Any, Any]:
    """Pictures and texts of one space, whose sides lie apart; ``skew`` turns the texts away from it."""
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n, DIMS))
    turn = np.eye(DIMS) + skew * np.random.default_rng(99).standard_normal((DIMS, DIMS))
    images = latent + 0.5 * rng.standard_normal((n, DIMS)) + 2.0
    texts = (latent + 0.5 * rng.standard_normal((n, DIMS))) @ turn - 1.5
    return images, texts


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def centre(rows: Any) -> Any:
    return unit(unit(rows) - unit(rows).mean(axis=0))


def fit(images: Any, texts: Any, paired: bool | int = False, **changes: Any) -> CMCQ:
    return CMCQ(**(SMALL | changes)).fit(images, texts, paired=paired)


def item_points(model: CMCQ, images: Any, texts: Any) -> Any:
    with Workers(1) as workers:
        return model.fitted_.item_points(images, texts, workers)


# Without pairs


def test_without_pairs_it_is_the_cosine_of_centred_rows() -> None:
    images, texts = make_sides()
    model = fit(images, texts)
    found = model.transform_texts(texts) @ item_points(model, images, None).T
    np.testing.assert_allclose(found, centre(texts) @ centre(images).T, atol=1e-5)
    other = model.transform_images(images) @ item_points(model, None, texts).T
    np.testing.assert_allclose(other, found.T, atol=1e-5)


def test_without_texts_it_is_the_cosine_as_it_is() -> None:
    images, texts = make_sides()
    model = fit(images, None)
    found = model.transform_texts(texts) @ item_points(model, images, None).T
    np.testing.assert_allclose(found, unit(texts) @ unit(images).T, atol=1e-5)
    assert model.text_codes_.shape == (0, 2) and model.image_codes_.shape == (N, 2)
    quantizers = model.fitted_.quantizers
    assert np.array_equal(
        quantizers["image"].codewords, quantizers["text"].codewords
    )  # one dictionary for all


def test_partners_are_found_in_codes() -> None:
    images, texts = make_sides()
    for model in (fit(images, texts), fit(images, None), fit(images, texts[:50])):
        assert model.score(images, texts) > 0.25  # chance: 0.02

        assert model.document_codes_ is None and not model.selection_


def test_any_number_of_texts_will_do() -> None:
    images, texts = make_sides()
    model = fit(images, texts[:31])
    assert (len(model.image_codes_), len(model.text_codes_)) == (N, 31)
    again = fit(images, texts[:31])
    assert model.to_bytes() == again.to_bytes()


def test_fewer_dimensions_are_the_strongest() -> None:
    images, texts = make_sides()
    images[:, 3] *= 5.0
    model = fit(images, texts, n_components=5)
    assert model.transform_images(images).shape == (N, 5)
    full = fit(images, texts).transform_images(images)
    np.testing.assert_allclose(np.abs(model.transform_images(images)), np.abs(full[:, :5]), atol=1e-5)


# Pairs


def moments_of(images: Any, texts: Any, workers: Workers) -> tuple[Any, Any, Any]:
    rows = (DenseRows(centre(side).astype(np.float32)) for side in (images, texts))
    return joint.joint_moments(*rows, True, workers)


def test_with_endless_ridge_and_equal_spread_the_space_stays(workers: Workers) -> None:
    W = joint.refine(moments_of(*make_sides(skew=0.2), workers), Refinement(1e9, 1.0))
    np.testing.assert_allclose(W / W[0, 0], np.eye(DIMS), atol=1e-5)


def test_refinement_is_the_ridge_regression_of_a_naive_loop(workers: Workers) -> None:
    Cxx, Cyy, Cxy = moments_of(*make_sides(skew=0.2), workers)
    ridge, a = 30.0, 0.8
    v, c = np.trace(Cxx) / DIMS, np.trace(Cxy) / np.trace(Cxx)
    T = np.linalg.inv(Cxx + ridge * v * np.eye(DIMS)) @ (Cxy + ridge * v * c * np.eye(DIMS))
    S = (1 - a) * Cyy / (np.trace(Cyy) / DIMS) + a * np.eye(DIMS)
    found = joint.refine((Cxx, Cyy, Cxy), Refinement(ridge, a))
    np.testing.assert_allclose(found, T @ np.linalg.inv(S), rtol=1e-6)


def test_points_have_the_products_of_the_refined_space(workers: Workers) -> None:
    images, texts = make_sides(skew=0.2)
    moments = moments_of(images, texts, workers)
    W = joint.refine(moments, Refinement(30.0, 0.8))
    space = joint.make_space(moments, W, DIMS)
    x, y = centre(images), centre(texts)
    points = (x @ space.query_matrix("image")) @ (y @ space.query_matrix("text")).T
    expected = x @ W @ y.T
    np.testing.assert_allclose(points / points[0, 0], expected / expected[0, 0], rtol=1e-6, atol=1e-8)


def test_pairs_refine_where_held_out_ones_say_so() -> None:
    images, texts = make_sides(n=400, skew=0.35)
    turned = fit(images[:300], texts[:300], True, n_bits=64)
    assert turned.fitted_.settings.refinement is not None and len(turned.selection_) == 17
    plain = fit(images[:300], texts[:300], n_bits=64)
    new = images[300:], texts[300:]

    def first_ten(model: CMCQ) -> float:
        scores = model.transform_texts(new[1]) @ item_points(model, new[0], None).T
        return float(((scores > np.diag(scores)[:, None]).sum(axis=1) < 5).mean())

    assert first_ten(turned) > first_ten(plain)
    few = fit(images[:60], texts[:60], True)
    assert few.fitted_.settings.refinement is None and not few.selection_


def test_the_space_stays_where_pairs_gain_nothing(workers: Workers) -> None:
    gain = joint.RefinementTrial(Refinement(30.0, 0.8), np.tile([0.0, 1.0], 50) + 0.499)
    stays = joint.RefinementTrial(None, np.tile([0.0, 1.0], 50) + 0.5)
    noisy = joint.RefinementTrial(gain.refinement, np.random.default_rng(0).uniform(0, 1.99, 100))
    assert joint.choose_refinement([stays, noisy]) is None
    better = gain._replace(log_ranks=stays.log_ranks - 0.4)
    assert joint.choose_refinement([stays, better]) == gain.refinement


def test_some_rows_may_be_pairs() -> None:
    images, texts = make_sides(n=400, skew=0.35)
    model = fit(images, texts[:300], 250)
    settings = model.fitted_.settings
    assert (settings.paired, settings.n_pairs) == (False, 250) and settings.refinement is not None
    assert (len(model.image_codes_), len(model.text_codes_)) == (400, 300)
    assert CMCQ.from_bytes(model.to_bytes()).fitted_.settings == settings
    grouped = CMCQ(**SMALL).fit(images, texts[:300], groups=np.arange(250) // 5, paired=250)
    assert grouped.fitted_.settings.refinement is None  # 50 groups are too few to tell
    model.calibrate(images[:250], texts[:250], curve=[])
    assert model.report_.mapping == "joint"


# Codewords


@pytest.mark.parametrize("n", [40, 700])
def test_codewords_are_solved_for(n: int) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (n, 2), dtype=np.uint8)
    points = rng.standard_normal((n, 3)).astype(np.float32)
    P = np.zeros((n, 2 * N_CODEWORDS))
    for row, (first, second) in enumerate(codes.tolist()):
        P[row, first] = P[row, N_CODEWORDS + second] = 1.0
    expected = np.linalg.solve(P.T @ P + 1.5 * np.eye(P.shape[1]), P.T @ points)
    found = codebooks.solve_codebooks(codes, points, 1.5)
    assert found is not None
    np.testing.assert_allclose(found.reshape(-1, 3), expected, atol=1e-8)
    assert codebooks.solve_codebooks(codes, points, 0.0) is None


@pytest.mark.parametrize("case", [True, False, None, 120])
def test_no_update_raises_the_objective(case: bool | int | None) -> None:
    images, texts = make_sides()
    history = fit(images, None if case is None else texts, case or False).objective_history_
    totals = [record.total for record in history]
    assert len(totals) > 2
    assert all(later <= before * (1 + 1e-12) for before, later in zip(totals, totals[1:], strict=False))


def test_nearest_texts_are_those_of_a_loop(workers: Workers) -> None:
    images, texts = (unit(side).astype(np.float32) for side in make_sides(n=30))
    expected = [int(np.argmax([x @ y for y in texts[:20]])) for x in images]
    assert joint.find_nearest(images, texts[:20], workers).tolist() == expected


def test_what_both_halves_tell() -> None:
    """Two views that agree as often as either does with the query: the mean of them, at unit length."""
    rng = np.random.default_rng(0)
    c, z = 0.4, rng.standard_normal(400_000)
    views = [np.sqrt(c) * z + np.sqrt(1 - c) * rng.standard_normal(len(z)) for _ in range(3)]
    both = views[0] + views[1]
    assert joint.told_by_both(c) == pytest.approx(np.corrcoef(both, views[2])[0, 1], abs=0.01)


def test_folds_do_not_see_their_own_pairs(workers: Workers) -> None:
    """Trials of partners by chance gain nothing: in sample, ridges of little strength would."""
    rng = np.random.default_rng(0)
    X, Y = (DenseRows(centre(rng.standard_normal((150, DIMS))).astype(np.float32)) for _ in range(2))
    groups = np.arange(150)
    moments = gaussian.FoldMoments.of(X, Y, groups, rng, workers)
    tried = joint.try_refinements(moments, X, Y, groups, workers)
    assert tried[0].refinement is None and len(tried) == 1 + len(joint.REFINEMENTS)
    assert joint.choose_refinement(tried) is None


# What is refused


@pytest.mark.parametrize(
    ("images", "texts", "options", "message"),
    [
        ((30, 8), (30, 9), {"paired": False}, "images and texts of one width"),
        ((30, 8), (20, 8), {"paired": 25}, "at most as many pairs"),
        ((30, 8), None, {"paired": 5}, "images alone will do"),
        ((30, 8), (30, 8), {"paired": 0}, "paired"),
        ((30, 8), (30, 8), {"paired": "no"}, "paired"),
        ((30, 8), (30, 8), {"paired": False, "groups": range(30)}, "groups: expected None with paired=False"),
        ((30, 8), (20, 8), {}, "one text per image"),
        ((1, 8), None, {"paired": False}, "images"),
    ],
)
def test_rows_that_do_not_fit(images: Any, texts: Any, options: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(0)
    rows = [None if shape is None else rng.standard_normal(shape) for shape in (images, texts)]
    with pytest.raises(InvalidInput, match=message):
        CMCQ(**SMALL).fit(*rows, **options)


@pytest.mark.parametrize("mapping", ["cca", "sparse", "contrastive", "auto"])
@pytest.mark.parametrize("paired", [False, 20])
def test_other_mappings_need_pairs(mapping: str, paired: bool | int) -> None:
    with pytest.raises(InvalidInput, match="encoders that share a space need none: mapping='joint'"):
        CMCQ(mapping=mapping).fit(*make_sides(), paired=paired)


def test_sparse_rows_and_holes_are_refused() -> None:
    images, texts = make_sides()
    with pytest.raises(InvalidInput, match="texts: expected dense rows with mapping='joint'"):
        fit(images, sparse.csr_array(texts))
    texts[3, 2] = np.nan
    with pytest.raises(InvalidInput, match="texts"):
        fit(images, texts)
    with pytest.raises(InvalidInput, match="rows that differ"):
        fit(np.ones((30, 4)), None)


@pytest.mark.parametrize(
    "parameters",
    [{"ridge": 1.0}, {"memory": 5}, {"image_components": 4}, {"text_power": 0.5}, {"shared_codebooks": True}],
)
def test_parameters_that_would_change_rows(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(parameters))}: expected it left out"):
        fit(*make_sides(), **parameters)


# Files and indexes


@pytest.mark.parametrize("case", [True, False, None, 120])
def test_a_saved_model_answers_the_same(case: bool | int | None, tmp_path: Path) -> None:
    images, texts = make_sides()
    model = fit(images, None if case is None else texts, case or False)
    model.save(tmp_path / "model.cbm")
    loaded = CMCQ.load(tmp_path / "model.cbm")
    assert loaded.to_bytes() == model.to_bytes()
    for name in ("transform_images", "transform_texts", "encode_images", "encode_texts"):
        assert np.array_equal(getattr(loaded, name)(images), getattr(model, name)(images))
    assert np.array_equal(loaded.encode_documents(images, texts), model.encode_documents(images, texts))
    assert np.array_equal(loaded.text_codes_, model.text_codes_)
    cut = bytearray(model.to_bytes())
    cut[len(cut) // 2] ^= 1
    with pytest.raises(DamagedModelFile):
        CMCQ.from_bytes(bytes(cut))


@pytest.mark.parametrize("case", [True, False, None, 120])
def test_an_index_holds_pictures_texts_and_both(case: bool | int | None, tmp_path: Path) -> None:
    images, texts = make_sides()
    model = fit(images, None if case is None else texts, case or False, n_bits=32)
    if case is not None:
        model.calibrate(images, texts, curve=[2])
    with Index.create(tmp_path / "index.cb", model) as index:
        index.add(list(range(80)), images=images[:80], texts=texts[:80])
        index.add(list(range(80, 160)), images=images[80:160])
        index.add(list(range(160, N)), texts=texts[160:])
        for name, rows, own in (
            ("texts", texts, range(160)),
            ("images", images, [*range(80), *range(160, N)]),
        ):
            if case is None:
                continue  # nothing is centred: each side finds its own kind first, as cosines have it
            answers = index.search(**{name: rows[list(own)]}, k=10)
            assert np.mean([row in hits.ids for row, hits in zip(own, answers, strict=True)]) > 0.8
        hits = index.search(texts=texts[:1], k=N)[0]
        told = index.explain(0, texts=texts[:1])
        assert told.distance == pytest.approx(dict(zip(hits.ids, hits.distances, strict=True))[0], abs=1e-4)
        for target in ("image", "text", "document"):
            assert len(index.search(texts=texts[:1], k=5, target=target)[0].ids) == 5


def test_training_documents_have_learned_codes(tmp_path: Path) -> None:
    images, texts = make_sides()
    model = fit(images, texts, True)
    with Index.from_training(tmp_path / "index.cb", model) as index:
        assert len(index) == N
    with pytest.raises(InvalidInput):
        Index.from_training(tmp_path / "none.cb", fit(images, texts))


@pytest.mark.parametrize("case", [True, None, 120])
def test_the_same_seed_gives_the_same_bytes(case: bool | int | None, tmp_path: Path) -> None:
    images, texts = make_sides()
    kept = images.copy(), texts.copy()
    sides = images, None if case is None else texts
    expected = fit(*sides, case or False).to_bytes()
    assert all(np.array_equal(before, side) for before, side in zip(kept, (images, texts), strict=True))
    assert fit(*sides, case or False, n_jobs=3).to_bytes() == expected
    np.save(tmp_path / "images.npy", images)
    from_disk = CMCQ(**SMALL).fit(str(tmp_path / "images.npy"), sides[1], paired=case or False)
    assert from_disk.to_bytes() == expected
    assert fit(*sides, case or False, random_state=1).to_bytes() != expected
