"""What fits of several code lengths share changes no model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ
from crossbyte.model.fit import SharedFits


def _pairs(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(n, 6))
    noise = rng.normal(size=(2, n, 12))
    return tuple(latent @ rng.normal(size=(6, 12)) + 0.3 * each for each in noise)  # type: ignore[return-value]


def _model(n_bytes: int, **parameters: object) -> CMCQ:
    return CMCQ(8 * n_bytes, n_components=6, random_state=0, n_jobs=1, **parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("lengths", [(1, 2, 3), (3, 1, 2)])
def test_a_fit_that_shares_gives_the_bytes_of_a_fit_on_its_own(
    is_sparse: bool, lengths: tuple[int, ...]
) -> None:
    images, dense = _pairs()
    texts = sparse.csr_matrix(np.maximum(dense, 0.0)) if is_sparse else dense
    shared = SharedFits()
    for n_bytes in lengths:
        together = _model(n_bytes).fit(images, texts, shared=shared)
        alone = _model(n_bytes).fit(images, texts)
        assert together.to_bytes() == alone.to_bytes()
        assert together.selection_ == alone.selection_


def test_other_pairs_groups_seeds_and_parameters_are_learned_anew() -> None:
    images, texts = _pairs()
    others = images + 1.0, texts[::-1].copy()
    groups = np.arange(len(images)) // 2
    shared = SharedFits()
    for model, pairs, labels in (
        (_model(2), (images, texts), None),
        (_model(2), others, None),
        (_model(2), (images, texts), groups),
        (_model(2, ridge=1.0), (images, texts), None),
        (_model(2).set_params(random_state=1), (images, texts), None),
        (_model(2, mapping="sparse", max_iter=1), (images, texts), None),
    ):
        alone = CMCQ(**model.get_params()).fit(*pairs, labels)
        assert model.fit(*pairs, labels, shared=shared).to_bytes() == alone.to_bytes()


def test_a_step_is_taken_over_where_all_is_the_same_with_its_generator() -> None:
    shared, source = SharedFits(), np.zeros(3)
    drawn = []
    for _ in range(2):
        rng = np.random.default_rng(5)
        drawn.append((shared.once("draw", (source,), 1, rng, rng.random), rng.random()))
    assert drawn[0] == drawn[1]
    rng = np.random.Generator(np.random.MT19937(5))  # its state holds an array
    first = shared.once("draw", (source,), 1, rng, rng.random)
    rng = np.random.Generator(np.random.MT19937(5))
    assert shared.once("draw", (source,), 1, rng, lambda: -1.0) == first
    assert shared.once("draw", (source.copy(),), 1, rng, lambda: -1.0) == -1.0
    assert shared.once("draw", (source,), 2, rng, lambda: -2.0) == -2.0
