"""Campaigns: every one can be run, goes on where it was, and the page has the figures that were kept."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT))  # campaigns are no part of the package
page = import_module("campaigns.page")
runner = import_module("campaigns.runner")
NAMES = import_module("campaigns.__main__").CAMPAIGNS


def test_every_campaign_has_a_module_and_a_line_on_the_page() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all((ROOT / "campaigns" / f"{name}.py").is_file() for name in NAMES)
    assert set(page.TITLES) == set(NAMES)


def test_the_page_has_the_kept_figures() -> None:
    assert page.PAGE.read_text() == page.make_page(), "run python -m campaigns.page"
    kept = [page.read_result(name) for name in NAMES]
    assert all(found["failures"] == 0 for found in kept if found is not None)


def test_a_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results")
    given = argparse.Namespace(processes=1, anew=False, no_result=False, minutes_at_most=math.inf)
    done: list[str] = []

    def unit(key: str, *failures: str) -> object:
        def work() -> object:
            done.append(key)
            return runner.Outcome(10, list(failures), {"kind": 10})

        return runner.Unit(key, work)

    assert runner.run_units("sample", [unit("a"), unit("b", "lost")], given) == 1
    assert runner.run_units("sample", [unit("a"), unit("b"), unit("c")], given) == 0
    assert done == ["a", "b", "b", "c"], "what failed is done again, what was done is not"
    found = json.loads((tmp_path / "results" / "sample.json").read_text())
    assert (found["cases"], found["failures"], found["counts"]) == (30, 0, {"kind": 30})
    runner.run_units("sample", [unit("a")], given)
    assert done[-1] == "a", "a campaign that is finished begins anew"


def test_a_campaign_whose_time_is_up_says_how_much_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results")
    clock = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])

    def work() -> object:
        clock[0] += 50.0
        return runner.Outcome(10, [])

    units = [runner.Unit(key, work) for key in "abc"]
    given = argparse.Namespace(processes=1, anew=False, no_result=False, minutes_at_most=1.0)
    for cases, n_done in ((20, 2), (30, 3)):
        assert runner.run_units("sample", units, given) == 0
        found = json.loads((tmp_path / "results" / "sample.json").read_text())
        assert (found["cases"], found["units"], found["units_asked"]) == (cases, n_done, 3)


LEAST = {
    "resealed": {"refused": 100, "answered": 60},
    "readers": {f"{outcome}: {form}": 1 for form in ("npy", "npz", "csv") for outcome in ("read", "refused")}
    | {"refused: mat": 150, "refused: parquet": 150, "read: picture": 50, "refused: safetensors": 150},
    "contract": {"of our generator": 2000, "of schemathesis": 500},
}
"""Cases of some kinds that a short campaign has, or it would find nothing because it does nothing."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kill_points", ["--stride", "97", "--recoveries", "1"]),
        ("power_loss", ["--states", "100"]),
        ("stateful_steps", ["--steps", "1000"]),
        ("flips", ["--stride", "50000"]),
        ("resealed", ["--n", "600", "--seed", "19"]),
        ("readers", ["--n", "2000", "--seed", "19"]),
        ("contract", ["--requests", "2000", "--examples", "5"]),
        ("soak", ["--minutes", "0.5", "--kill-every", "10"]),
    ],
)
def test_a_short_campaign_finds_nothing(name: str, options: list[str]) -> None:
    command = [sys.executable, "-m", f"campaigns.{name}", *options, "--no-result", "--anew"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["cases"] > 0 and found["units"] == found["units_asked"]
    assert all(found["counts"].get(kind, 0) >= least for kind, least in LEAST.get(name, {}).items())
