"""Run the units of a campaign side by side, keep what each has found, and go on after an interruption."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import crossbyte
from campaigns import ROOT

KEPT = ROOT / "build" / "campaigns"
"""What units have found so far: not for the repository."""
RESULTS = ROOT / "campaigns" / "results"
"""Figures of whole campaigns, of which the page is made."""
_SOURCES = ("src", "native", "tests/crash", "tests/support", "campaigns")


class Outcome(NamedTuple):
    """What a unit has found.

    Attributes
    ----------
    cases : int
    failures : list of str
    counts : dict of str to int
        Cases by kind.
    figures : dict of str to float
        Other figures, of which the page shows the last.
    """

    cases: int
    failures: list[str]
    counts: dict[str, int] = {}
    figures: dict[str, float] = {}


class Unit(NamedTuple):
    """A part of a campaign that is done as a whole or again."""

    key: str
    work: Callable[[], Outcome]


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every campaign has."""
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="units at the same time")
    parser.add_argument("--minutes-at-most", type=float, default=math.inf, help="begin no unit after so long")
    parser.add_argument("--anew", action="store_true", help="forget what an interrupted run has found")
    parser.add_argument("--no-result", action="store_true", help="keep no figures for the page")


def run_units(name: str, units: Sequence[Unit], given: argparse.Namespace) -> int:
    """Run all units that are not done yet; print and keep the figures; 1 if anything failed.

    Where the time is up before, the figures are those of what was done, and say how much that is; the next
    run goes on from there.
    """
    log = (KEPT / "short" if given.no_result else KEPT) / f"{name}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    sources = digest_sources()
    done = {} if given.anew else _read_done(log, sources)
    todo = [unit for unit in units if unit.key not in done]
    print(f"{name}: {len(units)} units, {len(units) - len(todo)} done already", file=sys.stderr)
    if not done:
        log.write_text("")
    ends = time.monotonic() + 60 * given.minutes_at_most
    with ThreadPoolExecutor(max(1, given.processes)) as pool, log.open("a") as kept:
        jobs = {pool.submit(_timed, unit, ends): unit for unit in todo}
        for n_done, job in enumerate(as_completed(jobs), 1):
            found = job.result()
            if found is None:
                continue
            line = found | {"unit": jobs[job].key, "sources": sources}
            kept.write(json.dumps(line) + "\n")
            kept.flush()
            done[jobs[job].key] = line
            _tell(name, n_done, len(todo), line)
    lines = [done[unit.key] for unit in units if unit.key in done]
    summary = _summarize(lines) | {"units": len(lines), "units_asked": len(units)}
    if not given.no_result:
        _keep_summary(name, summary)
    if not summary["failures"] and len(lines) == len(units):
        log.unlink()
    print(json.dumps({"campaign": name} | summary))
    return 1 if summary["failures"] else 0


def _timed(unit: Unit, ends: float) -> dict[str, Any] | None:
    began = time.monotonic()
    if began > ends:
        return None
    try:
        outcome = unit.work()
    except Exception as error:  # the campaign itself broke: that is a finding, too
        outcome = Outcome(0, [f"{type(error).__name__}: {error}"])
    return outcome._asdict() | {"seconds": round(time.monotonic() - began, 2)}


def _read_done(log: Path, sources: str) -> dict[str, dict[str, Any]]:
    """Read the units that were done without a failure, with the same sources."""
    if not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return {line["unit"]: line for line in lines if line["sources"] == sources and not line["failures"]}


def _tell(name: str, n_done: int, n_units: int, line: dict[str, Any]) -> None:
    text = (
        f"{name}: {n_done}/{n_units} {line['unit']}: {line['cases']} cases, {len(line['failures'])} failures"
    )
    print(text, file=sys.stderr)
    for failure in line["failures"][:3]:
        print(failure, file=sys.stderr)


def _summarize(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    figures: dict[str, float] = {}
    for line in lines:
        counts.update(line["counts"])
        figures |= line["figures"]
    return {
        "cases": sum(line["cases"] for line in lines),
        "failures": sum(len(line["failures"]) for line in lines),
        "counts": dict(sorted(counts.items())),
        "figures": figures,
        "seconds": round(sum(line["seconds"] for line in lines)),
    }


def _keep_summary(name: str, summary: dict[str, Any]) -> None:
    kept = {
        "version": crossbyte.__version__,
        "command": " ".join(["python -m campaigns", name, *sys.argv[1:]]),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(kept | summary, indent=1) + "\n")


def digest_sources() -> str:
    """Identify what is being tested, and by what."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".cpp", ".h"):
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
