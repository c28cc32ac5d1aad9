"""Core microseconds that coding a pair takes, beside another version of crossbyte with the same model.

    python -m benchmarks.adding_pairs --beside ../crossbyte-0.6.0/.venv/bin/python

The other version fits the models (``CMCQ(mapping="cca", n_components=64)`` on 20,000 synthetic pairs of 128-d
images and 500 words; kept in the folder of :func:`benchmarks.coded.cache_folder`), so that both code both
halves of the same 4,096 pairs with the same codewords, each in a process of its own, by turns. What this
version's own default model takes, with one code of both halves, is shown as well. Processor time of one
thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from threadpoolctl import threadpool_limits

from crossbyte import CMCQ
from crossbyte.data.synthetic import make_pairs

BITS, N_TRAINING, N_PAIRS, REPETITIONS, TURNS = (32, 64), 20_000, 4_096, 3, 3
WANTED = 3.0  # times the other version's rate


def _pairs(n_pairs: int, seed: int) -> Any:
    return make_pairs(n_pairs, 128, 500, n_classes=200, n_topics=80, random_state=seed)


def code_pairs(path: Path, bits: int, how: str) -> dict[str, Any]:
    """In a process of one version: microseconds per pair, and a digest of the codes; fits a missing model."""
    if not path.exists():
        pairs = _pairs(N_TRAINING, 0)
        model = CMCQ(n_bits=bits, mapping="cca", n_components=64, max_iter=5, random_state=0)
        model.fit(pairs.images, pairs.texts).save(path)
    model = CMCQ.load(path).set_params(n_jobs=1)
    pairs = _pairs(N_PAIRS, 1)
    with threadpool_limits(1):
        codes = getattr(model, how)(pairs.images, pairs.texts)
        seconds = []
        for _ in range(REPETITIONS):
            start = time.process_time()
            getattr(model, how)(pairs.images, pairs.texts)
            seconds.append(time.process_time() - start)
    both = codes if isinstance(codes, tuple) else (codes,)
    digest = hashlib.sha256(b"".join(one.tobytes() for one in both)).hexdigest()
    return {"microseconds": 1e6 * median(seconds) / N_PAIRS, "codes": digest}


def _run(python: str, path: Path, bits: int, how: str) -> dict[str, Any]:
    command = [python, str(Path(__file__).resolve()), "--child", str(path), str(bits), how]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    """Measure by turns, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", help="Python of a checkout of the other version")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        path, bits, how = options.child
        print(json.dumps(code_pairs(Path(path), int(bits), how)))
        return
    from benchmarks.coded import cache_folder
    from benchmarks.tables import Measurement, save
    from benchmarks.timing import Goal, print_goals
    from crossbyte.compute.kernels import implementation

    entries, goals = [], []
    for bits in BITS:
        shared, own = (cache_folder() / f"pairs-{name}-{bits}.cbm" for name in ("beside", "own"))
        ways = {
            "the other version": (options.beside, shared, "encode_pairs"),
            "this version": (sys.executable, shared, "encode_pairs"),
            "this version's default": (sys.executable, own, "encode_documents"),
        }
        ways = {name: way for name, way in ways.items() if way[0]}
        turns = [
            {name: _run(python, path, bits, how) for name, (python, path, how) in ways.items()}
            for _ in range(TURNS)
        ]
        for name in ways:
            values = [turn[name]["microseconds"] for turn in turns]
            entries.append(Measurement(name, f"{bits // 8} bytes: core microseconds per pair", values))
            goals.append(Goal(name, entries[-1].score, median(values)))
        if options.beside:
            found = {name: median(turn[name]["microseconds"] for turn in turns) for name in ways}
            same = len({turn[name]["codes"] for turn in turns for name in list(ways)[:2]}) == 1
            ratio = found["the other version"] / found["this version"]
            goals.append(
                Goal("this version", f"{bits // 8} bytes: times the rate of the other", ratio, WANTED)
            )
            goals.append(
                Goal("this version", f"{bits // 8} bytes: same codes as the other", float(same), 1.0)
            )
    print_goals("Coding pairs, one core", goals)
    entries += [Measurement(g.system, g.score, [g.value], target=g.wanted) for g in goals if g.wanted]
    save("adding_pairs", entries, {"pairs": N_PAIRS, "kernels": implementation()})


if __name__ == "__main__":
    main()
