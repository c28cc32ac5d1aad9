"""The service under clients: how fast it answers who types, and whether it holds under load.

    python -m benchmarks.service               # about 2 minutes

A million generated images of 4 bytes (random codes of a model that is fitted on generated scenes with the
built-in encoders), each tenth with a payload, behind a real server in a process of its own. First one client
that types captions of other scenes letter by letter, over one connection; then 32 clients at the same time
for 20 seconds. Each client is a process or a thread outside the server. Times are those of the clients, in
milliseconds: the machine is shared by server and clients.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np

from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ, Index
from crossbyte.data.scenes import make_scenes
from crossbyte.encoders.builtin_image import BuiltinImageEncoder
from crossbyte.encoders.builtin_text import BuiltinTextEncoder
from crossbyte.service.server import serve
from crossbyte.service.settings import Settings

N_ITEMS, BITS, N_SCENES = 1_000_000, 32, 400
N_TYPED, N_CLIENTS, SECONDS = 1500, 32, 20
K = 20
TARGET_P95, TARGET_SPREAD = 30.0, 10.0
DECLARED = (200, 503)


class Answer(NamedTuple):
    """The status of an answer, and how long it took."""

    status: int
    seconds: float


def make_index(path: Path, n_items: int = N_ITEMS) -> None:
    """A million images; what they show does not matter for speed."""
    scenes = make_scenes(N_SCENES, seed=0)
    pictures, texts = [scene.pixels for scene in scenes], [scene.captions[0] for scene in scenes]
    image, text = BuiltinImageEncoder.learn(pictures[:100]), BuiltinTextEncoder.learn(texts)
    rows = image.encode(pictures), text.encode(texts)
    model = CMCQ(BITS, mapping="cca", n_components=32, max_iter=3, random_state=0).fit(*rows)
    model.calibrate(*rows, curve=())
    model.attach_encoders(image=image.state, text=text.state)
    codes = np.random.default_rng(0).integers(0, 256, (n_items, BITS // 8), dtype=np.uint8)
    payloads = [
        {"colour": "red", "year": 2000 + row % 20} if row % 10 == 0 else None for row in range(n_items)
    ]
    with Index.create(path, model) as index:
        index.add([f"photos/{row:07d}.jpg" for row in range(n_items)], image_codes=codes, payloads=payloads)


def typed_queries(seed: int) -> list[str]:
    """What a person's box holds after each letter of some captions, from the third letter on."""
    captions = [scene.captions[1] for scene in make_scenes(N_TYPED // 25, seed=seed)]
    return [caption[:end] for caption in captions for end in range(3, min(len(caption), 40) + 1)]


def ask(connection: HTTPConnection, text: str) -> Answer:
    """Ask one query over a connection that stays open."""
    start = time.perf_counter()
    connection.request("GET", f"/v1/search?text={quote(text)}&k={K}")
    response = connection.getresponse()
    response.read()
    return Answer(response.status, time.perf_counter() - start)


def connect(url: str) -> HTTPConnection:
    """Open a connection."""
    return HTTPConnection(urlsplit(url).netloc, timeout=60)


def typing_times(url: str) -> list[Answer]:
    """One client, after a few queries that warm up."""
    connection, texts = connect(url), typed_queries(1)
    for text in texts[:50]:
        ask(connection, text)
    return [ask(connection, text) for text in texts[:N_TYPED]]


def load_times(url: str) -> list[Answer]:
    """All clients at the same time."""
    found: list[Answer] = []
    end = time.monotonic() + SECONDS

    def client(number: int) -> None:
        connection, texts, at = connect(url), typed_queries(2), 37 * number
        while time.monotonic() < end:
            found.append(ask(connection, texts[at % len(texts)]))
            at += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def percentiles(answers: list[Answer]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds."""
    times = 1000 * np.array([answer.seconds for answer in answers if answer.status == 200])
    return {f"p{level}": round(float(np.percentile(times, level)), 2) for level in (50, 95, 99)}


def measure(url: str) -> list[Measurement]:
    """Both measurements; ends if an answer has a status that was not declared."""
    alone = percentiles(typing_times(url))
    answers = load_times(url)
    loaded, statuses = percentiles(answers), Counter(answer.status for answer in answers)
    undeclared = sum(count for status, count in statuses.items() if status not in DECLARED)
    names = f"{N_ITEMS:,} images of {BITS // 8} bytes"
    targets = {"p95": TARGET_P95}
    entries = [
        Measurement(f"one client types, {names}", f"{name}, ms", [value], targets.get(name))
        for name, value in alone.items()
    ]
    system = f"{N_CLIENTS} clients, {SECONDS} s"
    entries += [Measurement(system, f"{name}, ms", [value]) for name, value in loaded.items()]
    entries += [
        Measurement(system, "p99 / p50", [round(loaded["p99"] / loaded["p50"], 2)], TARGET_SPREAD),
        Measurement(system, "answers per second", [round(statuses[200] / SECONDS, 1)]),
        Measurement(system, "told to come back (503)", [float(statuses[503])]),
        Measurement(system, "undeclared errors", [float(undeclared)], 0.0),
    ]
    return entries


def main() -> None:
    """Make the index, serve it, measure, print and keep."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "million.cb"
        make_index(path)
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.service", "--serve", str(path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            entries = measure(server.stdout.readline().strip())
        finally:
            server.terminate()
            server.wait(60)
    print_table("The service", entries)
    settings = {"items": N_ITEMS, "bits": BITS, "k": K, "cores": os.cpu_count()}
    save("service", entries, settings | {"clients": N_CLIENTS, "seconds": SECONDS, "typed": N_TYPED})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Settings(port=0), lambda url: print(url, flush=True))
    else:
        main()
