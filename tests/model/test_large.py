"""More pairs than the starts learn from, and more than one canonical block."""

from __future__ import annotations

import numpy as np
import pytest

from crossbyte import CMCQ
from crossbyte.compute.executor import SAMPLE_ROWS
from crossbyte.data.synthetic import make_pairs

pytestmark = pytest.mark.long

SMALL = {"n_bits": 8, "n_atoms": 16, "n_components": 6, "max_iter": 2, "random_state": 0}


@pytest.mark.parametrize("mapping", ["sparse", "cca"])
def test_sampled_starts_give_the_same_bytes_with_any_number_of_threads(mapping: str) -> None:
    pairs = make_pairs(SAMPLE_ROWS + 700, 24, 60, random_state=0)
    models = [
        CMCQ(mapping=mapping, n_jobs=n_jobs, **SMALL).fit(pairs.images, pairs.texts) for n_jobs in (1, 2, 3)
    ]
    assert len({model.to_bytes() for model in models}) == 1
    totals = np.array([record.total for record in models[0].objective_history_])
    assert (np.diff(totals) <= 1e-8 * totals[:-1]).all()
    assert len(models[0].image_codes_) == SAMPLE_ROWS + 700
