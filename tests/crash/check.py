"""What must hold after a kill, whenever it came."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte.errors import CrossbyteError, IndexExists, StaleReader, WriteRefused
from crossbyte.index.index import Index
from support.index_twin import Twin, compare, small_model

from .workloads import COPY, NAME, Workload

JOURNAL = f"{NAME}-journal"
CODES = np.array([[1, 2], [3, 4]], dtype=np.uint8)
LATER = {"ids": ["later-1", "later-2"], "image_codes": CODES, "payloads": [{"n": 1}, None]}


class Judged:
    """What folders held when an index in them was open and was found to be right.

    All that an index says, and all that is written afterwards, follows from these bytes; most damage leads
    back to the same few. So they are looked at once. Children write into a file what they have found, and the
    next child knows it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._known = path, dict[str, int]()

    def learn(self) -> None:
        """Take over what children have found."""
        if self._path.exists():
            lines = (line.split() for line in self._path.read_text().splitlines())
            self._known |= {key: int(which) for key, which in lines}
            self._path.unlink()

    def find(self, key: str) -> int | None:
        """Which of the states that may follow a folder was found to be in; None if it is new."""
        return self._known.get(key)

    def keep(self, key: str, which: int = 0) -> None:
        """Keep what was found."""
        with self._path.open("a") as file:
            file.write(f"{key} {which}\n")


def _key_of(folder: Path, mode: str, acknowledged: int) -> str:
    digest = hashlib.blake2b(f"{mode} {acknowledged}".encode(), digest_size=16)
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if path.name == JOURNAL and data[:1] in (b"", b"\0"):
            continue  # by SQLite's rule it is none: it is not read, and the next write begins it anew
        digest.update(f"\0{path.name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def check_survival(folder: Path, workload: Workload, acknowledged: int, judged: Judged) -> None:
    """Raise AssertionError unless ``folder`` holds what was acknowledged, or one whole step more."""
    states = workload.states
    allowed = states[acknowledged : acknowledged + 2]
    reader = folder.with_name(folder.name + ".reader")
    shutil.rmtree(reader, ignore_errors=True)
    shutil.copytree(folder, reader)
    read, written = (
        _recover(place, mode, allowed, acknowledged, judged)
        for place, mode in ((reader, "r"), (folder, "rw"))
    )
    assert read is written or _same(read, written), "a reader and a writer recovered different states"
    shutil.rmtree(reader)
    if workload.backs_up:
        _check_copy(folder, states[-1], finished=acknowledged == len(workload.steps))
    key = _key_of(folder, "life", acknowledged)
    if judged.find(key) is None:
        _check_life_goes_on(folder, written)
        _check_tidy(folder)
        judged.keep(key)


def check_handle(index: Any, workload: Workload, acknowledged: int) -> None:
    """After a failed write, the same handle reads what there was; it writes rightly or not at all.

    A write may fail after it was made: when the journal is gone and only flushing the folder fails. Then the
    handle sees it as soon as it looks at the file again.
    """
    allowed = workload.states[acknowledged : acknowledged + 2]
    try:
        _state_of(index, allowed)
        index.add(**LATER)
        index.delete(LATER["ids"])
    except WriteRefused:
        pass
    except StaleReader:  # the failed write was a compaction, and nobody knows how far it came
        return
    _state_of(index, allowed)
    index.close()


def _recover(
    folder: Path, mode: str, allowed: list[Twin | None], acknowledged: int, judged: Judged
) -> Twin | None:
    """Open what the kill left; give the state it is in."""
    try:
        index = Index.open(folder / NAME, mode=mode, n_jobs=1)
    except (CrossbyteError, FileNotFoundError):
        assert allowed[0] is None, "an acknowledged index does not open"
        return None
    with index:
        key = _key_of(folder, mode, acknowledged)
        which = judged.find(key)
        if which is not None:
            return allowed[which]
        state = _state_of(index, allowed)
        judged.keep(key, next(i for i, twin in enumerate(allowed) if twin is state))
        return state


def _state_of(index: Any, allowed: list[Twin | None]) -> Twin:
    """Give the one of the allowed states that the index is in, in every detail."""
    failures = []
    for twin in allowed:
        if twin is not None:
            try:
                compare(index, twin)
                return twin
            except AssertionError as error:
                failures.append(str(error))
    raise AssertionError(f"not a state that may follow: {failures}; found {list(index.ids())}")


def _same(a: Twin | None, b: Twin | None) -> bool:
    return a is not None and b is not None and a.entries == b.entries


def _check_copy(folder: Path, twin: Twin | None, finished: bool) -> None:
    """A copy is there as a whole or not at all, and can be made afterwards."""
    assert twin is not None
    copy = folder / COPY
    assert copy.exists() or not finished, "an acknowledged copy is missing"
    if not copy.exists():
        with Index.open(folder / NAME, mode="rw", n_jobs=1) as index:
            index.backup(copy)
    with Index.open(copy, n_jobs=1) as index:
        compare(index, twin)
    with Index.open(copy, mode="rw", n_jobs=1) as index:
        index.verify()
    copy.unlink()
    # Killed between giving the copy its name and taking the other one away: both are names of one file.
    copy.with_name(f"{COPY}.partial").unlink(missing_ok=True)


def _check_life_goes_on(folder: Path, twin: Twin | None) -> None:
    """The next write works and is there afterwards; after a killed create, so does the next create."""
    if twin is None:
        Index.create(folder / NAME, small_model(), n_jobs=1).close()
        twin = Twin(small_model())
    else:
        _check_not_overwritten(folder)
    twin = twin.copy()
    twin.add(**LATER)
    with Index.open(folder / NAME, mode="rw", n_jobs=1) as index:
        index.add(**LATER)
    with Index.open(folder / NAME, n_jobs=1) as index:
        compare(index, twin)


def _check_not_overwritten(folder: Path) -> None:
    try:
        Index.create(folder / NAME, small_model(), n_jobs=1)
    except IndexExists:
        return
    raise AssertionError("create has overwritten an index")


def _check_tidy(folder: Path) -> None:
    left = {path.name for path in folder.iterdir()} - {NAME}
    assert not left, f"left behind after recovery: {sorted(left)}"
