"""The laboratory on real data: the paper's tables and figures, and what compression costs on unseen pairs.

    python -m benchmarks.laboratory wiki       # Table 2's Wiki column: all systems and lengths, 5 seeds
    python -m benchmarks.laboratory            # everything below, some hours; a second call goes on

Every step is one call of the program, ``crossbyte evaluate``; all runs and their one report stay in the
cache folder of the benchmarks, and the means come into ``results/laboratory.json``, beside those of steps
that were run before, perhaps on another machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.coded import cache_folder
from benchmarks.datasets import data_root
from benchmarks.tables import Measurement, load, save
from crossbyte.lab.report.write import write_report
from crossbyte.lab.results import Result, read_results

BITS = "16,32,64,128"
OTHERS = "seph,cq,cca,cca-pq,cca-opq,cca-rq,cca-itq,random,cmcq-cca,cmcq-kernel"
NAMED = "scm,crh,mmnn,sm2h,imh,mvsh,stmh"
SHORT = "--bits 32 --protocol A,B"
UNSEEN = "cca,quantizers,cmcq,cmcq-cca"

STEPS = {
    "wiki": f"wiki --methods table2,{OTHERS} --bits {BITS} --seeds 5",
    "wiki, labels": f"wiki --methods cmssh,cvh,mlbe,qch --similarity labels --bits {BITS} --seeds 3",
    "wiki, table 1": f"wiki --methods {NAMED} --similarity pairs --bits 16,32,64 --seeds 5",
    "wiki, table 1, labels": f"wiki --methods {NAMED} --similarity labels --bits 16,32,64 --seeds 5",
    "flickr8k, table 1": f"flickr8k --methods {NAMED} --similarity pairs {SHORT} --seeds 3",
    "flickr8k, table 1, labels": f"flickr8k --methods {NAMED} --similarity labels {SHORT} --seeds 3",
    "flickr8k, table 1, beside": f"flickr8k --methods table2,seph,cmcq-cca {SHORT} --seeds 1",
    "wiki, ablations": f"wiki --methods cmcq --bits {BITS} --ablations --seeds 3",
    "flickr8k, new classes": "flickr8k --methods table3,cmcq-cca --bits 32,64,128 --protocol D --seeds 2",
    "flickr8k, unseen": f"flickr8k --methods {UNSEEN} --bits {BITS} --protocol B,C --seeds 2",
    "fashion, unseen": f"fashion --methods {UNSEEN} --bits {BITS} --protocol B,C --seeds 1",
    "flickr8k, sensitivity": "flickr8k --methods table2 --bits 32 --seeds 1 --sensitivity",
    "fashion, sensitivity": "fashion --methods table2 --bits 32 --seeds 1 --sensitivity",
    "flickr8k, chosen": "flickr8k --methods cmcq-auto --bits 16,32 --protocol B,C --seeds 2",
}
SCORES = {"A": "map@50", "B": "recall@10", "C": "recall@10", "D": "map@50"}


def evaluate(step: str) -> None:
    """Do one step, or what is left of it."""
    name, *options = STEPS[step].split()
    data = data_root() / name / f"{name}.npz"
    began = time.monotonic()
    command = [sys.executable, "-m", "crossbyte", "evaluate", str(data), *options, "--no-report"]
    subprocess.run([*command, "--out", str(folder())], check=True)
    print(f"{step}: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)


def folder() -> Path:
    """Where the runs and their report are."""
    return cache_folder() / "laboratory"


def measurements(results: Iterable[Result]) -> list[Measurement]:
    """Means over seeds of every system, length and task."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        run = result.run
        if run.protocol in SCORES:
            variant = f" {run.variant}" if run.variant else ""
            taught = "" if run.similarity == "pairs" else f" ({run.similarity})"
            name = f"{result.about['name']}{variant}{taught}"
            system = f"{run.data}, protocol {run.protocol}, {run.bits} bits: {name}"
            for task in result.tasks:
                found.setdefault((system, run.protocol, task), []).append(result)
    return [
        Measurement(
            system,
            f"{SCORES[protocol]} {task}",
            [float(each.scores[task][SCORES[protocol]]) for each in sorted(each_seed, key=_seed)],
            None,
            float(each_seed[0].chance[task][SCORES[protocol]]),
        )
        for (system, protocol, task), each_seed in sorted(found.items())
    ]


def _place(measurement: Measurement) -> tuple[str, str]:
    return measurement.system, measurement.score


def _seed(result: Result) -> int:
    return result.run.seed


def main() -> None:
    """Do the named steps, or all, and keep the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="step", help=f"some of {', '.join(STEPS)}")
    for step in parser.parse_args().steps or STEPS:
        evaluate(step)
    write_report(folder())
    found = measurements(read_results(folder()))
    new = set(map(_place, found))
    kept = [each for each in load("laboratory") if _place(each) not in new]
    save("laboratory", sorted([*kept, *found], key=_place), {"commands": STEPS})


if __name__ == "__main__":
    main()
