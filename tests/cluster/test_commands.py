"""The commands on Ray: the files that they write without it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.cli import app
from crossbyte.compute import ray_session
from crossbyte.lab import runner
from crossbyte.lab.datasets.collection import Collection, collection_digest
from crossbyte.lab.datasets.loader import read_collection
from crossbyte.lab.parameter_search import read_recorded
from crossbyte.lab.results import Result, Run, read_result
from crossbyte.lab.run_plan import RunRequest, plan_runs
from crossbyte.lab.runner import run_all
from support.cluster_samples import killing, pairs

Shell = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run a command here; its stdout is one JSON document whatever Ray says."""

    def run_verb(*arguments: object, code: int = 0) -> Any:
        found = app.run([*map(str, arguments), "--json", "-q"])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.err if code else json.loads(printed.out)

    return run_verb


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("features")
    images, texts = pairs(18_000)
    np.save(folder / "images.npy", images)
    sparse.save_npz(folder / "texts.npz", texts)
    return "--images", str(folder / "images.npy"), "--texts", str(folder / "texts.npz")


def test_fit_and_add(run: Shell, cluster: str, files: tuple[str, ...], tmp_path: Path) -> None:
    wanted = "--mapping", "cca", "--bits", "16", "--no-calibrate", "--param", "max_iter=1"
    for name, more in (("here", ()), ("there", ("--cluster", cluster))):
        run("fit", *files, "-o", tmp_path / f"{name}.cbm", *wanted, *more)
        with killing(1 if more else 0):
            found = run("add", tmp_path / f"{name}.cb", *files, "--model", tmp_path / f"{name}.cbm", *more)
        assert found["added"] == 18_000
    for kind in ("cbm", "cb"):
        assert (tmp_path / f"here.{kind}").read_bytes() == (tmp_path / f"there.{kind}").read_bytes()


def test_a_sample_is_fitted_and_the_rest_coded(
    run: Shell, cluster: str, files: tuple[str, ...], tmp_path: Path
) -> None:
    wanted = "--mapping", "cca", "--bits", "16", "--no-calibrate", "--param", "max_iter=1", "--sample", "9000"
    for name, more in (("here", ()), ("there", ("--cluster", cluster))):
        run("fit", *files, "-o", tmp_path / f"{name}.cbm", "--index", tmp_path / f"{name}.cb", *wanted, *more)
    for kind in ("cbm", "cb"):
        assert (tmp_path / f"here.{kind}").read_bytes() == (tmp_path / f"there.{kind}").read_bytes()


def test_a_missing_cluster_is_said_before_data_are_read(run: Shell, cluster: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.npy"
    asked = "fit", "--images", missing, "--texts", missing, "-o", tmp_path / "model.cbm"
    assert "127.0.0.1:9" in run(*asked, "--cluster", "127.0.0.1:9", code=8)


def test_evaluate(run: Shell, cluster: str, tmp_path: Path) -> None:
    asked = "evaluate", "generated:300", "--methods", "random,cca,cca-pq", "--bits", "16,32", "--seeds", "1"
    run(*asked, "--no-report", "--out", tmp_path / "here")
    run(*asked, "--no-report", "--out", tmp_path / "there", "--cluster", cluster)
    names = [
        sorted(path.name for path in (tmp_path / where / "runs").iterdir()) for where in ("here", "there")
    ]
    assert names[0] == names[1] and len(names[0]) >= 4
    for name in names[0]:
        here, there = (read_result(tmp_path / where / "runs" / name) for where in ("here", "there"))
        assert here.run == there.run and scores(here) == scores(there)


@pytest.fixture(scope="module")
def collection() -> Collection:
    return read_collection("generated:300")


@pytest.fixture(scope="module")
def runs(collection: Collection) -> tuple[Run, ...]:
    """One of random codes, and one of a quantizer."""
    digest = collection_digest(collection)
    asked = RunRequest(
        methods=("random", "cca-pq"), bits=(16,), seeds=(0,), protocols=("A",), similarity=None
    )
    return tuple(plan_runs(asked, collection, digest, read_recorded(collection.name, digest)).runs)


def test_a_run_that_fails_is_told(
    cluster: str, collection: Collection, runs: tuple[Run, ...], tmp_path: Path
) -> None:
    bad = [replace(each, parameters={"nonsense": 1}) if each.method == "cca-pq" else each for each in runs]
    outcome = run_all(bad, collection, tmp_path, cluster=cluster, n_processes=-1)
    assert [each.run.method for each in outcome.failed] == ["cca-pq"]
    assert [each.run.method for each in outcome.results] == ["random"]


def test_a_run_whose_process_dies_stops_no_other(
    cluster: str,
    collection: Collection,
    runs: tuple[Run, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deadly(runner.TrialBench):
        def results(self, job: runner.Job) -> Iterator[Result]:
            if job[0].method == "cca-pq":
                os.kill(os.getpid(), 9)
            return super().results(job)

    monkeypatch.setattr(ray_session, "RETRIES", 0)
    monkeypatch.setattr(runner, "TrialBench", Deadly)
    outcome = run_all(runs, collection, tmp_path, cluster=cluster, n_processes=-1)
    assert [(each.run.method, each.failure.kind) for each in outcome.failed] == [("cca-pq", "TaskDied")]
    assert [each.run.method for each in outcome.results] == ["random"]


def test_pictures_are_refused(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for command in (("fit", tmp_path / "photos"), ("add", tmp_path / "photos.cb", tmp_path / "photos")):
        assert "--cluster" in run(*command, "--cluster", "local", code=2)


def scores(result: Result) -> list[Any]:
    """Everything but how long it took."""
    return [result.scores, result.chance, result.per_query, result.data, result.about]
