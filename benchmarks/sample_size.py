"""How many pairs are enough to fit on: the law behind the rule beside fits that were really run.

    python -m benchmarks.sample_size           # minutes; Fashion; also writes a table of docs/planning.md

Fits of 2,048, 8,192 and 32,768 products ("cca", five rounds) look for the partners of the same 2,000 others.
The law goes through the first two and promises something of the third. No times: a plan measures its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import fashion
from benchmarks.summary import ROOT, replace
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.index.plan.pilot import PilotPairs, PilotRecall, expected_recall, recommend_pairs

BITS, SIZES, HELD_OUT, ROUNDS = (32, 64), (2048, 8192, 32_768), 2000, 5
MANY = 10**10
Rows = NDArray[np.intp]


def draw_trials(images: Any, texts: Any) -> tuple[PilotPairs, Rows]:
    """Pairs to ask with, and the order in which the others are fitted on."""
    order = np.random.default_rng(0).permutation(images.shape[0])
    held, others = np.sort(order[:HELD_OUT]), order[HELD_OUT:]
    return PilotPairs(images, texts, images[held], texts[held], np.arange(HELD_OUT)), others


def fit_and_score(asked: PilotPairs, rows: Rows, bits: int) -> PilotRecall:
    """What a fit of these rows finds."""
    model = CMCQ(bits, mapping="cca", max_iter=ROUNDS, random_state=0)
    return PilotRecall(len(rows), asked.hits(model.fit(asked.images[rows], asked.texts[rows])))


def measure(asked: PilotPairs, others: Rows, bits: int) -> list[Measurement]:
    """Recall by size, what the law promises of the largest, and how many the rule takes."""
    found = [fit_and_score(asked, np.sort(others[:size]), bits) for size in SIZES]
    few, many, most = found
    name = f"Fashion, {bits} bits"
    return [
        *(Measurement(name, recall_name(one.n_pairs), [float(one.hits.mean())]) for one in found),
        Measurement(name, promised_name(most.n_pairs), [expected_recall(few, many, most.n_pairs)]),
        Measurement(name, "enough pairs", [recommend_pairs(few, many, MANY, lambda _: 0.0).pairs]),
    ]


def recall_name(n_pairs: int) -> str:
    """How the score is called."""
    return f"recall@10 from {n_pairs:,} pairs"


def promised_name(n_pairs: int) -> str:
    """How the score is called."""
    return f"recall@10 promised from {n_pairs:,} pairs"


def table(entries: list[Measurement]) -> str:
    """The table in Markdown."""
    scores = [*map(recall_name, SIZES[:2]), promised_name(SIZES[-1]), recall_name(SIZES[-1]), "enough pairs"]
    headings = [score.removeprefix("recall@10 ") for score in scores]
    rows = [f"| recall@10 | {' | '.join(headings)} |", "|---" * (len(scores) + 1) + "|"]
    for name in dict.fromkeys(entry.system for entry in entries):
        means = {entry.score: entry.mean for entry in entries if entry.system == name}
        cells = [f"{means[score]:.3f}" for score in scores[:-1]]
        rows.append(f"| {name} | {' | '.join(cells)} | {means[scores[-1]]:,.0f} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Measure, print, keep, and write the table."""
    train = fashion().train
    asked, others = draw_trials(train.images, train.texts)
    entries = [entry for bits in BITS for entry in measure(asked, others, bits)]
    print_table("How many pairs are enough", entries)
    save(
        "sample_size", entries, {"data": "fashion", "mapping": "cca", "rounds": ROUNDS, "held_out": HELD_OUT}
    )
    replace(ROOT / "docs" / "planning.md", {"sample_size": table(entries)})


if __name__ == "__main__":
    main()
