"""Files beside an index, written while the power is lost: models, exports, shards, those of a gallery."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from crossbyte import CMCQ
from crossbyte.export import export_faiss, export_vectors
from crossbyte.gallery.companion import CompanionFiles, Thumbnail, Thumbnails, replace_thumbnails
from crossbyte.index.index import Index
from crossbyte.sharding import split
from crossbyte.sharding.manifest import Manifest
from support.index_twin import small_model

from .driver import Driver
from .shim import NoShim, Shim
from .workloads import NAME, OLD, Session, batch

Step = Callable[[Path], None]
Check = Callable[[Path, int], None]
"""Raises AssertionError unless a folder holds what so many acknowledged steps have written."""


@dataclass(frozen=True)
class FileWork:
    """Steps in a folder, each of which writes one or several files, and what must be there afterwards."""

    prepare: Step
    steps: tuple[Step, ...]
    check: Check


class FileDriver(Driver):
    """Runs the points of such work in a scratch folder."""

    recovers = False  # nothing is written by reading these files
    merged_at_once = 64

    def __init__(self, scratch: Path, name: str, shim: Shim | NoShim) -> None:
        self.work = FILES[name]
        super().__init__(scratch, name, shim)

    def _prepare(self) -> None:
        self.work.prepare(self.template)

    def _look_ahead(self) -> None:
        pass

    @property
    def n_steps(self) -> int:
        return len(self.work.steps)

    @contextmanager
    def at_work(self) -> Iterator[Callable[[int], None]]:
        yield lambda step: self.work.steps[step](self.folder)

    def look(self, acknowledged: int) -> None:
        self.work.check(self.folder, acknowledged)


def check_one_of(found: Any, allowed: list[Any]) -> None:
    """What is there is what was acknowledged, or what was being written; None for nothing."""
    assert any(found == each for each in allowed), (
        f"neither what was acknowledged nor the next: {found!r:.300}"
    )


def _around(states: list[Any], acknowledged: int) -> list[Any]:
    return states[acknowledged : acknowledged + 2]


# Models


@cache
def _models() -> tuple[CMCQ, CMCQ]:
    return small_model(), small_model(seed=1)


def _save(which: int) -> Step:
    def step(folder: Path) -> None:
        _models()[which].save(folder / "model.cbm")

    return step


def _check_model(folder: Path, acknowledged: int) -> None:
    path = folder / "model.cbm"
    written = [None, *(model.to_bytes() for model in (_models()[0], _models()[1], _models()[0]))]
    check_one_of(path.read_bytes() if path.exists() else None, _around(written, acknowledged))
    if path.exists():
        CMCQ.load(path)
    _models()[1].save(path)
    assert CMCQ.load(path).to_bytes() == written[2], "a model cannot be saved afterwards"


# Exports: several files that belong together, the last of which is the one that matters

FIRST = 7  # images in the index before the second export adds one


def _index(folder: Path) -> None:
    session = Session(folder)
    for step in OLD:
        session.take(*step)
    session.close()


def _export_to(path: str, export: Callable[..., Any], more: bool) -> Step:
    """Export the index; first with one document more than the last time."""

    def step(folder: Path) -> None:
        with Index.open(folder / NAME, mode="rw", n_jobs=1) as index:
            if more:
                index.add(**batch(70, 1))
            export(index, folder / path, target="image", overwrite=True)

    return step


def _check_vectors(folder: Path, acknowledged: int) -> None:
    found = None
    if (folder / "vectors.npy").exists():
        vectors = np.load(folder / "vectors.npy")
        ids = json.loads((folder / "vectors.npy.ids.json").read_bytes())
        found = len(vectors)
        assert np.isfinite(vectors).all() and np.any(vectors, axis=1).all(), "vectors are torn"
        assert len(ids) == found, "the ids of another export"
    _check_count(found, acknowledged)


def _check_faiss(folder: Path, acknowledged: int) -> None:
    found = None
    if (folder / "x.faiss").exists():
        index = faiss.read_index(str(folder / "x.faiss"))
        ids = json.loads((folder / "x.faiss.ids.json").read_bytes())
        about = json.loads((folder / "x.faiss.json").read_bytes())
        found = index.ntotal
        assert len(ids) == found, "the ids of another export"
        assert about["generation"] == 6 + found - FIRST, "the description of another export"
    _check_count(found, acknowledged)


def _check_count(found: int | None, acknowledged: int) -> None:
    """The first export has n documents, the second one more; while it is replaced there may be none."""
    allowed = {0: [None, FIRST], 1: [FIRST, None, FIRST + 1], 2: [FIRST + 1]}[acknowledged]
    check_one_of(found, allowed)


# Shards


def _split(folder: Path) -> None:
    split.split_index(folder / NAME, folder / "many.cbs", 2)


def _check_shards(folder: Path, acknowledged: int) -> None:
    path = folder / "many.cbs"
    if not path.exists():
        assert acknowledged == 0, "acknowledged shards are missing"
        return
    n_documents = 0
    for shard in Manifest.read(path).paths:
        with Index.open(shard, n_jobs=1) as index:
            index.verify()
            n_documents += len(index)
    with Index.open(folder / NAME, n_jobs=1) as index:
        assert n_documents == len(index), "documents are missing from the shards"


# What belongs to a gallery

IDS = [["a"], ["a", "b"], ["c"] * 900]


def _keep(which: int) -> Step:
    return lambda folder: CompanionFiles.of(folder / NAME).keep_training(IDS[which])


def _check_training(folder: Path, acknowledged: int) -> None:
    files = CompanionFiles.of(folder / NAME)
    check_one_of(files.training(), _around([None, *IDS], acknowledged))
    files.keep_training(["later"])
    assert files.training() == ["later"]


PICTURES = [Thumbnail(name, str(i), b"\xff\xd8\xff" + bytes([i]) * 3000) for i, name in enumerate("abc")]


def _picture(which: int) -> Step:
    def step(folder: Path) -> None:
        files = CompanionFiles.of(folder / NAME)
        files.make()
        replace_thumbnails(files.thumbnails, [], PICTURES[which : which + 1])

    return step


def _check_thumbnails(folder: Path, acknowledged: int) -> None:
    """They are made again where they are missing; those that are there are right."""
    files = CompanionFiles.of(folder / NAME)
    thumbnails = Thumbnails.open(files.thumbnails)
    if thumbnails is not None:
        for each in PICTURES:
            check_one_of(thumbnails.get(each.id), [None, each.jpeg])
        thumbnails.close()
    files.make()
    replace_thumbnails(files.thumbnails, [], PICTURES)
    thumbnails = Thumbnails.open(files.thumbnails)
    assert thumbnails is not None and thumbnails.get("c") == PICTURES[2].jpeg
    thumbnails.close()


FILES: dict[str, FileWork] = {
    "model": FileWork(lambda folder: None, (_save(0), _save(1), _save(0)), _check_model),
    "vectors": FileWork(
        _index,
        (
            _export_to("vectors.npy", export_vectors, more=False),
            _export_to("vectors.npy", export_vectors, more=True),
        ),
        _check_vectors,
    ),
    "faiss": FileWork(
        _index,
        (_export_to("x.faiss", export_faiss, more=False), _export_to("x.faiss", export_faiss, more=True)),
        _check_faiss,
    ),
    "shards": FileWork(_index, (_split,), _check_shards),
    "companion": FileWork(lambda folder: None, (_keep(0), _keep(1), _keep(2)), _check_training),
    "thumbnails": FileWork(lambda folder: None, (_picture(0), _picture(1), _picture(2)), _check_thumbnails),
}
