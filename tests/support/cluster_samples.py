"""Pairs for the tests on a cluster: enough rows for several tasks, few columns."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from scipy import sparse

SECONDS = 60.0


def pairs(n_pairs: int, seed: int = 0) -> tuple[np.ndarray, sparse.csr_matrix]:
    """Dense images (n, 12) and sparse texts (n, 30) that have something in common."""
    rng = np.random.default_rng(seed)
    ways = np.random.default_rng(99)
    common = rng.standard_normal((n_pairs, 5))
    images = common @ ways.standard_normal((5, 12)) + 0.3 * rng.standard_normal((n_pairs, 12))
    texts = common @ ways.standard_normal((5, 30)) + 0.3 * rng.standard_normal((n_pairs, 30))
    return images.astype(np.float32), sparse.csr_matrix(np.maximum(texts - 2, 0).astype(np.float32))


def tasks() -> list[int]:
    """Processes of Ray on this machine that work on a task of ours at this moment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            title = (folder / "cmdline").read_bytes()
        except OSError:  # no process, or one that has just ended
            continue
        if title.startswith(b"ray::crossbyte") and _ancestor(int(folder.name), os.getpid()):
            found.append(int(folder.name))
    return found


def wait_until(seen: Any) -> Any:
    """Ask again and again until the answer is true."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if answer := seen():
            return answer
        time.sleep(0.005)
    raise AssertionError("it never came")


class Killer:
    """Kills workers of Ray that this process has started, in the middle of their tasks."""

    def __init__(self) -> None:
        self.killed = 0

    def kill_one(self) -> None:
        """Kill one that works on a task."""
        os.kill(wait_until(tasks)[0], 9)
        self.killed += 1


@contextmanager
def killing(number: int) -> Iterator[Killer]:
    """Meanwhile, kill so many workers, one after the other."""
    killer = Killer()
    thread = Thread(target=lambda: [killer.kill_one() for _ in range(number)])
    thread.start()
    try:
        yield killer
    finally:
        thread.join()


def _ancestor(process: int, wanted: int) -> bool:
    while process > 1:
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if process == wanted:
            return True
    return False
