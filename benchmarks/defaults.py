"""What somebody gets who only writes ``CMCQ()``, and how long the fit takes beside 0.6.0.

    CROSSBYTE_OLD=.../python python -m benchmarks answers --part defaults

3,000 pairs of Flickr8k to fit, the 1,000 of the test unseen: recall@10, every item known from one side alone.
``CROSSBYTE_OLD`` is a Python that has crossbyte 0.6.0; its ``CMCQ()`` and its ``mapping="cca"`` are fitted in
turns with today's defaults, each in a process of its own with all cores. The median of the ratios of time
counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.datasets import flickr8k
from benchmarks.harness import chance_recall_10
from benchmarks.tables import Measurement

N_PAIRS = 3000
REPETITIONS = 3
OLD = "CROSSBYTE_OLD"
ALLOWED_TIMES, WANTED_RECALL = 1.5, 0.55
SCORES = ("recall@10 I→T", "recall@10 T→I")
# It must run with 0.6.0, too, so it is no module of the benchmarks.
FIT = """
import json, sys, time
import numpy as np
from scipy import sparse
from crossbyte import CMCQ

folder, parameters = sys.argv[1], json.loads(sys.argv[2])
parts = ("train", "query")
images, asked = (np.load(f"{folder}/images_{part}.npy") for part in parts)
texts, words = (sparse.csr_array(sparse.load_npz(f"{folder}/texts_{part}.npz")) for part in parts)
began = time.perf_counter()
model = CMCQ(**parameters).fit(images, texts)
seconds = time.perf_counter() - began
ranks = model.partner_ranks(asked, words)
recall = [float((np.asarray(each) < 10).mean()) for each in (ranks.image_to_text, ranks.text_to_image)]
print(json.dumps({"seconds": seconds, "recall": recall}))
"""


def fit_once(python: str, folder: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a fit and recall of both directions, by a Python and its crossbyte."""
    command = [python, "-c", FIT, str(folder), json.dumps(parameters)]
    own = dict(os.environ)
    if python != sys.executable:
        own.pop("PYTHONPATH", None)  # it would lead to the crossbyte of today
    done = subprocess.run(command, cwd=folder, env=own, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def write_pairs(folder: Path) -> None:
    """The pairs as files that any version reads."""
    data = flickr8k(drop_unlabelled=False)
    rows = np.sort(np.random.default_rng(0).permutation(len(data.train))[:N_PAIRS])
    for part, pairs in (("train", data.train.take(rows)), ("query", data.query)):
        np.save(folder / f"images_{part}.npy", pairs.images)
        sparse.save_npz(folder / f"texts_{part}.npz", pairs.texts)


def measure(options: Namespace) -> tuple[list[Measurement], dict[str, Any]]:
    """Recall of all, and the ratio of times."""
    old = os.environ.get(OLD)
    systems = {"CMCQ()": (sys.executable, dict(options.parameters))}
    if old is None:
        print(f"{OLD} names no Python with crossbyte 0.6.0: its fits are left out")
    else:
        systems |= {"0.6.0, CMCQ()": (old, {}), '0.6.0, mapping="cca"': (old, {"mapping": "cca"})}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder)
        found: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        for seed in range(max(options.seeds, REPETITIONS)):
            for system, (python, parameters) in systems.items():
                found[system].append(fit_once(python, folder, parameters | {"random_state": seed}))
    chance = chance_recall_10(len(flickr8k(drop_unlabelled=False).query))
    entries = [
        Measurement(
            system,
            score,
            [run["recall"][way] for run in runs],
            WANTED_RECALL if system == "CMCQ()" else None,
            chance,
        )
        for system, runs in found.items()
        for way, score in enumerate(SCORES)
    ]
    if old is not None:
        pairs = zip(found["CMCQ()"], found['0.6.0, mapping="cca"'], strict=True)
        ratio = median(ours["seconds"] / theirs["seconds"] for ours, theirs in pairs)
        entries.append(Measurement("CMCQ()", "time of a fit over 0.6.0's (median)", [ratio], ALLOWED_TIMES))
    return entries, {"pairs": N_PAIRS, "fits_in_turns": max(options.seeds, REPETITIONS)}
