"""Result files with made-up figures, for tests of the laboratory's report."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte.lab.results import Result, Run, write_result

LEVELS = {
    "random": 0.0,
    "cmssh": 0.15,
    "cvh": 0.2,
    "mlbe": 0.35,
    "qch": 0.1,
    "lssh": 0.7,
    "cmfh": 0.8,
    "ccq": 0.82,
    "seph": 0.95,
    "cq": 0.3,
    "cca-itq": 0.5,
    "cca-pq": 0.6,
    "cca-opq": 0.62,
    "cca-rq": 0.7,
    "cca-lsq": 0.72,
    "cca": 1.0,
    "cmcq": 0.81,
    "cmcq-cca": 0.83,
    "cmcq-auto": 0.86,
}
"""How good each system is, from chance (0) to as good as it gets (1)."""

NAMES = {"seph": "SePH_km", "random": "Random", "cmcq-cca": "CMCQ (CCA)", "cmcq-auto": "CMCQ (auto)"}
NAMES |= {f"cca-{each}": f"CCA + {each.upper()}" for each in ("pq", "opq", "rq", "lsq")}
DEPTHS = [1, 2, 5, *range(10, 100, 10), *range(100, 1001, 50)]
SIZES = {"wiki": (2_173, 693), "nus-wide": (182_577, 4_000), "flickr8k": (6_000, 200)}
QUANTIZERS = ("ccq", "cmcq", "cmcq-cca", "cmcq-auto")


def result(
    method: str = "cmfh",
    bits: int = 32,
    seed: int = 0,
    *,
    data: str = "wiki",
    protocol: str = "A",
    variant: str = "",
    similarity: str | None = None,
    labels: bool = True,
    partners: bool = False,
    tasks: tuple[str, ...] = ("image-to-text", "text-to-image"),
    shift: float = 0.0,
    **parts: Any,
) -> Result:
    """One result; `shift` is added to how good the system is, and `parts` replace parts of the result."""
    taught = similarity or ("labels" if method == "seph" else "pairs")
    run = Run(data, "d" * 16, protocol, method, bits, seed, variant, taught)
    rng = np.random.default_rng(hash_of(run))
    level = LEVELS.get(method, 0.5) + shift + 0.03 * np.log2(bits / 32) + rng.normal(0, 0.01)
    scores = {task: _scores(task, level, labels, partners) for task in tasks}
    chance = {task: _scores(task, 0.0, labels, partners) for task in tasks}
    n_train, n_queries = SIZES.get(data, (2_000, 200))
    found: dict[str, Any] = {
        "about": _about(method),
        "data": {"name": data, "digest": run.data_digest, "about": "", "n_train": n_train}
        | {"n_items": n_train, "n_queries": n_queries, "image_dim": 128, "text_dim": 10},
        "versions": {"crossbyte": "0.4.0", "numpy": "2.1.0", "python": "3.12.1"},
        "seconds": {"fit": 0.05 * bits * (1 + 9 * LEVELS.get(method, 0.5)), "code": 0.02, "search": 0.3},
        "scores": scores,
        "chance": chance,
        "details": _details(method, bits),
        "per_query": {task: _per_query(rng, scores[task], n_queries) for task in tasks} if partners else {},
        "finished": 1.0,
    }
    return Result(run=run, **(found | parts))


def hash_of(run: Run) -> int:
    """A seed from a run that no salt of Python changes."""
    return int(run.digest[:12], 16)


def _about(method: str) -> dict[str, Any]:
    coded = method not in ("cca", "random")
    return {
        "key": method,
        "name": NAMES.get(method, method.upper()),
        "codes": "separate" if coded else "none",
        "coding": "hash" if coded else "none",
        "similarities": ["pairs"],
        "in_paper": True,
    }


def _scores(task: str, level: float, labels: bool, partners: bool) -> dict[str, Any]:
    best = 0.27 if task == "image-to-text" else 0.68
    top = round(0.18 + (best - 0.18) * level, 6)
    scores: dict[str, Any] = {}
    if labels:
        scores |= {"map@50": top, "map@100": round(0.96 * top, 6), "map@all": round(0.7 * top, 6)}
        curve = [round(0.12 + (top - 0.12) / (1 + depth / 900), 6) for depth in DEPTHS]
        scores["precision_curve"] = {"depths": DEPTHS, "values": curve}
        scores |= {f"precision@{depth}": curve[DEPTHS.index(depth)] for depth in (1, 10, 50, 100, 500, 1000)}
        recall = [place / 20 for place in range(21)]
        scores["pr_curve"] = {
            "recall": recall,
            "precision": [round(0.12 + (top - 0.12) * (1 - each) ** 2, 6) for each in recall],
        }
    if partners:
        scores |= {f"recall@{k}": round(0.4 * level * k**0.3 / 2 + k / 1000, 6) for k in (1, 5, 10, 50, 100)}
    return scores


def _details(method: str, bits: int) -> dict[str, Any]:
    if method not in QUANTIZERS:
        return {"n_learned_from": 500} if method == "mlbe" else {}
    error = (0.5 if method == "ccq" else 0.42) * (16 / bits) ** 0.4
    return {"quantization_error": {"image": error, "text": error * 0.8}}


def _per_query(rng: np.random.Generator, scores: dict[str, Any], n_queries: int) -> dict[str, Any]:
    return {
        f"recall@{depth}": (rng.random(n_queries) < scores[f"recall@{depth}"]).astype(float).tolist()
        for depth in (1, 5, 10)
    }


def everything() -> list[Result]:
    """Everything that a report can show: all protocols, ablations, sensitivity, data without labels."""
    found = [*_paper_protocol("wiki", 3), *_paper_protocol("nus-wide", 2), *_partners()]
    for method, bits, variant in product(("seph", "cmcq", "cmcq-cca"), (32, 64, 128), ("", "side")):
        given = {"protocol": "D", "variant": variant, "shift": -0.4 if method == "seph" else -0.1}
        found += [result(method, bits, data=data, **given) for data in ("nus-wide", "fashion")]
    return [*found, *_sensitivity("flickr8k"), *_sensitivity("fashion")]


def write_all(directory: Path) -> None:
    """Write everything, to look at a report by eye."""
    for each in everything():
        write_result(directory, each)


def _paper_protocol(data: str, n_seeds: int) -> list[Result]:
    settings = [(method, "", 0.0) for method in LEVELS]
    settings += [("cmcq", "gamma=0", -0.3), ("cmcq", "lambda=0", -0.2), ("cmcq", "C=D", -0.05)]
    return [
        result(method, bits, seed, data=data, variant=variant, shift=shift)
        for (method, variant, shift), bits, seed in product(settings, (16, 32, 64, 128), range(n_seeds))
        if not (method == "mlbe" and bits == 128)
    ]


def _partners() -> list[Result]:
    methods = [each for each in LEVELS if each.startswith(("cca", "cmcq"))]
    found = []
    for method, bits in product(methods, (16, 32, 64, 128)):
        tasks = ("text-to-image", "text-to-text")
        given = {"data": "flickr8k", "labels": False, "partners": True}
        found.append(result(method, bits, protocol="B", **given))
        found.append(result(method, bits, protocol="C", tasks=tasks, **given))
        found.append(result(method, bits, data="fashion", protocol="B", partners=True))
    return found


def _sensitivity(data: str) -> list[Result]:
    found = [result(method, 32, data=data, protocol="V") for method in ("lssh", "cmfh", "ccq", "cmcq")]
    for letter in ("gamma", "rho", "eta", "lambda"):
        for value in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, *(() if letter == "rho" else (3.0, 10.0))):
            given = {"variant": f"{letter}={value:g}", "shift": 0.1 - 0.06 * abs(np.log10(value / 0.1))}
            found.append(result("cmcq", 32, data=data, protocol="V", **given))
    return found
