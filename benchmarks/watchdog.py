"""The service under attack: a watchdog asks /healthz while clients do their worst.

    python -m benchmarks.watchdog              # about 4 minutes: every attack for 15 seconds
    python -m benchmarks.watchdog --seconds 3  # a short look; keeps nothing

Every attack meets a server of its own, in a process of its own, whose answers to ``GET /healthz`` are timed
on connections of their own, 20 each second. Its memory is that of the process and its children, its
descriptors those of the process, its log what it wrote to stderr. The attacker is a third process on the same
machine, so that the three share its cores: worse than what a client over a network can do.

The budgets are those of docs/service.md. The exit code is 1 where one is passed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.tables import Measurement, print_table, save

SECONDS = 15.0
N_DESCRIPTORS, N_SCARCE = 1024, 128
MIB = 2**20


class Budget(NamedTuple):
    """What an attack may cost: docs/service.md."""

    healthz_seconds: float = 1.0
    rss_mib: float = 1024.0
    descriptors: float = 640.0
    log_kib: float = 64.0


class Cost(NamedTuple):
    """What an attack did cost, and how often the watchdog was not answered."""

    healthz_seconds: float
    rss_mib: float
    descriptors: float
    log_kib: float
    n_asked: int
    n_unanswered: int


# Attacks: what runs again and again, in each of some threads, until the time is over


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=10)


def _send_all(url: str, head: bytes, again: bytes) -> None:
    """Send a head, and then the same bytes until the server hangs up."""
    with _connect(url) as own:
        own.sendall(head)
        while True:
            own.sendall(again)


def _head(method: str, path: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more]
    return "\r\n".join([*lines, "", ""]).encode()


CRUMBS = b"1\r\n \r\n" * 20_000


def crumbs_to_get(url: str) -> None:
    """Chunks of one byte behind a GET."""
    _send_all(url, _head("GET", "/healthz", "Transfer-Encoding: chunked"), CRUMBS)


def crumbs_to_post(url: str) -> None:
    """Chunks of one byte behind a POST."""
    _send_all(url, _head("POST", "/v1/search", "Transfer-Encoding: chunked"), CRUMBS)


def heads_of_many_lines(url: str) -> None:
    """Heads of 24,000 lines."""
    with _connect(url) as own:
        own.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 24_000 + b"\r\n")
        own.recv(4096)


def no_http(url: str) -> None:
    """Bytes that are no HTTP, and chunks that are none."""
    for data in (b"\x00\r\n\r\n", _head("POST", "/v1/search", "Transfer-Encoding: chunked") + b"zz\r\n"):
        with _connect(url) as own:
            own.sendall(data)
            own.recv(4096)


def _trickle(url: str, first: bytes) -> None:
    """Send a byte each half second."""
    with _connect(url) as own:
        own.sendall(first)
        while True:
            time.sleep(0.5)
            own.sendall(b"a")


def slow_heads(url: str) -> None:
    """Heads that come byte by byte."""
    _trickle(url, b"GET /healthz?x=")


def slow_bodies(url: str) -> None:
    """Bodies that come byte by byte."""
    _trickle(url, _head("POST", "/v1/search", "Content-Length: 1000000") + b'{"')


def idle_sockets(url: str) -> None:
    """Connections that say nothing."""
    with _connect(url) as own:
        own.settimeout(60)
        own.recv(1)


def answers_never_read(url: str) -> None:
    """Requests one after the other, whose answers are not read."""
    _send_all(url, b"", _head("GET", "/v1/documents?limit=500") * 100)


def _post(url: str, path: str, body: bytes, **headers: str) -> None:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("POST", path, body, headers)
        connection.getresponse().read()
    finally:
        connection.close()


LARGE_JSON = b'{"text": "red", "x": [' + b"0.12," * 1_600_000 + b"1]}"  # 8 MB


def large_json(url: str) -> None:
    """8 MB of JSON."""
    _post(url, "/v1/search", LARGE_JSON)


def nested_json(url: str) -> None:
    """Two million brackets."""
    _post(url, "/v1/search", b'{"x": [' + b"[]," * 690_000 + b"1]}")


def held_bodies(url: str) -> None:
    """30 MiB behind a GET, never ended."""
    with _connect(url) as own:
        own.sendall(_head("GET", "/healthz", f"Content-Length: {31 * MIB}"))
        for _ in range(30):
            own.sendall(bytes(MIB))
        own.recv(4096)
        time.sleep(5)


def half_bodies(url: str) -> None:
    """30 MiB of 31, and then nothing."""
    with _connect(url) as own:
        own.sendall(_head("POST", "/v1/search/image", f"Content-Length: {31 * MIB}"))
        for _ in range(30):
            own.sendall(bytes(MIB))
        own.settimeout(10)
        own.recv(4096)


def _bomb() -> bytes:
    """A PNG of 20,000 times 20,000 pixels in some kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    packer, rows = zlib.compressobj(9), io.BytesIO()
    for _ in range(20_000):
        rows.write(packer.compress(bytes(2501)))
    rows.write(packer.flush())
    size = (20_000).to_bytes(4, "big")
    head = chunk(b"IHDR", size + size + b"\x01\x00\x00\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows.getvalue()) + chunk(b"IEND", b"")


BOMB = _bomb()


def upload_bombs(url: str) -> None:
    """Pictures of some kilobytes that unpack to 400 million pixels."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + BOMB + b"\r\n--b--\r\n"
    )
    _post(url, "/v1/search/image", body, **{"Content-Type": "multipart/form-data; boundary=b"})


def searches(url: str) -> None:
    """Searches in words, over one connection."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    with suppress(OSError, HTTPException):
        while True:
            connection.request("GET", "/v1/search?text=a%20red%20circle&k=20")
            connection.getresponse().read()
    connection.close()


class Attack(NamedTuple):
    """An attack, how many do it at the same time, and the limit of descriptors of its server."""

    run: Callable[[str], None]
    n_threads: int
    n_descriptors: int = N_DESCRIPTORS


ATTACKS = {
    "nothing": Attack(lambda url: time.sleep(0.1), 1),
    "tiny chunks behind GET": Attack(crumbs_to_get, 16),
    "tiny chunks behind POST": Attack(crumbs_to_post, 16),
    "heads of 24,000 lines": Attack(heads_of_many_lines, 16),
    "no HTTP": Attack(no_http, 16),
    "400 slow heads": Attack(slow_heads, 400),
    "400 slow bodies": Attack(slow_bodies, 400),
    "400 slow bodies, 128 descriptors": Attack(slow_bodies, 400, N_SCARCE),
    "400 idle sockets, 128 descriptors": Attack(idle_sockets, 400, N_SCARCE),
    "32 clients that read no answer": Attack(answers_never_read, 32),
    "24 × 8 MB of JSON": Attack(large_json, 24),
    "8 × two million brackets": Attack(nested_json, 8),
    "24 × 30 MiB behind GET": Attack(held_bodies, 24),
    "24 × 30 of 31 MiB behind POST": Attack(half_bodies, 24),
    "16 × pictures that are bombs": Attack(upload_bombs, 16),
    "256 clients that search": Attack(searches, 256),
}


def attack(name: str, url: str, seconds: float) -> None:
    """Run an attack in threads of this process, which then ends with all of them."""
    end = time.monotonic() + seconds

    def again() -> None:
        while time.monotonic() < end:
            try:
                ATTACKS[name].run(url)
            except (OSError, HTTPException):
                time.sleep(0.01)

    for _ in range(ATTACKS[name].n_threads):
        threading.Thread(target=again, daemon=True).start()
    time.sleep(seconds)
    os._exit(0)


# The watchdog


@contextmanager
def serving(index: Path, n_descriptors: int, log: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its URL and process id."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_descriptors, n_descriptors))

    command = [sys.executable, "-m", "benchmarks.watchdog", "--serve", str(index)]
    with log.open("wb") as stream:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, preexec_fn=limit)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip(), server.pid
    finally:
        server.kill()
        server.wait(60)
        server.stdout.close()


def measure(name: str, index: Path, seconds: float) -> Cost:
    """Let an attack run for a while against a server of its own, and watch."""
    log = index.with_suffix(".log")
    with serving(index, ATTACKS[name].n_descriptors, log) as (url, pid):
        _ask_health(url)
        command = [sys.executable, "-m", "benchmarks.watchdog", "--attack", name, url, str(seconds)]
        attacker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        times, rss, descriptors, n_unanswered = [], 0.0, 0, 0
        try:
            end = time.monotonic() + seconds + 5.0
            while attacker.poll() is None and time.monotonic() < end:
                answered = _ask_health(url)
                times.append(10.0 if answered is None else answered)
                n_unanswered += answered is None
                rss = max(rss, _measure_rss(pid))
                descriptors = max(descriptors, len(os.listdir(f"/proc/{pid}/fd")))
                time.sleep(0.05)
        finally:
            attacker.kill()
            attacker.wait(60)
    return Cost(max(times), rss, descriptors, log.stat().st_size / 1024, len(times), n_unanswered)


def _ask_health(url: str) -> float | None:
    """Ask over a connection of its own; seconds until the answer, or None."""
    start = time.perf_counter()
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", "/healthz")
        fine = connection.getresponse().status == 200
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return time.perf_counter() - start if fine else None


def _measure_rss(pid: int) -> float:
    """Measure a process and its children in MiB."""
    pages = 0
    for each in [pid, *_children(pid)]:
        with suppress(OSError):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        found = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in found for child in file.read_text().split()]
    return []


