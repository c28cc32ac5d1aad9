"""Collaborative quantization: the blending identity, descent of every block, and the distance table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import CodewordTables, CrossPenalty
from crossbyte.model.quantization import codebooks, collaborative
from crossbyte.model.quantization.codebooks import kmeans, nearest_centres
from crossbyte.model.quantization.collaborative import QuantizationWeights, Side
from crossbyte.model.quantization.quantizer import Quantizer
from support import oracles

N, D = 300, 8


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as entered:
        yield entered


def _points(seed: int, n: int = N) -> tuple[Any, Any]:
    X, Y = oracles.paired_rows(np.random.default_rng(seed), n, (D, D))
    return X, Y


def _random_side(seed: int, M: int, workers: Workers, n: int = N) -> Side:
    rng = np.random.default_rng(seed)
    words = rng.standard_normal((M, 256, D)) / np.sqrt(D * M)
    codes = rng.integers(256, size=(n, M)).astype(np.uint8)
    side = Side(words, codes, 0.0, codebooks.decode(words, codes, workers))
    return collaborative.update_epsilon(side, workers)


def _psi(sides: tuple[Side, Side], points: tuple[Any, Any], pull: QuantizationWeights) -> float:
    """The quantization objective as the paper writes it, and the shrinkage of the words."""
    decoded = [oracles.decode(side.codewords, side.codes) for side in sides]
    value = pull.correlation * ((decoded[0] - decoded[1]) ** 2).sum()
    for side, own, at in zip(sides, decoded, points, strict=True):
        cross = np.array([oracles.cross_term(side.codewords, code) for code in side.codes])
        value += ((at - own) ** 2).sum() + pull.cross_penalty * ((cross - side.epsilon) ** 2).sum()
        value += pull.shrinkage * (side.codewords**2).sum()
    return float(value)


# --- codebooks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M", [1, 2, 4])
def test_decoding_and_cross_terms(M: int, workers: Workers) -> None:
    side = _random_side(0, M, workers)
    np.testing.assert_allclose(side.decoded, oracles.decode(side.codewords, side.codes), atol=1e-6)
    expected = [oracles.cross_term(side.codewords, code) for code in side.codes]
    np.testing.assert_allclose(
        codebooks.cross_terms(side.codewords, side.codes, workers), expected, rtol=1e-9, atol=1e-12
    )
    assert side.decoded.dtype == np.float32


def test_epsilon_is_the_mean_cross_term(workers: Workers) -> None:
    side = _random_side(1, 3, workers)._replace(epsilon=99.0)
    expected = np.mean([oracles.cross_term(side.codewords, code) for code in side.codes])
    assert collaborative.update_epsilon(side, workers).epsilon == pytest.approx(expected, rel=1e-9)


def test_one_codebook_without_penalty_gets_the_means(workers: Workers) -> None:
    X, _ = _points(2)
    side = _random_side(2, 1, workers)
    side = side._replace(codes=side.codes % 8)
    found = codebooks.update_codebooks(
        side.codewords, side.codes, X, CrossPenalty(0.0, 0.0), 0.0, workers, max_iter=50
    )
    for k in range(8):
        np.testing.assert_allclose(found[0, k], X[side.codes[:, 0] == k].mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(found[0, 8:], side.codewords[0, 8:])  # unused words stay


def test_residual_codebooks_leave_less_over_with_each_codebook(workers: Workers) -> None:
    X, _ = _points(3, n=600)
    words = codebooks.residual_codebooks(X, 3, np.random.default_rng(0), workers)
    errors = [
        (
            (
                X
                - oracles.decode(
                    words[:M],
                    collaborative.encode(CodewordTables.of(words[:M]), X, CrossPenalty(0, 0), workers),
                )
            )
            ** 2
        ).sum()
        for M in (1, 2, 3)
    ]
    assert errors[0] > errors[1] > errors[2]


# --- the two sides together -------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.3, 5.0])
def test_blending_is_an_identity(gamma: float, workers: Workers) -> None:
    X, _ = _points(4)
    own, other = _random_side(4, 2, workers), _random_side(5, 2, workers)
    target = collaborative.blend_targets(X, other.decoded, gamma).astype(float)
    constant = gamma / (1 + gamma) * ((X - other.decoded.astype(float)) ** 2).sum()
    for side in (own, _random_side(6, 2, workers)):  # the constant is one for all codes and words
        decoded = oracles.decode(side.codewords, side.codes)
        pulled = ((X - decoded) ** 2).sum() + gamma * ((decoded - other.decoded) ** 2).sum()
        assert (1 + gamma) * ((target - decoded) ** 2).sum() + constant == pytest.approx(pulled, rel=1e-6)


PULLS = [
    QuantizationWeights(),
    QuantizationWeights(0.3),
    QuantizationWeights(3.0, 1.0),
    QuantizationWeights(0.0, 0.0),
    QuantizationWeights(0.3, 0.1, 0.5),
]


@pytest.mark.parametrize("pull", PULLS)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_update_raises_the_objective(pull: QuantizationWeights, seed: int, workers: Workers) -> None:
    points = _points(seed, n=120)
    sides = [_random_side(seed + i, 2, workers, n=120) for i in (0, 1)]
    value = first = _psi((sides[0], sides[1]), points, pull)
    for _ in range(2):
        for i in (0, 1):
            other = sides[1 - i].decoded
            for update in (collaborative.update_codewords, None, collaborative.update_codes):
                if update is None:
                    sides[i] = collaborative.update_epsilon(sides[i], workers)
                else:
                    sides[i] = update(sides[i], points[i], other, pull, workers)
                new = _psi((sides[0], sides[1]), points, pull)
                assert new <= value * (1 + 1e-8), update
                value = new
    assert value < 0.8 * first


@pytest.mark.parametrize("pull", PULLS)
def test_words_of_one_side_follow_the_gradient_of_the_whole(
    pull: QuantizationWeights, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = _points(6, n=100)
    sides = (_random_side(16, 2, workers, n=100), _random_side(17, 2, workers, n=100))
    seen: list[Any] = []
    monkeypatch.setattr(codebooks, "minimise", lambda function, words, *_: seen.append(function) or words)
    collaborative.update_codewords(sides[0], points[0], sides[1].decoded, pull, workers)
    _, gradient = seen[0](sides[0].codewords)
    for seed in range(3):
        direction = np.random.default_rng(seed).standard_normal(sides[0].codewords.shape)
        slope = oracles.slope_along(
            lambda words: _psi((sides[0]._replace(codewords=words), sides[1]), points, pull),
            sides[0].codewords,
            direction,
            1e-5,
        )
        own = (1 + pull.correlation) * float(np.vdot(gradient, direction))
        assert own == pytest.approx(slope, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("pull", PULLS)
def test_shared_words_value_and_gradient(
    pull: QuantizationWeights, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = _points(7, n=100)
    left, right = (_random_side(7, 2, workers, n=100), _random_side(8, 2, workers, n=100))
    sides = (left, right._replace(codewords=left.codewords))
    seen: list[Any] = []
    monkeypatch.setattr(codebooks, "minimise", lambda function, words, *_: seen.append(function) or words)
    collaborative.update_shared_codewords(sides, points, pull, workers)
    value, gradient = seen[0](left.codewords)

    def objective(words: Any) -> float:
        return _psi(tuple(side._replace(codewords=words) for side in sides), points, pull)

    assert value == pytest.approx(objective(left.codewords), rel=1e-6)
    for seed in range(3):
        direction = np.random.default_rng(seed).standard_normal(left.codewords.shape)
        slope = oracles.slope_along(objective, left.codewords, direction, 1e-5)
        assert float(np.vdot(gradient, direction)) == pytest.approx(slope, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("pull", PULLS)
def test_shared_words_do_not_raise_the_objective(pull: QuantizationWeights, workers: Workers) -> None:
    points = _points(9, n=100)
    left, right = (_random_side(9, 2, workers, n=100), _random_side(10, 2, workers, n=100))
    sides = (
        left,
        right._replace(
            codewords=left.codewords, decoded=codebooks.decode(left.codewords, right.codes, workers)
        ),
    )
    new = collaborative.update_shared_codewords(sides, points, pull, workers)
    assert new[0].codewords is new[1].codewords
    assert _psi(new, points, pull) < _psi(sides, points, pull)
    for side in new:
        np.testing.assert_allclose(side.decoded, oracles.decode(side.codewords, side.codes), atol=1e-6)


def test_the_start_is_better_than_residual_codebooks(workers: Workers) -> None:
    X, _ = _points(11)
    pull = QuantizationWeights(0.3, 0.1)
    side = collaborative.initial_side(X, 2, pull, np.random.default_rng(0), workers)
    words = codebooks.residual_codebooks(X, 2, np.random.default_rng(0), workers)
    codes = collaborative.encode(CodewordTables.of(words), X, CrossPenalty(0.0, 0.0), workers)
    plain = collaborative.update_epsilon(Side(words, codes, 0.0, X), workers)
    values = [
        oracles.codebook_objective(one.codewords, one.codes, X, 0.1, one.epsilon) for one in (side, plain)
    ]
    assert values[0] < values[1]


# --- new items --------------------------------------------------------------------------------------------


def _fitted(workers: Workers) -> tuple[tuple[Any, Any], tuple[Side, Side]]:
    points = _points(12, n=600)
    rng = np.random.default_rng(12)
    left, right = (collaborative.initial_side(at, 2, QuantizationWeights(0.3), rng, workers) for at in points)
    return points, (left, right)


def test_pairs_without_correlation_are_coded_as_their_halves(workers: Workers) -> None:
    points, sides = _fitted(workers)
    words, epsilons = (sides[0].codewords, sides[1].codewords), (sides[0].epsilon, sides[1].epsilon)
    found = collaborative.encode_pairs(
        tuple(map(CodewordTables.of, words)), points, epsilons, QuantizationWeights(0.0, 0.1), workers
    )
    for i in (0, 1):
        alone = collaborative.encode(
            CodewordTables.of(words[i]), points[i], CrossPenalty(0.1, epsilons[i]), workers
        )
        np.testing.assert_array_equal(found[i], alone)


@pytest.mark.parametrize("gamma", [0.3, 3.0])
def test_pairs_are_better_coded_together(gamma: float, workers: Workers) -> None:
    points, sides = _fitted(workers)
    pull = QuantizationWeights(gamma, 0.1)
    words, epsilons = (sides[0].codewords, sides[1].codewords), (sides[0].epsilon, sides[1].epsilon)
    found = collaborative.encode_pairs(tuple(map(CodewordTables.of, words)), points, epsilons, pull, workers)
    start = [
        collaborative.encode(CodewordTables.of(words[i]), points[i], pull.penalty(epsilons[i]), workers)
        for i in (0, 1)
    ]

    def pair_objectives(codes: Any) -> Any:
        decoded = [oracles.decode(words[i], codes[i]) for i in (0, 1)]
        value = gamma * ((decoded[0] - decoded[1]) ** 2).sum(axis=1)
        for i in (0, 1):
            value += [
                oracles.row_objective(words[i], target, code, 0.1, epsilons[i])
                for target, code in zip(points[i], codes[i], strict=True)
            ]
        return value

    together, apart = pair_objectives(found), pair_objectives(start)
    assert (together <= apart + 1e-6).all()
    assert together.sum() < apart.sum()


@pytest.mark.parametrize("gamma", [1.0, 3.0, 10.0])
def test_pairs_end_lower_than_from_the_codes_of_their_halves(gamma: float, workers: Workers) -> None:
    points, sides = _fitted(workers)
    pull = QuantizationWeights(gamma, 0.0)
    words, epsilons = (sides[0].codewords, sides[1].codewords), (sides[0].epsilon, sides[1].epsilon)
    tables = tuple(map(CodewordTables.of, words))
    found = collaborative.encode_pairs(tables, points, epsilons, pull, workers)
    codes = [collaborative.encode(tables[i], points[i], pull.penalty(epsilons[i]), workers) for i in (0, 1)]
    for _ in range(10):
        for i in (0, 1):
            other = oracles.decode(words[1 - i], codes[1 - i]).astype(np.float32)
            target = collaborative.blend_targets(points[i], other, gamma)
            codes[i] = collaborative.improve_codes(
                tables[i], target, pull.penalty(epsilons[i]), codes[i], workers
            )

    def objective(codes: Any) -> float:
        decoded = [oracles.decode(words[i], codes[i]) for i in (0, 1)]
        lost = sum(((points[i] - decoded[i]) ** 2).sum() for i in (0, 1))
        return float(lost + gamma * ((decoded[0] - decoded[1]) ** 2).sum())

    assert objective(found) < 0.98 * objective(codes)


def test_one_item_is_coded_as_among_others(workers: Workers) -> None:
    points, sides = _fitted(workers)
    penalty = CrossPenalty(0.1, sides[0].epsilon)
    together = collaborative.encode(CodewordTables.of(sides[0].codewords), points[0], penalty, workers)
    for i in (0, 50):
        one = np.ascontiguousarray(points[0][i : i + 1])
        np.testing.assert_array_equal(
            collaborative.encode(CodewordTables.of(sides[0].codewords), one, penalty, workers),
            together[i : i + 1],
        )


# --- the fitted quantizer ---------------------------------------------------------------------------------


def _quantizer(M: int, workers: Workers) -> tuple[Quantizer, Any, Any]:
    side = _random_side(13, M, workers)
    queries, _ = _points(14, n=20)
    return Quantizer(side.codewords.astype(np.float32), side.epsilon, 0.1, None), side.codes, queries


@pytest.mark.parametrize("M", [1, 2, 4])
def test_table_distances_are_squared_distances_but_for_the_cross_term(M: int, workers: Workers) -> None:
    quantizer, codes, queries = _quantizer(M, workers)
    decoded = oracles.decode(quantizer.codewords, codes)
    exact = ((queries[:, None].astype(float) - decoded) ** 2).sum(axis=2)
    cross = np.array([oracles.cross_term(quantizer.codewords, code) for code in codes])
    found = quantizer.table(queries).distances(quantizer.scan_codes(codes, workers))
    assert found.dtype == np.float32 and found.shape == (20, N)
    np.testing.assert_allclose(found + (cross - quantizer.epsilon), exact, atol=1e-5)


@pytest.mark.parametrize("M", [1, 2, 4])
def test_a_stored_cross_term_is_within_half_a_level(M: int, workers: Workers) -> None:
    quantizer, codes, queries = _quantizer(M, workers)
    stored = quantizer.with_cross_term("stored", codes, workers)
    scan = stored.scan_codes(codes, workers)
    assert scan.shape == (N, M + 1) and scan.dtype == np.uint8
    np.testing.assert_array_equal(scan[:, :M], codes)
    table = stored.table(queries)
    assert table.tables.shape == (20, M + 1, 256) and table.offsets.shape == (20,)
    decoded = oracles.decode(quantizer.codewords, codes)
    exact = ((queries[:, None].astype(float) - decoded) ** 2).sum(axis=2)
    half = float(stored.cross_levels[1] - stored.cross_levels[0]) / 2
    assert np.abs(table.distances(scan) - exact).max() <= half + 1e-5


def test_a_constant_cross_term_is_epsilon(workers: Workers) -> None:
    quantizer, codes, queries = _quantizer(2, workers)
    stored = quantizer.with_cross_term("stored", codes, workers)
    assert stored.with_cross_term("constant", codes, workers).cross_levels is None
    assert quantizer.scan_codes(codes, workers) is codes
    shifted = Quantizer(quantizer.codewords, quantizer.epsilon + 1.0, 0.1, None)
    gap = shifted.table(queries).distances(codes) - quantizer.table(queries).distances(codes)
    np.testing.assert_allclose(gap, 1.0, atol=1e-5)
    assert stored.penalty.weight == 0.0 and quantizer.penalty == CrossPenalty(0.1, quantizer.epsilon)


def test_cross_terms_beyond_the_levels_take_the_last_ones(workers: Workers) -> None:
    quantizer, codes, _ = _quantizer(2, workers)
    cross = codebooks.cross_terms(quantizer.codewords, codes, workers)
    middle = codes[np.argsort(cross)[100:200]]
    stored = quantizer.with_cross_term("stored", middle, workers)
    scan = stored.scan_codes(codes, workers)[:, 2]
    assert scan[cross.argmin()] == 0 and scan[cross.argmax()] == 255


def test_a_query_does_not_depend_on_its_batch(workers: Workers) -> None:
    quantizer, codes, queries = _quantizer(2, workers)
    together = quantizer.table(queries).distances(codes)
    alone = np.concatenate([quantizer.table(query[None]).distances(codes) for query in queries])
    np.testing.assert_array_equal(together, alone)


def test_encoding_and_decoding_by_the_quantizer(workers: Workers) -> None:
    quantizer, codes, queries = _quantizer(2, workers)
    found = quantizer.encode(queries, workers)
    assert found.shape == (20, 2) and found.dtype == np.uint8
    np.testing.assert_array_equal(quantizer.encode(queries[:1], workers), found[:1])
    np.testing.assert_allclose(
        quantizer.decode(codes, workers), oracles.decode(quantizer.codewords, codes), atol=1e-6
    )


# --- k-means ----------------------------------------------------------------------------------------------


def test_codes_are_those_of_points_in_the_metric_of_coding(workers: Workers) -> None:
    """A quantizer with scales codes as one that has its codewords in that metric, and decodes outside it."""
    rng = np.random.default_rng(4)
    words, scales = rng.standard_normal((2, 256, 5)).astype(np.float32), np.array([0.5, 1.0, 2.0, 4.0, 0.25])
    points = rng.standard_normal((60, 5)).astype(np.float32)
    scaled = Quantizer(words, 0.0, 0.0, None, scales)
    plain = Quantizer((words * scales).astype(np.float32), 0.0, 0.0, None)
    codes = scaled.encode(scaled.to_coding(points), workers)
    np.testing.assert_array_equal(codes, plain.encode((points * scales).astype(np.float32), workers))
    decoded = plain.decode(codes, workers)
    np.testing.assert_allclose(
        scaled.from_coding(decoded), scaled.decode(codes, workers), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_array_equal(scaled.from_coding(scaled.to_coding(points)), points)
    for same in (plain.to_coding, plain.from_coding):
        np.testing.assert_array_equal(same(points), points)


def test_k_means_with_fewer_points_than_words_repeats_them(workers: Workers) -> None:
    X, _ = _points(15, n=10)
    centres = kmeans(X, 256, np.random.default_rng(0), workers)
    assert centres.shape == (256, D)
    assert {row.tobytes() for row in centres.astype(np.float32)} == {row.tobytes() for row in X}


def test_k_means_finds_clusters_and_leaves_no_word_empty(workers: Workers) -> None:
    rng = np.random.default_rng(1)
    truth = 10 * rng.standard_normal((5, D))
    X = (truth[rng.integers(5, size=N)] + 0.01 * rng.standard_normal((N, D))).astype(np.float32)
    centres = kmeans(X, 16, rng, workers)
    labels, errors = nearest_centres(X, centres, workers)
    expected = ((X[:, None].astype(float) - centres) ** 2).sum(axis=2)
    np.testing.assert_allclose(errors, expected.min(axis=1), atol=1e-2)  # float32, squares of 10²
    assert errors.max() < 1.0 and np.isfinite(centres).all()
    assert ((expected[np.arange(N), labels] - expected.min(axis=1)) < 1e-2).all()


def test_k_means_of_equal_points(workers: Workers) -> None:
    X = np.ones((300, D), dtype=np.float32)
    centres = kmeans(X, 256, np.random.default_rng(0), workers)
    np.testing.assert_allclose(centres, 1.0)


# Codebooks of a beam


def _coding_error(words: Any, points: Any, workers: Workers) -> float:
    codes = collaborative.encode(CodewordTables.of(words), points, CrossPenalty(0, 0), workers)
    return float(((points - oracles.decode(words, codes)) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("n_codebooks", [2, 4])
def test_beam_codebooks_code_unseen_points_better_than_residual_ones(
    n_codebooks: int, workers: Workers
) -> None:
    rng = np.random.default_rng(5)
    view = rng.standard_normal((12, 24)) * np.geomspace(1, 0.1, 24)
    seen, unseen = (
        (rng.standard_normal((n, 12)) @ view + 0.1 * rng.standard_normal((n, 24))).astype(np.float32)
        for n in (1500, 500)
    )
    beam = codebooks.beam_codebooks(seen, n_codebooks, np.random.default_rng(0), workers)
    greedy = codebooks.residual_codebooks(seen, n_codebooks, np.random.default_rng(0), workers)
    assert beam.shape == greedy.shape == (n_codebooks, 256, 24)
    assert _coding_error(beam, unseen, workers) < 0.97 * _coding_error(greedy, unseen, workers)


def test_beam_codebooks_do_not_depend_on_the_threads() -> None:
    X, _ = _points(4, n=1100)
    found = []
    for n_jobs in (1, 2, 3):
        with Workers(n_jobs) as several:
            found.append(codebooks.beam_codebooks(X, 3, np.random.default_rng(0), several))
            centres = codebooks.progressive_kmeans(X, 256, np.random.default_rng(0), several)
            assert centres.tobytes() == found[0][0].tobytes()  # the first codebook of the same seed
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_recoding_never_makes_a_code_worse(workers: Workers) -> None:
    X, _ = _points(8, n=600)
    words = codebooks.beam_codebooks(X, 3, np.random.default_rng(0), workers)
    codes = np.random.default_rng(1).integers(0, 256, (600, 3)).astype(np.uint8)
    found = collaborative.encode(CodewordTables.of(words), X, CrossPenalty(0, 0), workers)
    codes[::2] = found[::2]  # every other code is as good as a search from nothing finds it
    old = Side(words, codes, 0.0, codebooks.decode(words, codes, workers))
    new = collaborative.recode(old, X, workers)
    before, after = (((X - oracles.decode(words, side.codes)) ** 2).sum(axis=1) for side in (old, new))
    assert (after <= before + 1e-6).all() and after[1::2].mean() < 0.1 * before[1::2].mean()
    np.testing.assert_array_equal(new.codes[::2], codes[::2])
    np.testing.assert_allclose(new.decoded, oracles.decode(words, new.codes), atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 50, 256])
def test_few_points_are_kept_whole_by_a_beam(n: int, workers: Workers) -> None:
    X, _ = _points(6, n=max(n, 10))
    words = codebooks.beam_codebooks(X[:n], 2, np.random.default_rng(0), workers)
    assert np.isfinite(words).all()
    assert _coding_error(words, X[:n], workers) < 1e-5


def test_progressive_centres_are_about_as_near_as_plain_ones(workers: Workers) -> None:
    X, _ = _points(7, n=900)
    centres = codebooks.progressive_kmeans(X, 16, np.random.default_rng(0), workers)
    plain = kmeans(X, 16, np.random.default_rng(0), workers)
    labels = [nearest_centres(X, words, workers)[0] for words in (plain, centres)]
    error = [((X - words[own]) ** 2).sum() for words, own in zip((plain, centres), labels, strict=True)]
    assert len(set(labels[1].tolist())) == 16
    assert error[1] < 1.05 * error[0]


@pytest.mark.parametrize("shape", [(1, 32), (40, 256), (7, 1280)])
def test_the_smallest_are_found_wherever_they_are(shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    scores[0, 3::16] -= 9.0  # one part of a row can hold several
    found = np.sort(codebooks._find_smallest(scores, 5), axis=1)
    np.testing.assert_array_equal(found, np.sort(np.argsort(scores, axis=1)[:, :5], axis=1))
