"""The Gaussian model of a pair: against plain Bayes, without a leak, and what it refuses."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, InvalidInput, open_rows
from crossbyte.compute import executor
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.data.synthetic import make_pairs
from crossbyte.model.space import gaussian
from crossbyte.model.space.cca import canonical_correlation, second_moments, unit_rows

N, SHARED = 300, 5
SMALL = {"n_bits": 16, "n_components": 4, "max_iter": 1, "random_state": 0}


def sides(n: int = N, seed: int = 0, widths: tuple[int, int] = (9, 7)) -> tuple[DenseRows, DenseRows]:
    """Prepared rows of two noisy views of a few topics."""
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((n, SHARED))
    views = (
        topics @ rng.standard_normal((SHARED, width)) + rng.standard_normal((n, width)) for width in widths
    )
    X, Y = (DenseRows(unit_rows(view - view.mean(axis=0)).astype(np.float32)) for view in views)
    return X, Y


def fold_moments(X: Any, Y: Any, groups: Any = None, seed: int = 0) -> gaussian.FoldMoments:
    groups = np.arange(X.shape[0]) if groups is None else groups
    with Workers(1) as workers:
        return gaussian.FoldMoments.of(X, Y, groups, np.random.default_rng(seed), workers)


# Bayes


@pytest.mark.parametrize("n_views", [1, 2, 5])
@pytest.mark.parametrize("r", [0.01, 0.4, 0.99])
def test_expectation_and_variance_of_a_query_are_those_of_bayes(r: float, n_views: int) -> None:
    """Condition the joint Gaussian of the views and the query, by its covariance."""
    views = np.random.default_rng(3).standard_normal((4, n_views))
    covariance = np.full((n_views + 1, n_views + 1), r) + (1 - r) * np.eye(n_views + 1)
    gain = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
    found = views.sum(axis=1) * gaussian.view_weights(np.array([r]), n_views)
    np.testing.assert_allclose(found, views @ gain, rtol=1e-9)
    variance = 1 - covariance[-1, :-1] @ gain
    np.testing.assert_allclose(gaussian.expected_variance(np.array([r]), n_views), [variance], rtol=1e-9)


def test_more_views_leave_less_to_guess() -> None:
    r = np.array([0.1, 0.5, 0.9])
    one, two = (gaussian.expected_variance(r, n) for n in (1, 2))
    assert (two < one).all() and (one < 1).all() and (two > 1 - r).all()


def test_coding_points_have_unit_length_and_nothing_stays_nothing() -> None:
    r = np.array([0.2, 0.6, 0.8])
    expected, metric = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]), gaussian.make_coding_metric(r)
    points = gaussian.coding_points(expected, metric)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(points[0] / points[0, 0], expected[0] * metric / metric[0], rtol=1e-6)


# Canonical directions


@pytest.mark.parametrize("widths", [(9, 7), (6, 11)])
@pytest.mark.parametrize("ridges", [(1.0, 1.0), (0.1, 3.0)])
def test_directions_are_those_of_canonical_correlation(
    widths: tuple[int, int], ridges: tuple[float, float]
) -> None:
    X, Y = sides(widths=widths)
    with Workers(1) as workers:
        maps = gaussian.canonical_maps(second_moments(X, Y, workers), 4, ridges)
        space = canonical_correlation(X, Y, 4, ridges[0], workers, ridges[1])
    for found, expected in ((maps.image, space.image_matrix), (maps.text, space.text_matrix)):
        one, other = (matrix / np.linalg.norm(matrix, axis=0) for matrix in (found, expected))
        np.testing.assert_allclose(np.abs((one * other).sum(axis=0)), 1.0, atol=1e-4)


def test_directions_end_at_the_rank() -> None:
    X, Y = sides()
    flat = DenseRows(np.asarray(X.values)[:, :1] * np.ones((1, 9), np.float32))
    with Workers(1) as workers:
        maps = gaussian.canonical_maps(second_moments(flat, Y, workers), 6, (0.3, 0.3))
    assert maps.image.shape == (9, 1) and maps.text.shape == (7, 1)


def test_aligned_maps_undo_a_rotation() -> None:
    X, Y = sides()
    with Workers(1) as workers:
        moments = second_moments(X, Y, workers)
    maps = gaussian.canonical_maps(moments, 4, (0.3, 0.3))
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    turned = gaussian.CanonicalMaps(maps.image @ rotation, maps.text @ rotation)
    found = gaussian.align_maps(turned, maps, moments)
    np.testing.assert_allclose(found.image, maps.image, atol=1e-8)
    np.testing.assert_allclose(found.text, maps.text, atol=1e-8)


# Folds


def test_moments_without_a_fold_are_those_of_the_other_rows() -> None:
    X, Y = sides()
    moments = fold_moments(X, Y, np.arange(N) // 3)
    x, y = (np.asarray(side.values, dtype=np.float64) for side in (X, Y))
    with Workers(2) as workers:
        for fold in range(moments.n_folds):
            rest = moments.folds != fold
            expected = x[rest].T @ x[rest], y[rest].T @ y[rest], x[rest].T @ y[rest]
            for found, naive in zip(moments.without(fold, X, Y, workers), expected, strict=True):
                np.testing.assert_allclose(found, naive, atol=1e-9)


@pytest.mark.parametrize("n_groups", [2, 3, 5, 17, 100])
def test_groups_are_whole_in_folds_of_about_equal_numbers(n_groups: int) -> None:
    groups = np.random.default_rng(0).permutation(np.arange(300) % n_groups)
    folds = gaussian.deal_folds(groups, np.random.default_rng(1))
    assert set(folds) == set(range(min(5, n_groups)))
    by_group = [set(folds[groups == group]) for group in range(n_groups)]
    assert all(len(each) == 1 for each in by_group)
    counts = np.bincount([each.pop() for each in by_group])
    assert counts.max() - counts.min() <= 1


def test_points_of_a_fold_do_not_know_their_own_partners() -> None:
    """Within a fold, the texts change places: no map that places the fold has seen them."""
    X, Y = sides()
    groups, fold = np.arange(N), 2
    moments = fold_moments(X, Y, groups)
    mine = np.flatnonzero(moments.folds == fold)
    swapped = np.asarray(Y.values).copy()
    swapped[mine] = swapped[np.roll(mine, 1)]
    with Workers(1) as workers:
        other = gaussian.FoldMoments(second_moments(X, DenseRows(swapped), workers), moments.folds)
        rests = [
            moments.without(fold, X, Y, workers),
            other.without(fold, X, DenseRows(swapped), workers),
        ]
    maps = [gaussian.canonical_maps(rest, 4, (0.3, 0.3)) for rest in rests]
    np.testing.assert_allclose(maps[0].image, maps[1].image, atol=1e-6)
    np.testing.assert_allclose(maps[0].text, maps[1].text, atol=1e-6)


def test_unrelated_sides_have_no_correlation_out_of_fold() -> None:
    """In sample, canonical correlation finds a relation in any noise."""
    rng = np.random.default_rng(0)
    X, Y = (DenseRows(unit_rows(rng.standard_normal((200, 30))).astype(np.float32)) for _ in "it")
    with Workers(1) as workers:
        moments = gaussian.FoldMoments.of(X, Y, np.arange(200), rng, workers)
        space, unseen = gaussian.fit_gaussian_space(moments, X, Y, 10, (0.03, 0.03), None, workers)
    maps = gaussian.canonical_maps(moments.total, 10, (0.03, 0.03))
    u, v = X.values @ maps.image, Y.values @ maps.text
    seen = (u * v).mean(axis=0) / np.sqrt((u**2).mean(axis=0) * (v**2).mean(axis=0))
    assert seen.min() > 0.4
    assert space.correlations.mean() < 0.1
    np.testing.assert_allclose((unseen.image**2).mean(axis=0), 1.0, atol=1e-6)


def test_a_sample_of_all_rows_is_all_rows() -> None:
    X, Y = sides()
    moments = fold_moments(X, Y)
    with Workers(1) as workers:
        spaces = [
            gaussian.fit_gaussian_space(moments, X, Y, 4, (0.3, 0.3), sample, workers)[0]
            for sample in (None, np.arange(N))
        ]
    np.testing.assert_array_equal(spaces[0].correlations, spaces[1].correlations)


# What a document tells


def captioned(n: int, n_captions: int, agreement: float, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Coordinates of pictures, each with some captions that share more than the picture tells of them.

    Rows are shuffled; of unit variance, with correlation 0.5 of picture and caption and ``agreement`` of two
    captions, in each of 3 coordinates.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(n * n_captions)
    groups = np.repeat(np.arange(n), n_captions)[order]
    image = np.repeat(rng.standard_normal((n, 3)), n_captions, axis=0)
    said = np.repeat(rng.standard_normal((n, 3)), n_captions, axis=0)
    alone = rng.standard_normal((n * n_captions, 3))
    text = 0.5 * image + np.sqrt(agreement - 0.25) * said + np.sqrt(1 - agreement) * alone
    return gaussian.PairCoordinates(image[order], text[order]), groups


def document_queries_ref(unseen: Any, r: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares, coordinate by coordinate: next rows of groups, and 50 queries of the model's moments."""
    members = {group: np.flatnonzero(groups == group).tolist() for group in np.unique(groups)}
    weights, variances = np.empty((2, len(r))), np.empty(len(r))
    for d in range(len(r)):
        model = np.full((3, 3), r[d]) + (1 - r[d]) * np.eye(3)  # of image, text and query
        stacked, n_queries = list(np.linalg.cholesky(50 * model).T), 50
        for rows in members.values():
            for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
                for side in unseen:
                    if (side[row] != side[other]).any():
                        stacked.append(np.array([unseen.image[row, d], unseen.text[row, d], side[other, d]]))
                        n_queries += 1
        views, queries = np.array(stacked)[:, :2], np.array(stacked)[:, 2]
        weights[:, d] = np.maximum(np.linalg.lstsq(views, queries, rcond=None)[0], 0.0)
        variances[d] = ((queries - views @ weights[:, d]) ** 2).sum() / n_queries
    return weights, variances


