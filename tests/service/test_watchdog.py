"""The watchdog in short: a real server under the known attacks. The figures are those of the benchmark."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from support.paths import ROOT
from support.service_samples import sample

sys.path.insert(0, str(ROOT))  # benchmarks are no part of the package
watchdog = import_module("benchmarks.watchdog")
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
# More than the documents promise: a machine that runs other tests may be slow.
SHORT = watchdog.Budget(healthz_seconds=8.0, rss_mib=2048.0)


@pytest.mark.long
@pytest.mark.parametrize("name", watchdog.ATTACKS)
def test_an_attack_stays_within_its_budget(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    cost = watchdog.measure(name, sample(tmp_path), 3.0)
    assert watchdog.passes(cost, SHORT), cost


def test_the_budgets_are_those_of_the_documents() -> None:
    budget = watchdog.Budget()
    assert f"{budget.healthz_seconds:g} second" in PAGE and f"{budget.rss_mib / 1024:g} GiB" in PAGE
    assert f"{budget.descriptors:g} descriptors" in PAGE and f"{budget.log_kib:g} KiB of log" in PAGE
    assert [name for name in watchdog.ATTACKS if name != "nothing" and name not in PAGE] == []


def test_a_budget_that_is_passed_fails() -> None:
    fine = watchdog.Cost(0.5, 300.0, 100, 1.0, 50, 0)
    budget = watchdog.Budget()
    assert watchdog.passes(fine, budget)
    worse = [
        fine._replace(**{name: value})
        for name, value in (("healthz_seconds", 1.1), ("rss_mib", 1025.0), ("descriptors", 641))
    ]
    for cost in [*worse, fine._replace(log_kib=65.0), fine._replace(n_unanswered=1)]:
        assert not watchdog.passes(cost, budget)
    assert len(watchdog.describe("an attack", fine, budget)) == 5
