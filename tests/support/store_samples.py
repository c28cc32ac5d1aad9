"""Small contents of an index file, written without an index, and all of them read back."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

from crossbyte.index.storage.records import Catalogue, Change, NewRecord
from crossbyte.index.storage.store import Store

MODEL = NewRecord("model", {"name": "m", "numbers": [1, 2.5]}, {"model": b"the model"})
Rows = list[tuple[int, int, bytes]]


def rows(start: int, stop: int) -> Rows:
    return [(number, 0, b'{"n":%d}' % number) for number in range(start, stop)]


def segment(start: int, stop: int) -> NewRecord:
    codes = np.arange(8 * (stop - start), dtype=np.uint8).reshape(-1, 8)
    numbers = np.arange(start, stop, dtype=np.int64)
    return NewRecord("documents", {"rows": stop - start}, {"codes.image": codes, "numbers": numbers})


def add(store: Store, start: int, stop: int) -> Catalogue:
    return store.commit(Change([segment(start, stop)], rows(start, stop), next_number=stop))


def contents(store: Store, payloads: bool = True) -> Any:
    """Read everything that a file holds."""
    with store.reading() as catalogue:
        parts = {
            (record.number, name): store.part(record, name)
            for record in store.records()
            for name in record.parts
        }
        heads = [(r.number, r.generation, r.kind, r.document) for r in store.records()]
        keys = [(number, 0) for number in range(catalogue.next_number)] if payloads else []
        return catalogue, heads, parts, store.payloads(keys, catalogue.generation)


def run(script: str, *arguments: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