def passes(cost: Cost, budget: Budget) -> bool:
    """Tell whether everything is within its budget."""
    fine = all(found <= most for found, most in zip(cost, budget, strict=False))
    return fine and cost.n_unanswered == 0


def describe(name: str, cost: Cost, budget: Budget) -> list[Measurement]:
    """Make the lines of one attack."""
    scores = ("worst /healthz, ms", "memory, MiB", "descriptors", "log, KiB")
    values = (1000 * cost.healthz_seconds, *cost[1:4])
    targets = (1000 * budget.healthz_seconds, *budget[1:])
    entries = [
        Measurement(name, score, [round(value, 1)], target)
        for score, value, target in zip(scores, values, targets, strict=True)
    ]
    return [*entries, Measurement(name, "unanswered", [float(cost.n_unanswered)], 0.0)]


def main() -> int:
    """Attack, print one table, and keep it where the time is the usual one."""
    from benchmarks import service

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="may be repeated")
    chosen = parser.parse_args()
    entries, budget, failed = [], Budget(), []
    with TemporaryDirectory() as folder:
        index = Path(folder) / "small.cb"
        service.make_index(index, n_items=100_000)
        for name in chosen.only or ATTACKS:
            cost = measure(name, index, chosen.seconds)
            entries += describe(name, cost, budget)
            failed += [] if passes(cost, budget) else [name]
            print(json.dumps({"attack": name} | cost._asdict(), ensure_ascii=False), flush=True)
    print_table("The service under attack", entries)
    if chosen.seconds == SECONDS and not chosen.only:
        settings = {"seconds": SECONDS, "items": 100_000, "cores": os.cpu_count()}
        save("watchdog", entries, settings | {"descriptors": N_DESCRIPTORS, "scarce": N_SCARCE})
    if failed:
        print(f"over budget: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        from crossbyte.service.server import serve
        from crossbyte.service.settings import Settings

        serve(sys.argv[2], Settings(port=0), lambda url: print(url, flush=True))
    elif sys.argv[1:2] == ["--attack"]:
        attack(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        raise SystemExit(main())
