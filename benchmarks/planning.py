"""A plan beside the build that it speaks of: bytes on disk and in memory, seconds to fit and to add.

    python -m benchmarks.planning                              # about half an hour, on a quiet machine
    python -m benchmarks.planning --sizes 5000 --repetitions 1 # smaller

Fashion at three sizes, 32 bits, "cca" and the paper's mapping, with string ids and payloads of two fields.
Plan and build take turns; a figure is the plan's over the build's, and the worst of the repetitions counts
for bytes, the median for times. The plan's own seconds are shown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.datasets import Split, fashion
from benchmarks.tables import Measurement, save
from benchmarks.timing import Goal, print_goals
from crossbyte import CMCQ, Index
from crossbyte.index.plan.plan import plan
from crossbyte.index.plan.size_model import Plan

BITS, SIZES, MAPPINGS, REPETITIONS = 32, (5_000, 15_000, 40_000), ("cca", "sparse"), 3
BYTES, TIMES = 1.02, 1.5  # largest ratio allowed, either way


class Data(NamedTuple):
    """Documents to plan for and to build."""

    images: Any
    texts: Any
    ids: list[str]
    payloads: list[dict[str, Any]]

    @classmethod
    def of(cls, split: Split, n: int) -> Data:
        """The first ``n`` products, with their titles and kinds as payloads."""
        assert split.captions is not None
        kinds = split.labels[:n].argmax(axis=1).tolist()
        titles = split.captions[:n, 0].tolist()
        payloads = [{"title": title, "kind": kind} for title, kind in zip(titles, kinds, strict=True)]
        return cls(split.images[:n], split.texts[:n], [f"product-{i}" for i in range(n)], payloads)


class Cost(NamedTuple):
    """What was planned or measured."""

    disk: float
    memory: float
    fit: float
    add: float


def plan_cost(data: Data, model: CMCQ) -> tuple[Cost, float]:
    """What the plan says, and its own seconds."""
    start = time.perf_counter()
    found: Plan = plan(
        data.images, data.texts, items=len(data.ids), model=model, ids=data.ids, payloads=data.payloads
    )
    seconds = time.perf_counter() - start
    return Cost(found.disk["total"], found.memory["total"], found.fit_seconds, found.add_seconds), seconds


def build_cost(data: Data, model: CMCQ, path: Path) -> Cost:
    """What the build takes; memory is what the opened index says, and its model's bytes."""
    start = time.perf_counter()
    model.fit(data.images, data.texts)
    fit = time.perf_counter() - start
    with Index.create(path, model) as index:
        start = time.perf_counter()
        index.add(data.ids, images=data.images, texts=data.texts, payloads=data.payloads)
        add = time.perf_counter() - start
    with Index.open(path) as index:
        memory = index.stats()["memory"]["bytes"]["total"] + len(model.to_bytes())
    return Cost(os.path.getsize(path), memory, fit, add)


def measure_once(data: Data, mapping: str, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Ratios of one plan to one build, and the seconds that are shown."""
    model = CMCQ(BITS, mapping=mapping, random_state=seed)
    before, seconds = plan_cost(data, model)
    with tempfile.TemporaryDirectory() as folder:
        after = build_cost(data, model, Path(folder) / "build.cb")
    ratios = {name: getattr(before, name) / getattr(after, name) for name in Cost._fields}
    return ratios, {"plan": seconds, "fit": after.fit, "add": after.add}


def ratio_off(ratio: float) -> float:
    """How far off, either way: 1 is exact."""
    return max(ratio, 1 / ratio)


def make_goals(name: str, ratios: list[dict[str, float]], seconds: list[dict[str, float]]) -> list[Goal]:
    """Bytes by their worst repetition, times by their median."""
    goals = [
        Goal(
            name,
            f"{part}, off by a factor of",
            max(ratio_off(one[part]) for one in ratios),
            BYTES,
            True,
        )
        for part in ("disk", "memory")
    ]
    goals += [
        Goal(
            name,
            f"{part}, off by a factor of",
            ratio_off(median(one[part] for one in ratios)),
            TIMES,
            True,
        )
        for part in ("fit", "add")
    ]
    goals += [
        Goal(name, f"{part}, planned / built", median(one[part] for one in ratios)) for part in ratios[0]
    ]
    shown = {part: median(one[part] for one in seconds) for part in seconds[0]}
    return goals + [Goal(name, f"{part}, seconds", value) for part, value in shown.items()]


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--mappings", nargs="+", default=MAPPINGS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    options = parser.parse_args()
    train, goals, kept = fashion().train, [], []
    for mapping in options.mappings:
        for n in options.sizes:
            data, name = Data.of(train, n), f"{mapping}, {n:,} pairs"
            runs = [measure_once(data, mapping, seed) for seed in range(options.repetitions)]
            ratios, seconds = [run[0] for run in runs], [run[1] for run in runs]
            goals += make_goals(name, ratios, seconds)
            kept += [
                Measurement(name, f"{part}, planned / built", [one[part] for one in ratios])
                for part in ratios[0]
            ]
    print_goals("Plan beside build", goals)
    whole = tuple(options.sizes) == SIZES and tuple(options.mappings) == MAPPINGS
    if whole:
        kept += [Measurement(goal.system, goal.score, [goal.value], goal.wanted) for goal in goals]
        save("planning", kept, {"data": "fashion", "bits": BITS, "repetitions": options.repetitions})


if __name__ == "__main__":
    main()
