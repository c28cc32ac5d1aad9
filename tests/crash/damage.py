"""Damage an index file, bit by bit or from its end, and see that nobody is given a wrong answer.

``python -m crash.damage FILE flip|cut START STOP STEP`` works on a copy of FILE and prints one JSON report.
The number of the case at work is kept in ``FILE.case.START``, so that after a crash or a hang it is known.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte.errors import CrossbyteError
from crossbyte.index.index import Index

TIME_LIMIT = 5.0  # seconds of CPU for one case; it takes milliseconds
FIELD = "n"
SAMPLE = 499  # of the cases that SQL does not see, every so many is put to the index all the same
PRAGMAS = (
    "application_id",
    "user_version",
    "page_size",
    "page_count",
    "journal_mode",
    "encoding",
    "integrity_check",
)
QUESTIONS = (
    *(f"PRAGMA {name}" for name in PRAGMAS),
    *(f"SELECT * FROM {table}" for table in ("sqlite_master", "catalogue", "records", "pieces", "payloads")),
    "SELECT number, version FROM payloads INDEXED BY payload_key ORDER BY number, version",
)


def documents(index: Any) -> list[Any]:
    """Everything that an index says about its documents."""
    found = []
    for key in index.ids():
        d = index.get(key)
        codes = [None if code is None else bytes(code) for code in (d.image_code, d.text_code)]
        found.append((d.id, json.dumps(d.payload, sort_keys=True), d.coding, d.group, *codes))
    return [*found, len(index), index.generation]


def searches(index: Any) -> list[Any]:
    """Answers from both sides of all documents, with a filter, groups and payloads."""
    texts = np.random.default_rng(0).normal(size=(2, index.model.n_text_features_)).astype(np.float32)
    fields = sorted(index.stats()["fields"])
    filters = (
        [{"where": f"{FIELD} >= 1" if FIELD in fields else f"{fields[0]} IS NOT NULL"}] if fields else []
    )
    return [
        (list(hits.ids), bytes(hits.distances), hits.payloads)
        for more in ({}, *filters, {"distinct": "group", "payloads": True})
        for hits in index.search(texts=texts, target="document", k=7, **more)
    ]


def answers(path: Path) -> tuple[list[Any], list[Any]]:
    """What the undamaged file says."""
    with Index.open(path, n_jobs=1) as index:
        index.verify()
        return documents(index), searches(index)


def judge(path: Path, expected: tuple[list[Any], list[Any]]) -> list[str]:
    """Where damage was noticed: a list of stages. Raises AssertionError for a wrong answer."""
    try:
        index = Index.open(path, n_jobs=1)
    except CrossbyteError:
        return ["open"]
    noticed = []
    with index:
        for stage, ask, right in (
            ("documents", documents, expected[0]),
            ("searches", searches, expected[1]),
            ("verify", lambda index: index.verify(), None),
        ):
            try:
                given = ask(index)
                assert given == right or stage == "verify", f"wrong answer: {stage}"
            except CrossbyteError:
                noticed.append(stage)
    assert not noticed or "verify" in noticed, f"noticed by {noticed}, but not by verify"
    return noticed


def contents(path: Path) -> Any:
    """Everything that SQL can say about a file; None if anything is odd.

    An index reads its file by SQL alone. So where this is the same as for the undamaged file, its answers are
    the same: the flip hit a place that holds nothing.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            asked = [database.execute(question).fetchall() for question in QUESTIONS]
    except (sqlite3.Error, UnicodeDecodeError):  # the latter where a message quotes a damaged name
        return None
    return (*asked, sorted(name.name for name in path.parent.iterdir()))


def damaged(data: bytes, way: str, numbers: range) -> Iterator[tuple[int, bytes]]:
    """The file with bit n flipped, or cut to n bytes."""
    for n in numbers:
        if way == "cut":
            yield n, data[:n]
        else:
            byte = n // 8
            yield n, data[:byte] + bytes([data[byte] ^ (1 << n % 8)]) + data[byte + 1 :]


def examine(path: Path, way: str, numbers: range) -> dict[str, Any]:
    """Judge each case; ``stages`` has the first stage that noticed it, or "harmless"."""
    expected, case = answers(path), path.with_name(f"{path.name}.case.{numbers.start}")
    stages: dict[int, str] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, case.open("wb", buffering=0) as log:
        copy = Path(folder) / "damaged.cb"
        copy.write_bytes(path.read_bytes())
        same = contents(copy)
        for n, data in damaged(path.read_bytes(), way, numbers):
            os.pwrite(log.fileno(), b"%12d" % n, 0)
            copy.write_bytes(data)
            signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT)
            try:
                if n % SAMPLE and contents(copy) == same:
                    stages[n] = "harmless"
                else:
                    stages[n] = (judge(copy, expected) or ["harmless"])[0]
            except Exception as error:  # anything that is not ours, or a wrong answer
                wrong.append(f"{way} {n}: {type(error).__name__}: {error}")
            signal.setitimer(signal.ITIMER_PROF, 0)
            _sweep(Path(folder))
    return {"stages": stages, "wrong": wrong}


def _sweep(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


if __name__ == "__main__":
    name, way, *bounds = sys.argv[1:]
    json.dump(examine(Path(name), way, range(*map(int, bounds))), sys.stdout)
