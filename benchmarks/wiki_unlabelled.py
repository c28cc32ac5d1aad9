"""Wiki at 32 bits with crossbyte's own settings, chosen without labels.

    python -m benchmarks.wiki_unlabelled       # 5 seeds; about a minute

``mapping="auto"`` chooses everything by recall@10 of held-out partners; labels are only used to score.
"""

from __future__ import annotations

from benchmarks.datasets import wiki
from benchmarks.harness import SEEDS, chance_map, map_of_model, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ

BITS = 32


def score(seed: int) -> tuple[float, float, str]:
    """I→T, T→I and what was chosen."""
    data = wiki()
    model = CMCQ(BITS, mapping="auto", random_state=seed, n_jobs=1).fit(data.train.images, data.train.texts)
    choice = f"{model.mapping_}-{model.n_components_}, ridge {model.ridge_:g}, γ {model.correlation_:g}"
    return *map_of_model(model, data), f"{choice}, {model.cross_term_}"


def main() -> None:
    """Measure, print and keep."""
    image, text, choices = zip(*side_by_side(score, SEEDS), strict=True)
    chance = chance_map(wiki())
    entries = [
        Measurement("CMCQ auto, 32 bits", "MAP@50 I→T", image, 0.270, chance),
        Measurement("CMCQ auto, 32 bits", "MAP@50 T→I", text, 0.620, chance),
    ]
    print_table(f"Wiki, chosen without labels: {sorted(set(choices))}", entries)
    save("wiki_unlabelled", entries, {"bits": BITS, "choices": list(choices)})


if __name__ == "__main__":
    main()
