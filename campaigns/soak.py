"""Put load on a server and kill it again and again: ``python -m campaigns soak --minutes 60``.

Ninety calls in a hundred search, nine write, one compacts, so many a second as ``--rate`` says: a load that
the server bears, so that it can be seen whether it bears it as well at the end as at the beginning. What was
acknowledged before a kill must be there after it; what was under way may be there or not, as a whole.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from campaigns.runner import Outcome, Unit, add_common_options, run_units
from crossbyte import Index
from support.service_samples import AUTHORISED, TOKEN, sample

_COMPARED = 600.0  # seconds at the beginning and at the end that are compared; less in a short run
WORDS = ("red", "blue", "circle", "hexagon", "large", "small", "square", "green")


def main() -> int:
    """Run for as long as was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds between two kills")
    parser.add_argument("--rate", type=float, default=50.0, help="calls a second")
    parser.add_argument("--seed", type=int, default=0)
    add_common_options(parser)
    given = parser.parse_args()

    def soak() -> Outcome:
        with tempfile.TemporaryDirectory(prefix="crossbyte-soak-") as folder:
            server = Soak(sample(Path(folder)), given.rate, given.seed)
            return server.run(60 * given.minutes, given.kill_every)

    about = f"{given.minutes:g} minutes, {given.rate:g} a second, seed {given.seed}"
    return run_units("soak", [Unit(about, soak)], given)