@pytest.mark.parametrize("case", ["captions", "two pairs", "some alone", "against each other"])
def test_queries_of_documents_are_those_of_least_squares(case: str) -> None:
    unseen, groups = captioned(60, 3, 0.6)
    if case != "captions":  # pictures that differ, too
        unseen = unseen._replace(
            image=unseen.image + 0.3 * np.random.default_rng(1).standard_normal((180, 3))
        )
    if case == "some alone":
        groups = np.where(groups < 40, groups, 100 + np.arange(180))
    if case == "against each other":  # a weight below 0 is none
        groups = np.arange(180) // 2
        unseen = unseen._replace(text=unseen.text[groups] * np.tile([[1.0], [-1.0]], (90, 1)))
    r = np.array([0.3, 0.5, 0.7])
    found = gaussian.learn_document_queries(unseen, r, groups)
    weights, variances = document_queries_ref(unseen, r, groups)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.variances, variances, rtol=1e-9)
    assert (found.weights.min() == 0) == (case == "against each other")


def test_without_other_members_a_document_is_as_the_model_has_it() -> None:
    unseen, _ = captioned(90, 1, 0.6)
    r = np.array([0.01, 0.5, 0.95])
    for groups in (np.arange(90), np.arange(90)[::-1] * 7):
        found = gaussian.learn_document_queries(unseen, r, groups)
        np.testing.assert_allclose(found.weights, [r / (1 + r)] * 2, rtol=1e-9)
        np.testing.assert_allclose(found.variances, gaussian.expected_variance(r, 2), rtol=1e-9)


