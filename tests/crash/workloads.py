"""What is being done when the process dies: steps that the index and its twin take alike.

A workload starts from a directory made beforehand, and then takes steps; each step is one commit, and is
acknowledged when it has returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crossbyte import CMCQ
from crossbyte.index.index import Index
from support.index_twin import Twin, document_model, features, small_model

NAME, COPY = "index.cb", "copy.cb"
Step = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Workload:
    """Steps before the kill is armed, and steps under it."""

    before: tuple[Step, ...]
    steps: tuple[Step, ...]
    merged_at_once: int = 64  # small records

    @property
    def backs_up(self) -> bool:
        return any(name == "backup" for name, _ in self.steps)

    @cached_property
    def states(self) -> list[Twin | None]:
        """What the index holds after 0, 1, 2, … steps; None while there is no index."""
        twin: Twin | None = None
        for step in self.before:
            twin = _next_state(twin, *step)
        states = [twin]
        for step in self.steps:
            states.append(_next_state(states[-1], *step))
        return states


def _next_state(twin: Twin | None, name: str, values: dict[str, Any]) -> Twin | None:
    if twin is None:
        return Twin(made_with(**values)) if name == "create" else None
    twin = twin.copy()
    if name in ("add", "upsert", "delete", "update_payloads"):
        getattr(twin, name)(**values)
    return twin


def made_with(one_code: bool = False, words: list[str] | None = None) -> CMCQ:
    """The model that an index is created with, with or without words."""
    return document_model() if one_code else small_model()


class Session:
    """A handle of the index at work in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.index = folder, None

    def take(self, name: str, values: dict[str, Any]) -> None:
        path = self.folder / NAME
        if name == "create":
            self.index = Index.create(path, made_with(**values), words=values.get("words"), n_jobs=1)
        elif name == "open":
            self.index = Index.open(path, mode="rw", n_jobs=1)
        elif name == "read":
            Index.open(path, n_jobs=1).close()
        elif name == "backup":
            self.index.backup(self.folder / COPY)
        else:
            getattr(self.index, name)(**values)

    def close(self) -> None:
        if self.index is not None:
            self.index.close()


def batch(first: int, n: int, sides: str = "pair", seed: int = 0, groups: bool = False) -> dict[str, Any]:
    """Arguments of ``add`` for documents number ``first`` and following."""
    images, texts = features(n, seed=1000 + first + seed)
    values: dict[str, Any] = {"ids": [f"d{first + i}" for i in range(n)]}
    values |= {"images": images} if sides != "text" else {}
    values |= {"texts": texts} if sides != "image" else {}
    values["payloads"] = [{"n": first + i, "seed": seed, "words": "x" * (40 * i)} for i in range(n)]
    return values | ({"groups": [f"g{i // 2}" for i in range(n)]} if groups else {})


FILLED = (
    ("create", {}),
    ("add", batch(0, 5)),
    ("add", batch(5, 3, "image")),
    ("add", batch(8, 3, "text")),
)
DOCUMENTS = (("create", {"one_code": True}), *FILLED[1:])
OLD = (*FILLED, ("delete", {"ids": ["d1", "d9"]}), ("upsert", batch(2, 2, seed=7)))
NEW_PAYLOADS = {"ids": ["d0", "d5"], "payloads": [{"n": -1, "far": "y" * 5000}, {"other": None}]}
OPEN = ("open", {})
# One cell holds everything: answers are those of the twin, which knows no cells.
BUILD = ("build_cells", {**dict(zip(("images", "texts"), features(40, seed=3), strict=True)), "n_cells": 1})

WORKLOADS = {
    "create": Workload((), (("create", {}), ("add", batch(0, 2)))),
    "add": Workload(
        FILLED, (OPEN, ("add", batch(20, 1)), ("add", batch(21, 40)), ("add", batch(61, 2, "text")))
    ),
    "upsert": Workload(FILLED, (OPEN, ("upsert", batch(3, 4, "image", seed=3)), ("upsert", batch(30, 2)))),
    "delete": Workload(FILLED, (OPEN, ("delete", {"ids": ["d0", "d6", "d10"]}), ("delete", {"ids": ["d2"]}))),
    "update": Workload(FILLED, (OPEN, ("update_payloads", NEW_PAYLOADS))),
    "compact": Workload(OLD, (OPEN, ("compact", {}), ("add", batch(40, 1)), ("compact", {}))),
    "cells": Workload(OLD, (OPEN, BUILD, ("add", batch(40, 1)), ("compact", {}), ("drop_cells", {}))),
    "documents": Workload(
        DOCUMENTS,
        (
            OPEN,
            ("add", batch(20, 8)),
            ("add", {**batch(28, 2), "codes": "sides"}),
            ("upsert", batch(4, 3, seed=3)),
            ("delete", {"ids": ["d0", "d20"]}),
            ("compact", {}),
        ),
    ),
    "merge": Workload(
        (*FILLED, BUILD, *OLD[4:]),
        (
            OPEN,
            ("add", batch(20, 1)),
            ("add", batch(21, 2, groups=True)),
            ("delete", {"ids": ["d0"]}),
            ("upsert", batch(3, 1, seed=3)),
            ("update_payloads", {"ids": ["d20"], "payloads": [{"n": 3}]}),
            ("add", batch(25, 1)),
            ("delete", {"ids": ["d20", "d21"]}),
        ),
        merged_at_once=2,
    ),
    "backup": Workload(OLD, (OPEN, ("backup", {}))),
    "words": Workload(
        (("create", {"words": ["words"]}), *FILLED[1:]),
        (
            OPEN,
            ("add", batch(20, 3)),
            ("update_payloads", NEW_PAYLOADS),
            ("upsert", batch(20, 2, seed=1)),
            ("delete", {"ids": ["d1"]}),
            ("compact", {}),
        ),
    ),
}
