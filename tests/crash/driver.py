"""Kill a child at call 1, 2, 3, … of a workload: before, half-way through and after it; see what is left.

Run under the shim: ``LD_PRELOAD=shim.so python -m crash.driver FOLDER WORKLOAD …``; prints one JSON report.
Everything is imported once; a point is two forks, one to be killed and one to look.

What this can and cannot show: a killed process loses nothing that it has handed to the system. So the points
test the order and the atomicity of what is done, not whether it was forced to the disk: without a single
fsync all of them pass. That every fsync is made where it is needed, power.py shows.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crossbyte.errors import IndexFileError
from crossbyte.index import merging
from support.index_twin import expected_searches

from . import faults
from .check import Judged, check_handle, check_survival
from .shim import FAIL, WHEN, NoShim, Shim
from .workloads import WORKLOADS, Session, Workload

TIME_LIMIT = 300  # seconds for one child; a child takes milliseconds, but of an idle machine


@dataclass
class Report:
    """How often a process died, of what, and what was wrong afterwards."""

    points: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        return json.dumps(vars(self))


def in_child(work: Callable[[], None], errors: Path, kill_after: float | None = None) -> int:
    """Run ``work`` in a fork; give its exit code. What it raises is written to ``errors``."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(TIME_LIMIT)
            work()
            status = 0
        except BaseException:
            errors.write_text(traceback.format_exc())
        finally:
            os._exit(status)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)  # it has not been waited for, so the number is still its own
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Driver:
    """Runs the points of one workload in a scratch folder."""

    recovers = True  # opening what was left may have to write

    def __init__(self, scratch: Path, name: str, shim: Shim | NoShim) -> None:
        self.scratch, self.name = scratch, name
        self.shim, self.report = shim, Report()
        self.template, self.folder = scratch / "template", scratch / "work"
        self.ack, self.errors = scratch / "acknowledged", scratch / "errors"
        self.judged = Judged(scratch / "judged")
        self.template.mkdir(parents=True)
        merging.MERGED_AT_ONCE = self.merged_at_once
        self._must(self._prepare, "preparing the workload")
        self._look_ahead()
        gc.freeze()  # else the collector of every child would write to, and so copy, all that is here

    @property
    def workload(self) -> Workload:
        return WORKLOADS[self.name]

    @property
    def merged_at_once(self) -> int:
        return self.workload.merged_at_once

    def _look_ahead(self) -> None:
        """Compute what is expected here, so that no child has to."""
        for twin in self.workload.states:
            if twin is not None:
                expected_searches(twin)

    @property
    def n_steps(self) -> int:
        return len(self.workload.steps)

    @contextmanager
    def at_work(self) -> Iterator[Callable[[int], None]]:
        """Give what takes step n in the folder; a handle is closed at the end."""
        session = Session(self.folder)
        yield lambda step: session.take(*self.workload.steps[step])
        session.close()

    def _must(self, work: Callable[[], None], what: str) -> None:
        if in_child(work, self.errors) != 0:
            raise RuntimeError(f"{what} failed:\n{self.errors.read_text()}")

    def _prepare(self) -> None:
        session = Session(self.template)
        for step in self.workload.before:
            session.take(*step)
        session.close()

    # One point

    def play(
        self, at: int, action: int, error: int = 0, for_ever: bool = False, kill_after: float | None = None
    ) -> int:
        """Take the steps in a child that dies (or whose call fails) at call ``at``; gives its exit code."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        self.ack.write_bytes(b"")
        return in_child(lambda: self._take_steps(at, action, error, for_ever), self.errors, kill_after)

    def _take_steps(self, at: int, action: int, error: int, for_ever: bool) -> None:
        session = Session(self.folder)
        with self.ack.open("ab", buffering=0) as log:
            self.shim.arm(self.folder, at, action, error, for_ever)
            try:
                for step in self.workload.steps:
                    session.take(*step)
                    log.write(b".")
                    os.fsync(log.fileno())
                session.close()
            except IndexFileError:
                self.shim.disarm()  # the disk works again
                if session.index is not None:
                    check_handle(session.index, self.workload, self.acknowledged())
                raise

    def acknowledged(self) -> int:
        return self.ack.stat().st_size

    def acknowledge(self, steps: int) -> None:
        """Say how many steps were acknowledged, of a state that was not made by taking them."""
        self.ack.write_bytes(b"." * steps)

    def look(self, acknowledged: int) -> None:
        """Raise AssertionError unless everything acknowledged is in the folder."""
        check_survival(self.folder, self.workload, acknowledged, self.judged)

    def survived(self, point: str) -> None:
        """Look, in another child, whether everything acknowledged is there."""
        acknowledged = self.acknowledged()
        code = in_child(lambda: self.look(acknowledged), self.errors)
        self.judged.learn()
        if code != 0:
            text = self.errors.read_text() if code == 1 else f"the check died of signal {-code}"
            self.report.failures.append(f"{self.name} {point}, {acknowledged} acknowledged: {text}")

    # All points

    def kill_everywhere(self, stride: int) -> Iterator[tuple[str, str, int]]:
        """Kill at every ``stride``-th call; yields after each kill, before anybody has looked."""
        for when, action in WHEN.items():
            at = 1
            while (code := self.play(at, action)) != 0:
                kind = self.shim.kind()
                if code != -signal.SIGKILL:
                    raise RuntimeError(f"{self.name} {when} call {at}: exit code {code}\n{self._errors()}")
                if when != "half" or kind == "write":
                    yield when, kind, at
                at += stride

    def _errors(self) -> str:
        return self.errors.read_text() if self.errors.exists() else ""

    def kill(self, stride: int) -> None:
        for when, kind, at in self.kill_everywhere(stride):
            self.count(f"{when} {kind}")
            self.survived(f"{when} call {at} ({kind})")

    def count(self, kind: str) -> None:
        self.report.points += 1
        self.report.kinds[kind] += 1

    def kill_at_times(self, points: int) -> None:
        """Kill from outside, at times spread over a run: needs no shim, and hits where it hits."""
        began = time.monotonic()
        if self.play(0, 0) != 0:
            raise RuntimeError(f"{self.name} fails by itself:\n{self._errors()}")
        duration = time.monotonic() - began
        for point in range(points):
            delay = duration * (point + 0.5) / points
            self.play(0, 0, kill_after=delay)
            self.count("outside")
            self.survived(f"killed after {delay:.4f} s")

    def kill_recovery(self, stride: int, at_most: int) -> None:
        """Kill, then kill the recovery from that too, at each of its calls; a state is taken once."""
        seen: set[str] = set()
        for when, kind, at in self.kill_everywhere(stride):
            state = _digest(self.folder)
            if state in seen or self.report.points >= at_most or len(list(self.folder.iterdir())) < 2:
                continue
            seen.add(state)
            Recovery(self).kill(f"{when} call {at} ({kind})")

    def fail_everywhere(self, stride: int, errors: list[int]) -> None:
        """Let each call fail, once and for ever: a typed error or success, and nothing lost."""
        for error in errors:
            for for_ever in (False, True):
                at = 1
                while True:
                    code = self.play(at, FAIL, error, for_ever)
                    if self.shim.calls() < at:
                        break
                    point = (
                        f"{os.strerror(error)} {'from' if for_ever else 'at'} call {at} ({self.shim.kind()})"
                    )
                    self._judge_failure(code, point)
                    at += stride

    def _judge_failure(self, code: int, point: str) -> None:
        self.count(f"fail {self.shim.kind()}")
        text = self._errors() if code == 1 else ""
        last = text.strip().splitlines()[-1] if text else ""
        name = last.split(":")[0].rsplit(".", 1)[-1]
        self.report.outcomes[name or f"exit {code}"] += 1
        if code != 0 and name not in {error.__name__ for error in _typed()}:
            self.report.failures.append(f"{self.name} {point}: no typed error but exit code {code}\n{text}")
        self.survived(point)


class Recovery:
    """Opens what a kill left, and dies of it, at call 1, 2, 3, …"""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.wreck = driver, driver.scratch / "wreck"
        shutil.rmtree(self.wreck, ignore_errors=True)
        shutil.copytree(driver.folder, self.wreck)

    def kill(self, point: str) -> None:
        driver = self.driver
        for mode in ("open", "read"):
            for when, action in WHEN.items():
                at = 1
                while self._open(mode, at, action) == -signal.SIGKILL:
                    kind = driver.shim.kind()
                    if when != "half" or kind == "write":
                        driver.count(f"recovery {when} {kind}")
                        driver.survived(f"{point}, then {mode} {when} call {at} ({kind})")
                    at += 1

    def _open(self, mode: str, at: int, action: int) -> int:
        driver = self.driver
        shutil.rmtree(driver.folder)
        shutil.copytree(self.wreck, driver.folder)
        return in_child(lambda: self._open_armed(mode, at, action), driver.errors)

    def _open_armed(self, mode: str, at: int, action: int) -> None:
        session = Session(self.driver.folder)
        self.driver.shim.arm(self.driver.folder, at, action)
        session.take(mode, {})
        session.close()


def _typed() -> list[type]:
    return [IndexFileError, *IndexFileError.__subclasses__()]


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--mode", choices=("kill", "recovery", "fail", "timed"), default="kill")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--at-most", type=int, default=10**9)
    parser.add_argument("--errors", type=int, nargs="*", default=[])
    parser.add_argument("--fault", choices=sorted(faults.FAULTS))
    given = parser.parse_args(arguments)
    if given.fault:
        faults.FAULTS[given.fault].plant()
    shim = NoShim() if given.mode == "timed" else Shim()
    driver = Driver(Path(os.path.realpath(given.scratch)), given.workload, shim)
    if given.mode == "kill":
        driver.kill(given.stride)
    elif given.mode == "recovery":
        driver.kill_recovery(given.stride, given.at_most)
    elif given.mode == "timed":
        driver.kill_at_times(given.at_most)
    else:
        driver.fail_everywhere(given.stride, given.errors)
    sys.stdout.write(driver.report.as_json())


if __name__ == "__main__":
    main(sys.argv[1:])