def test_equal_members_ask_nothing() -> None:
    """A copy of a row would only say that it finds itself."""
    unseen, _ = captioned(40, 1, 0.6)
    twice = gaussian.PairCoordinates(*(np.repeat(side, 2, axis=0) for side in unseen))
    r = np.array([0.2, 0.5, 0.8])
    found = gaussian.learn_document_queries(twice, r, np.repeat(np.arange(40), 2))
    np.testing.assert_allclose(found.weights, [r / (1 + r)] * 2, rtol=1e-9)


def test_texts_weigh_more_the_more_captions_agree() -> None:
    r = np.full(3, 0.5)
    found = [
        gaussian.learn_document_queries(*_with_r(captioned(3000, 2, agreement), r)).weights
        for agreement in (0.3, 0.5, 0.8)
    ]
    texts, images = (np.array([weights[side].mean() for weights in found]) for side in (1, 0))
    assert (np.diff(texts) > 0.1).all() and (np.diff(images) < -0.05).all()
    assert texts[0] < images[0] and texts[2] > images[2] + 0.4
    gain = np.linalg.solve([[1, 0.5], [0.5, 1]], [0.5, 0.8])  # Bayes, for captions that agree by 0.8
    np.testing.assert_allclose([images[2], texts[2]], gain, atol=0.03)


