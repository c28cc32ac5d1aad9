"""A cluster that is not there, dies in the middle, or is left by Ctrl-C: a clear error, all else whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbyte import Index
from crossbyte.compute import ray_session
from crossbyte.errors import ClusterError
from support.cluster_samples import wait_until
from support.paths import with_tests

SECONDS = 120.0  # after which a process that should have ended hangs
ENDED_BY_RAY = "The connection to the plasma store is failed. Terminate the process."

LONG_WORK = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also as a job in the background
from crossbyte.compute.ray_workers import RayWorkers

def main(address, folder):
    def work(number):
        pathlib.Path(folder, str(os.getpid())).touch()
        time.sleep(3600)

    with RayWorkers(address, 2) as workers:
        list(workers.map(work, range(4)))

main(*sys.argv[1:])
"""


@pytest.mark.parametrize("work, part", [("fit", "gcs_server"), ("add", "raylet")])
def test_a_cluster_that_dies_changes_nothing(tmp_path: Path, work: str, part: str) -> None:
    script = [sys.executable, "-m", "support.cluster_victim", work, part, str(tmp_path / "index.cb")]
    ended, logs = _run_victim(script)
    with Index.open(tmp_path / "index.cb") as left:
        left.verify()
        assert len(left) in (500, 501)
    # Ray itself ends a process that touches it within milliseconds of the death of its own part here.
    if part == "raylet" and ended.returncode == 1 and ENDED_BY_RAY in logs:
        assert "Traceback" not in ended.stderr
        return
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stdout.splitlines() if "raylet" not in line and "state-dump" not in line]
    assert [line for line in said if "ClusterError" in line or line in ("finished", "changed")] == [
        line
        for line in said
        if line.startswith("ClusterError: the Ray started here was lost in the middle (")
    ]
    assert said[-3:] == ["unchanged", "usable 1 500", "left"]


def _run_victim(script: list[str]) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a script to its end; give also what Ray wrote about it into its logs."""
    with subprocess.Popen(
        script, env=with_tests(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    folder = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray")
    logs = folder.glob(f"session_*/logs/python-core-driver-*_{process.pid}.log")
    ended = subprocess.CompletedProcess(script, process.returncode, *said)
    return ended, "".join(path.read_text(errors="replace") for path in logs)


def test_a_lost_machine_is_made_up_for() -> None:
    script = [sys.executable, "-m", "support.cluster_machines"]
    environment = with_tests(RAY_USAGE_STATS_ENABLED="0")
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stderr
    assert "equal True" in ended.stdout.splitlines()


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address where somebody listens, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_wrong_address_is_refused_soon(deaf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "_SECONDS_TO_CONNECT", 5.0)
    for address, why in (
        ("127.0.0.1:9", "Connection refused"),
        ("nobody.invalid:6379", "nobody.invalid:6379: "),
        ("127.0.0.1:99999", "99999"),
        (deaf, "no answer in 5 seconds"),
    ):
        with pytest.raises(
            ClusterError, match=f"^cluster: expected a Ray cluster at {address}, got none"
        ) as caught:
            ray_session._probe_cluster(address)
        assert why in str(caught.value)
        assert "`ray start --head`" in str(caught.value)


def test_a_wrong_token_is_told(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "not the one that Ray made for the cluster")
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "1")  # it asks again 20 times, a second each
    with pytest.raises(
        ClusterError, match=f"^cluster: the Ray cluster at {address} did not let us in"
    ) as caught:
        ray_session._probe_cluster(address)
    assert "Authentication token is missing or incorrect); set RAY_AUTH_MODE=token" in str(caught.value)


def test_the_command_line_ends_with_its_own_code(tmp_path: Path) -> None:
    arguments = [*_features(tmp_path), "-o", str(tmp_path / "model.cbm"), "--cluster", "127.0.0.1:9", "-q"]
    command = [sys.executable, "-m", "crossbyte", "fit", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 8, ended.stderr
    assert ended.stderr.splitlines() == [
        "crossbyte: --cluster: expected a Ray cluster at 127.0.0.1:9, got none "
        "(127.0.0.1:9: Connection refused)",
        "  start one with `ray start --head`, join this machine to it, or give 'local'",
    ]
    assert not (tmp_path / "model.cbm").exists()


@pytest.mark.parametrize("where", ["local", "there"])
def test_ctrl_c_ends_the_tasks_and_leaves_ray(cluster: str, tmp_path: Path, where: str) -> None:
    import ray

    address = "local" if where == "local" else ray.get_runtime_context().gcs_address
    before = len([node for node in ray.nodes() if node["Alive"]])
    command = [sys.executable, "-c", LONG_WORK, address, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in said
    wait_until(lambda: not any(map(_is_working, tmp_path.iterdir())))
    assert len([node for node in ray.nodes() if node["Alive"]]) == before


def _is_working(mark: Path) -> bool:
    """Whether the worker that left this mark is still at our task."""
    try:
        return Path(f"/proc/{mark.name}/cmdline").read_bytes().startswith(b"ray::crossbyte")
    except OSError:
        return False


def _features(folder: Path) -> list[str]:
    import numpy as np

    rows = np.random.default_rng(0).standard_normal((100, 8)).astype(np.float32)
    np.save(folder / "a.npy", rows)
    np.save(folder / "b.npy", rows[:, ::-1])
    return ["--images", str(folder / "a.npy"), "--texts", str(folder / "b.npy")]