class Soak:
    """A server that is killed, and what it has acknowledged."""

    def __init__(self, path: Path, rate: float, seed: int) -> None:
        self.path, self.rate, self.rng = path, rate, random.Random(seed)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.known: dict[str, str] = {}  # acknowledged documents and their words
        self.unsure: set[str] = set()  # ids of writes that were under way
        self.counts = {"searches": 0, "writes": 0, "compactions": 0, "kills": 0, "refused": 0}
        self.seconds: list[tuple[float, float]] = []  # when a search was answered, and how long it took
        self.measured: list[tuple[float, float, float]] = []  # when, and memory in MB and descriptors then
        self.failures: list[str] = []

    def run(self, seconds: float, kill_every: float) -> Outcome:
        """Load, kill, look; and once more."""
        began = time.monotonic()
        while time.monotonic() - began < seconds and not self.failures:
            server = self._start()
            try:
                self._load(server, min(kill_every, seconds - (time.monotonic() - began)))
            finally:
                server.send_signal(signal.SIGKILL)
                server.wait()
            self.counts["kills"] += 1
            self._look()
        return Outcome(sum(self.counts.values()), self.failures, self.counts, self._figures())

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "crossbyte", "serve", str(self.path), "--port", str(self.port)]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen(command, env=os.environ | {"CROSSBYTE_TOKEN": TOKEN}, **quiet)
        deadline = time.monotonic() + 120
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=10).status_code == 200:
                    return server
            except httpx.HTTPError:
                if server.poll() is not None or time.monotonic() > deadline:
                    server.kill()
                    raise RuntimeError("the server does not start") from None
            time.sleep(0.1)

    def _load(self, server: subprocess.Popen[bytes], seconds: float) -> None:
        """Call for so many seconds; the last write is under way when it ends.

        A call that is late, because the one before took long, is made at once; those that would be later than
        a second are left out, so that no slow moment is followed by a rush.
        """
        due = time.monotonic()
        end = due + seconds
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=AUTHORISED, timeout=60) as calls:
            while time.monotonic() < end:
                time.sleep(max(0.0, due - time.monotonic()))
                due = max(due + 1 / self.rate, time.monotonic() - 1.0)
                chance = self.rng.random()
                if chance < 0.9:
                    self._search(calls)
                elif chance < 0.99:
                    self._write(calls)
                else:
                    self._answered(calls.post("/v1/compact"), "compactions")
            self._measure(server)
            self._leave_a_write_under_way()

    def _search(self, calls: httpx.Client) -> None:
        began = time.monotonic()
        text = " ".join(self.rng.sample(WORDS, 2))
        answer = calls.get("/v1/search", params={"text": text, "k": 10, "where": "year >= 2003"})
        self.seconds.append((began, time.monotonic() - began))
        self._answered(answer, "searches")

    def _write(self, calls: httpx.Client) -> None:
        if self.known and self.rng.random() < 0.5:
            id = self.rng.choice(sorted(self.known))
            if self._answered(calls.post("/v1/documents/delete", json={"ids": [id]}), "writes"):
                del self.known[id]
            return
        document = self._document()
        body = {"documents": [document], "upsert": True}
        if self._answered(calls.post("/v1/documents", json=body), "writes"):
            self.known[document["id"]] = document["text"]
            self.unsure.discard(document["id"])

    def _document(self) -> dict[str, Any]:
        text = " ".join(self.rng.sample(WORDS, 3))
        id = f"new-{self.rng.randrange(2000)}"
        return {"id": id, "text": text, "payload": {"captions": [text], "year": 2000 + self.rng.randrange(9)}}

    def _answered(self, answer: httpx.Response, kind: str) -> bool:
        if answer.status_code in (429, 503):
            self.counts["refused"] += 1
            return False
        if answer.status_code != 200:
            self.failures.append(f"{answer.request.url}: {answer.status_code} {answer.text[:300]}")
            return False
        self.counts[kind] += 1
        return True

    def _leave_a_write_under_way(self) -> None:
        """Send a write, and do not wait for its answer."""
        document = self._document()
        self.known.pop(document["id"], None)
        self.unsure.add(document["id"])
        try:
            body = {"documents": [document], "upsert": True}
            url = f"http://127.0.0.1:{self.port}/v1/documents"
            httpx.post(url, json=body, headers=AUTHORISED, timeout=self.rng.uniform(0.001, 0.05))
        except httpx.HTTPError:
            pass

    def _measure(self, server: subprocess.Popen[bytes]) -> None:
        status = Path(f"/proc/{server.pid}/status")
        if status.exists():
            line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
            descriptors = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
            self.measured.append((time.monotonic(), int(line.split()[1]) / 1024, descriptors))

    def _look(self) -> None:
        """Open what the kill left: acknowledged documents are there, deleted ones are not."""
        with Index.open(self.path, mode="rw", n_jobs=1) as index:
            index.verify()
            there = {id for id in index.ids() if isinstance(id, str) and id.startswith("new-")}
            for id, text in self.known.items():
                found = index.get(id)
                if found is None or found.payload is None or found.payload["captions"] != [text]:
                    self.failures.append(f"{id} was acknowledged and is not there as it was")
            if strange := there - set(self.known) - self.unsure:
                self.failures.append(f"{sorted(strange)} were deleted, and are there")

    def _figures(self) -> dict[str, float]:
        """How slow searches were at first and at last; memory and descriptors before the kills of then."""
        if not self.seconds or not self.measured:
            return {}
        first, last = self.seconds[0][0], self.seconds[-1][0]
        part = min(_COMPARED, (last - first) / 2)
        times, durations = np.array(self.seconds).T
        slow = [
            1000 * float(np.percentile(durations[chosen], 99))
            for chosen in (times <= first + part, times >= last - part)
        ]
        when, memory, descriptors = np.array(self.measured).T
        early = when <= max(first + part, when[0])
        late = when >= last - part
        return {
            "calls a second": round((sum(self.counts.values()) - self.counts["kills"]) / (last - first), 1),
            "minutes compared": round(part / 60, 2),
            "p99 of searches in the first (ms)": round(slow[0], 2),
            "in the last (ms)": round(slow[1], 2),
            "ratio": round(slow[1] / slow[0], 3),
            "most memory before the first kills (MB)": round(float(memory[early].max()), 1),
            "before the last (MB)": round(float(memory[late].max()), 1),
            "most descriptors before the first kills": int(descriptors[early].max()),
            "before the last": int(descriptors[late].max()),
            "documents at the end": len(self.known),
        }


if __name__ == "__main__":
    raise SystemExit(main())