def _with_r(made: tuple[Any, np.ndarray], r: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    return made[0], r, made[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_next_of_a_group_is_that_of_a_plain_loop(seed: int) -> None:
    groups = np.random.default_rng(seed).integers(12, size=20) * 3
    rows, others = gaussian._next_in_group(groups)
    expected = {}
    for group in set(groups.tolist()):
        members = np.flatnonzero(groups == group).tolist()
        if len(members) > 1:
            expected |= dict(zip(members, members[1:] + members[:1], strict=True))
    assert dict(zip(rows.tolist(), others.tolist(), strict=True)) == expected and len(rows) == len(expected)


@pytest.mark.parametrize("groups", [[4, 0, 4, 2, 0, 4], [5, 3, 4, 2, 1, 0], [1, 1, 1, 1, 1, 1]])
def test_means_of_groups_are_those_of_a_plain_loop(groups: list[int]) -> None:
    rows = np.random.default_rng(0).standard_normal((6, 3))
    found = gaussian.group_means(rows, np.array(groups))
    expected = [
        np.mean([row for row, own in zip(rows, groups, strict=True) if own == group], axis=0)
        for group in sorted(set(groups))
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_fit_of_several_captions_learns_what_they_agree_on() -> None:
    """Two captions of a picture share what it does not show; without groups, nobody knows."""
    rng = np.random.default_rng(0)
    shown, said = rng.standard_normal((400, 6)), rng.standard_normal((400, 6))
    images = np.repeat(shown @ rng.standard_normal((6, 14)), 2, axis=0)
    topics = np.repeat(shown + 0.8 * said, 2, axis=0)
    texts = topics @ rng.standard_normal((6, 12)) + 0.5 * rng.standard_normal((800, 12))
    weights = {}
    for name, groups in (("alone", None), ("captions", np.repeat(np.arange(400), 2))):
        space: Any = CMCQ(**SMALL).fit(images, texts, groups).fitted_.space
        weights[name] = space.document_weights / gaussian.view_weights(space.correlations, 2)
    np.testing.assert_allclose(weights["alone"], 1.0, rtol=1e-9)
    assert (weights["captions"][1] > 1.1).all() and (weights["captions"][0] < 0.9).all()


# What a code tells


def test_likelihoods_of_one_coding_need_no_constant() -> None:
    own = gaussian.CodedLikelihood(np.array([0.5, 0.2]), np.array([0.3, 0.9]))
    assert gaussian.likelihood_constant(own, own) == 0.0
    surer = own._replace(variances=np.array([0.1, 0.5]))
    ratio = surer.variances / own.variances
    assert gaussian.likelihood_constant(surer, own) == pytest.approx((np.log(ratio) + 1 - ratio).sum())
    assert gaussian.likelihood_constant(surer, own) < 0


def test_slopes_and_variances_are_those_of_a_regression() -> None:
    rng = np.random.default_rng(0)
    codes = [rng.standard_normal((500, 3)).astype(np.float32) for _ in "it"]
    text, image = (0.6 * each + 0.5 * rng.standard_normal((500, 3)) for each in codes)
    found = gaussian.regress_queries(gaussian.PairCoordinates(image, text), codes)
    pooled, asked = np.vstack(codes).astype(np.float64), np.vstack([text, image])
    slopes = [np.linalg.lstsq(pooled[:, [d]], asked[:, d], rcond=None)[0][0] for d in range(3)]
    np.testing.assert_allclose(found.slopes, slopes, rtol=1e-5)
    np.testing.assert_allclose(found.variances, ((asked - pooled * slopes) ** 2).mean(axis=0), rtol=1e-5)


def test_documents_are_nearer_to_their_queries_than_halves() -> None:
    """Of another text of the same picture, the document tells more than the image alone."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((900, 8))
    views = [rng.standard_normal((8, width)) for width in (20, 15, 15)]
    views[2] = views[1]
    images, texts, asked = (topics @ view + 2.0 * rng.standard_normal((900, view.shape[1])) for view in views)
    model = CMCQ(32, random_state=0).fit(images[:600], texts[:600])
    new = slice(600, None)
    whole = model.distances(texts=asked[new], document_codes=model.encode_documents(images[new], texts[new]))
    half = model.distances(texts=asked[new], image_codes=model.encode_images(images[new]))
    ranks = [(each < np.diag(each)[:, None]).sum(axis=1) for each in (whole, half)]
    assert np.log1p(ranks[0]).mean() < np.log1p(ranks[1]).mean()


# Equal pairs


def test_equal_pairs_are_found_across_groups_only() -> None:
    X, Y = sides(40)
    x, y = np.asarray(X.values).copy(), np.asarray(Y.values).copy()
    x[[7, 21]], y[[7, 21]] = x[3], y[3]  # three copies in three groups
    x[11], y[11] = x[10], y[10]  # two copies in one group
    x[30] = x[31]  # the image alone
    groups = np.arange(40)
    groups[11] = 10
    groups = np.unique(groups, return_inverse=True)[1]
    with Workers(2) as workers:
        joined, n_equal = gaussian.join_equal_pairs(DenseRows(x), DenseRows(y), groups, workers)
    assert n_equal == 3
    assert joined[3] == joined[7] == joined[21] and joined[10] == joined[11]
    assert joined[30] != joined[31]
    assert len(set(joined)) == joined.max() + 1 == 40 - 1 - 2


def test_groups_that_would_all_be_joined_stay_as_they_are() -> None:
    X, Y = (DenseRows(np.ones((6, 3), np.float32)) for _ in "it")
    groups = np.arange(6)
    with Workers(1) as workers:
        joined, n_equal = gaussian.join_equal_pairs(X, Y, groups, workers)
    assert n_equal == 6 and joined is groups


def test_without_equal_pairs_groups_stay_as_they_are() -> None:
    X, Y = sides(40)
    groups = np.arange(40) // 2
    with Workers(1) as workers:
        assert gaussian.join_equal_pairs(X, Y, groups, workers) == (groups, 0)


def repeated_pairs() -> tuple[np.ndarray, Any]:
    pairs = make_pairs(150, 12, 20, random_state=3)
    rows = np.concatenate([np.arange(150), np.arange(50)])
    return pairs.images[rows], pairs.texts[rows]


def test_a_fit_says_how_many_pairs_are_equal_and_groups_silence_it() -> None:
    images, texts = repeated_pairs()
    with pytest.warns(UserWarning, match="100 of 200 pairs are equal") as caught:
        CMCQ(**SMALL).fit(images, texts)
    assert [each.filename for each in caught] == [__file__]
    groups = np.concatenate([np.arange(150), np.arange(50)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CMCQ(**SMALL).fit(images, texts, groups)
        CMCQ.paper(**SMALL, n_atoms=8).fit(images, texts)


@pytest.mark.filterwarnings("ignore:100 of 200 pairs")
def test_equal_pairs_are_found_from_disk_and_with_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executor, "BLOCK_ROWS", 32)
    images, texts = repeated_pairs()
    expected = CMCQ(**SMALL, n_jobs=1).fit(images, texts).to_bytes()
    assert CMCQ(**SMALL, n_jobs=2).fit(images, texts).to_bytes() == expected
    np.save(tmp_path / "images.npy", images)
    stored = open_rows(tmp_path / "images.npy")
    assert CMCQ(**SMALL, n_jobs=2).fit(stored, texts, max_memory=1).to_bytes() == expected


@pytest.mark.filterwarnings("ignore:.* pairs are equal")
def test_copies_do_not_raise_correlations() -> None:
    """Noise, every pair three times: with copies in other folds, maps would know what they place."""
    rng = np.random.default_rng(0)
    images, texts = (np.tile(rng.standard_normal((100, 30)), (3, 1)) for _ in "it")
    space: Any = CMCQ(**SMALL, ridge=0.03).fit(images, texts).fitted_.space
    assert space.correlations.mean() < 0.2


# Few pairs, and refusals


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_fewer_pairs_than_folds_will_do(n: int) -> None:
    pairs = make_pairs(40, 12, 20, random_state=3)
    model = CMCQ(**SMALL).fit(pairs.images[:n], pairs.texts[:n])
    assert model.document_codes_.shape == (n, 2)
    assert np.isfinite(model.training_distances(texts=pairs.texts)).all()


def test_one_group_of_all_rows_is_refused() -> None:
    pairs = make_pairs(40, 12, 20, random_state=3)
    with pytest.raises(InvalidInput, match="^groups: expected at least 2.*all 40 rows are in one group"):
        CMCQ(**SMALL).fit(pairs.images, pairs.texts, np.zeros(40))
    CMCQ.paper(**SMALL, n_atoms=8).fit(pairs.images, pairs.texts, np.zeros(40))


@pytest.mark.parametrize("side", ["images", "texts"])
def test_a_constant_side_is_refused(side: str) -> None:
    pairs = make_pairs(40, 12, 20, random_state=3)
    given = {"images": pairs.images, "texts": pairs.texts.toarray()}
    given[side] = np.ones_like(given[side])
    with pytest.raises(InvalidInput, match=side):
        CMCQ(**SMALL).fit(**given)
