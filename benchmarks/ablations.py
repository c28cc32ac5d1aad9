"""The paper's claims on its parts (Wiki): γ = 0, λ = 0 and one dictionary for both, each against the full
model.

    python -m benchmarks.ablations             # 32 bits, 5 seeds; about 5 minutes

λ = 0 leaves R tied to the texts only through the codes; it starts from random rows of unit length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.datasets import wiki
from benchmarks.harness import SEEDS, chance_map, map_of_model, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ

BITS = 32
FULL = {"text_weight": 2.0, "alignment": 0.5}
VARIANTS: dict[str, dict[str, Any]] = {
    "full model": {},
    "γ = 0: quantizers learned apart": {"correlation": 0.0},
    "λ = 0: no alignment of the spaces": {"alignment": 0.0},
    "C = D: one dictionary for both": {"shared_codebooks": True},
}


def score(job: tuple[str, int]) -> tuple[float, ...]:
    """MAP@50 of both tasks, and the relative quantization errors of both sides."""
    name, seed = job
    data = wiki()
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **(FULL | VARIANTS[name])).fit(
        data.train.images, data.train.texts
    )
    return map_of_model(model, data)


def main() -> None:
    """Measure, print with a verdict on each claim, and keep."""
    chance, entries, means = chance_map(wiki()), [], {}
    for name in VARIANTS:
        columns = list(zip(*side_by_side(score, [(name, seed) for seed in SEEDS]), strict=True))
        means[name] = [float(np.mean(values)) for values in columns]
        entries += [
            Measurement(name, task, values, None, chance)
            for task, values in zip(("I→T", "T→I"), columns, strict=True)
        ]
    print_table(f"Ablations, Wiki, MAP@50, {BITS} bits, {FULL}", entries)
    for name in list(VARIANTS)[1:]:
        gains = [full - part for full, part in zip(means["full model"], means[name], strict=True)]
        verdict = "the claim holds" if min(gains) > 0 else "the claim does not hold in both tasks"
        print(f"{name}: the full model gains {gains[0]:+.4f} I→T and {gains[1]:+.4f} T→I; {verdict} here.")
    save("ablations", entries, {"bits": BITS, "full": FULL})


if __name__ == "__main__":
    main()
