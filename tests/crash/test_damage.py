"""Damaged index files: noticed before anybody is given a wrong answer, bit by bit and cut by cut.

Each case runs in a child process (``crash/damage.py``), so that a crash or a hang is seen for what it is.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.damage import answers, judge
from crash.shim import environment
from crossbyte.errors import CrossbyteError
from crossbyte.index.index import Index
from crossbyte.index.storage import records as store_reading
from crossbyte.index.storage import store
from support.index_twin import features, small_model

PROCESSES = 2


def make_small_index(path: Path) -> None:
    """Pairs and single sides, payloads, groups, a deletion and an update, in as few bytes as possible."""
    images, texts = features(6, seed=3)
    codes = np.arange(10, 20, dtype=np.uint8)[:, None]
    with Index.create(path, small_model(8, n_components=1), n_jobs=1) as index:
        payloads = [{"n": i, "word": "ab"[i % 2]} for i in range(3)]
        index.add(
            ["a", "b", "c"], images=images[:3], texts=texts[:3], payloads=payloads, groups=["g", "g", "h"]
        )
        index.add(["d", "e"], images=images[3:5], payloads=[{"n": 3}, {}])
        index.add(["f"], texts=texts[5:])
        index.upsert(list("fghijklmno"), text_codes=codes)
        index.delete(["b"])
        index.update_payloads(["c"], [{"n": 7, "word": "new"}])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "small.cb"
    make_small_index(path)
    assert path.stat().st_size <= 65536
    return path


def examine(path: Path, way: str, start: int, stop: int, step: int) -> dict[str, Any]:
    """Judge the cases of a range in a child; a crash or a hang is told with its case."""
    command = [sys.executable, "-m", "crash.damage", str(path), way, *map(str, (start, stop, step))]
    done = subprocess.run(command, env=environment(None), capture_output=True, text=True, timeout=1800)
    case = path.with_name(f"{path.name}.case.{start}")
    at = case.read_text() if case.exists() else "start"
    assert done.returncode == 0, f"{way} {at}: the child ended with {done.returncode}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout)


def examine_all(path: Path, way: str, n_cases: int, step: int) -> dict[int, str]:
    """Give the stage that noticed each case; any wrong answer or foreign error fails."""
    starts = [step * i for i in range(PROCESSES)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        reports = list(pool.map(lambda s: examine(path, way, s, n_cases, step * PROCESSES), starts))
    wrong = [line for report in reports for line in report["wrong"]]
    assert wrong == [], "\n".join(wrong[:10]) + f"\n… {len(wrong)} in all"
    stages = {int(n): stage for report in reports for n, stage in report["stages"].items()}
    print(way, dict(Counter(stages.values())))
    return stages


# Bit flips and cuts


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 397])
def test_no_flipped_bit_gives_a_wrong_answer(small: Path, step: int) -> None:
    stages = examine_all(small, "flip", small.stat().st_size * 8, step)
    assert len(stages) == -(-small.stat().st_size * 8 // step)
    for kind, start, stop in stored_places(small):
        found = {stages[bit] for bit in range(start * 8, stop * 8) if bit in stages}
        assert "harmless" not in found, f"a flip in bytes {start} to {stop} ({kind}) was not noticed"
        assert kind in WHEN_READ or found <= {"open"}, f"bytes {start} to {stop} ({kind}): only {found}"


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 97])
def test_no_cut_gives_a_wrong_answer(small: Path, step: int) -> None:
    stages = examine_all(small, "cut", small.stat().st_size, step)
    assert "harmless" not in stages.values()


WHEN_READ = ("column", "groups", "payloads")  # everything else is verified at open


def stored_places(path: Path) -> Iterator[tuple[str, int, int]]:
    """Where in the file values lie, with their kind: in pieces of 8 to 16 bytes that occur only once."""
    data = path.read_bytes()
    for kind, value in stored_values(path):
        for start in range(0, len(value), 16):
            piece = value[start : start + 16]
            if len(piece) >= 8 and data.count(piece) == 1:
                yield kind, data.index(piece), data.index(piece) + len(piece)


def stored_values(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every value in the file, with its kind."""
    with closing(sqlite3.connect(path)) as connection:
        yield from (
            ("catalogue", value) for value in connection.execute("SELECT digest FROM catalogue").fetchone()
        )
        yield from (("payloads", body) for (body,) in connection.execute("SELECT body FROM payloads"))
        pieces = dict(connection.execute("SELECT place, body FROM pieces"))
        heads = connection.execute("SELECT number, head FROM records").fetchall()
    for number, head in heads:
        yield "head", head
        for name, part in json.loads(head)["parts"].items():
            for place in range(part["first"], part["first"] + part["pieces"]):
                yield name.split(":")[0].split(".")[0], pieces[(number << 20) + place]


def test_the_places_are_found(small: Path) -> None:
    """Else what is said of them would hold of nothing."""
    found = Counter({kind: 0 for kind, _ in stored_values(small)})
    for kind, start, stop in stored_places(small):
        found[kind] += stop - start
    assert found["model"] > 1000 and found["head"] > 1000
    assert {"codes", "ids", "catalogue", "column", "payloads", "groups"} <= set(+found)


# The tests' own test


@pytest.mark.parametrize(
    ("module", "check", "guarded"),
    [(store, "verify_part", "codes"), (store_reading, "_verify_payload", "payloads")],
    ids=["codes", "payloads"],
)
def test_a_checksum_left_out_is_found(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, check: str, guarded: str
) -> None:
    """Without one of the checks, some flip in what it guards gives a wrong answer."""
    expected = answers(small)
    monkeypatch.setattr(module, check, lambda *arguments: None)
    data, path = small.read_bytes(), tmp_path / "spoiled.cb"
    wrong = 0
    for kind, value in stored_values(small):
        place = data.find(value)
        if place >= 0 and kind == guarded:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with suppress(CrossbyteError):
                try:
                    judge(path, expected)
                except AssertionError:
                    wrong += 1
    assert wrong > 0
