"""The service under clients: how fast it answers who types, and whether it holds under load.

    python -m benchmarks.service               # about 6 minutes
    python -m benchmarks.service FOLDER        # keeps the indexes there for the next time: 1 minute

Two indexes, each behind a real server in a process of its own. The demo's: all icons of Font Awesome with
their words, as ``crossbyte demo`` makes it, so that a text is searched by words and by vectors; asked with
the captions of the icons that were kept away. And a million generated images of 4 bytes (random codes of a
model that is fitted on generated scenes with the built-in encoders), each tenth with a payload, which keep no
words; asked with captions of other scenes. First one client that types letter by letter, over one connection;
then 16 clients, or 32, each of which asks again as soon as it is answered, for 10 or 20 seconds. All clients
are one process with one thread, which takes a tenth of a core. Times are those of the clients, in
milliseconds: the machine is shared by server and clients.
"""

from __future__ import annotations

import csv
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np

from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ, Index
from crossbyte.data.scenes import make_scenes
from crossbyte.demo.demo import Choice, run_demo
from crossbyte.encoders.builtin_image import BuiltinImageEncoder
from crossbyte.encoders.builtin_text import BuiltinTextEncoder
from crossbyte.service.server import serve
from crossbyte.service.settings import Settings

N_ITEMS, BITS, N_SCENES = 1_000_000, 32, 400
N_TYPED = 1500
K = 20
WARM_UP = 50
DECLARED = (200, 503)


class Load(NamedTuple):
    """What an index is asked, and what is wanted of the answers.

    Attributes
    ----------
    name : str
    n_clients : int
    seconds : float
    p50 : float
        Milliseconds at most, of one client.
    rate : float
        Answers per second at least, of all clients.
    """

    name: str
    n_clients: int
    seconds: float
    p50: float
    rate: float


TARGET_P95, TARGET_SPREAD = 30.0, 3.0


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


def demo_queries(folder: Path) -> list[str]:
    """What a person's box holds after each letter of the captions of icons that the index has never seen."""
    with (folder / "captions.csv").open(encoding="utf-8") as stream:
        captions = [row["caption"] for row in csv.DictReader(stream)]
    return [caption[:end] for caption in captions for end in range(3, min(len(caption), 40) + 1)]


class Client:
    """One connection, which stays open.

    Parameters
    ----------
    url : str
    requests : sequence of bytes
        Asked one after the other, from a place on, and again from the first.
    start : int
    """

    def __init__(self, url: str, requests: Sequence[bytes], start: int) -> None:
        host = urlsplit(url)
        self.connection = socket.create_connection((host.hostname, host.port), timeout=60)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests, self._next = requests, start % len(requests)
        self._sent, self._received = 0.0, b""

    def ask(self) -> None:
        """Send the next request."""
        request = self._requests[self._next]
        self._next = (self._next + 1) % len(self._requests)
        self._received, self._sent = b"", time.perf_counter()
        self.connection.sendall(request)

    def take(self) -> Answer | None:
        """Take what has arrived; None as long as there is more to come."""
        self._received += self.connection.recv(2**16)
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark:
            return None
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return None
        return Answer(int(head[9:12]), time.perf_counter() - self._sent)


def make_requests(url: str, texts: Sequence[str]) -> list[bytes]:
    """Write the requests of some texts."""
    host = urlsplit(url).netloc
    return [
        f"GET /v1/search?text={quote(text)}&k={K} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for text in texts
    ]


def type_alone(url: str, requests: Sequence[bytes]) -> list[Answer]:
    """One client, after a few queries that warm up."""
    client = Client(url, requests, 0)
    answers: list[Answer] = []
    while len(answers) < WARM_UP + N_TYPED:
        client.ask()
        while (answer := client.take()) is None:
            pass
        answers.append(answer)
    client.connection.close()
    return answers[WARM_UP:]


def ask_together(url: str, requests: Sequence[bytes], load: Load) -> list[Answer]:
    """All clients at the same time."""
    answers: list[Answer] = []
    end = time.perf_counter() + load.seconds
    with selectors.DefaultSelector() as selector:
        for number in range(load.n_clients):
            client = Client(url, requests, 37 * number)
            selector.register(client.connection, selectors.EVENT_READ, client)
            client.ask()
        while selector.get_map():
            for key, _ in selector.select():
                client = key.data
                if (answer := client.take()) is None:
                    continue
                answers.append(answer)
                if time.perf_counter() < end:
                    client.ask()
                else:
                    selector.unregister(client.connection)
                    client.connection.close()
    return answers


def percentiles(answers: list[Answer]) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds."""
    times = 1000 * np.array([answer.seconds for answer in answers if answer.status == 200])
    return {f"p{level}": round(float(np.percentile(times, level)), 2) for level in (50, 95, 99)}


def measure(url: str, texts: Sequence[str], load: Load) -> list[Measurement]:
    """Both measurements; ends if an answer has a status that was not declared."""
    requests = make_requests(url, texts)
    alone = percentiles(type_alone(url, requests))
    answers = ask_together(url, requests, load)
    loaded, statuses = percentiles(answers), Counter(answer.status for answer in answers)
    undeclared = sum(count for status, count in statuses.items() if status not in DECLARED)
    targets = {"p50": load.p50, "p95": TARGET_P95}
    entries = [
        Measurement(f"one client types, {load.name}", f"{name}, ms", [value], targets.get(name))
        for name, value in alone.items()
    ]
    system = f"{load.n_clients} clients, {load.seconds:g} s, {load.name}"
    entries += [Measurement(system, f"{name}, ms", [value]) for name, value in loaded.items()]
    return [
        *entries,
        Measurement(system, "p99 / p50", [round(loaded["p99"] / loaded["p50"], 2)], TARGET_SPREAD),
        Measurement(system, "answers per second", [round(statuses[200] / load.seconds, 1)], load.rate),
        Measurement(system, "told to come back (503)", [float(statuses[503])]),
        Measurement(system, "undeclared errors", [float(undeclared)], 0.0),
    ]


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """Serve an index in a process of its own; gives the URL."""
    command = [sys.executable, "-m", "benchmarks.service", "--serve", str(path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait(60)


def measure_demo(folder: Path) -> list[Measurement]:
    """The index of the demo."""
    choice = Choice("icons", folder / "demo")
    if not choice.index.exists():
        run_demo(choice)
    with Index.open(choice.index) as index:
        name = f"the demo's {len(index):,} documents"
    with serving(choice.index) as url:
        return measure(url, demo_queries(choice.unseen), Load(name, 16, 10.0, 2.0, 1000.0))


def measure_million(folder: Path) -> list[Measurement]:
    """The index of a million images."""
    path = folder / "million.cb"
    if not path.exists():
        make_index(path)
    name = f"{N_ITEMS:,} images of {BITS // 8} bytes"
    with serving(path) as url:
        return measure(url, typed_queries(1), Load(name, 32, 20.0, 3.0, 600.0))


def main(folder: Path) -> None:
    """Make the indexes where they are not there yet, serve them, measure, print and keep."""
    entries = measure_demo(folder) + measure_million(folder)
    print_table("The service", entries)
    settings = {"items": N_ITEMS, "bits": BITS, "k": K, "cores": os.cpu_count(), "typed": N_TYPED}
    save("service", entries, settings)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Settings(port=0), lambda url: print(url, flush=True))
    elif sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as temporary:
            main(Path(temporary))
