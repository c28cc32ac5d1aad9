"""A system whose distances are plain, and a collection small enough to score by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from crossbyte.arrays import Float32
from crossbyte.lab.datasets.collection import Collection, Part
from crossbyte.lab.methods.method import About, Method, Side


@dataclass(kw_only=True)
class Plain(Method):
    """Features of one number are their own codes; a pair's code is the mean of its halves."""

    about: ClassVar[About] = About(
        key="plain",
        name="Plain",
        source="these tests",
        relations=(),
        codes="unified",
        coding="none",
        distance="exact",
        similarities=("pairs", "labels"),
    )
    shift: float = 0.0
    scale: float = 1.0
    log: list[tuple[Any, ...]] = field(default_factory=list, repr=False)
    _seen: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        self.log.append((len(images), None if labels is None else np.asarray(labels).tolist()))
        self._seen = {"image": images, "text": texts}
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        return {"shift": self.shift, "scale": self.scale, "similarity": self.similarity}

    def queries(self, side: Side, rows: Any) -> Any:
        return self.scale * (np.asarray(rows) + self.shift)

    def training_items(self, side: Side) -> Any:
        return self._seen[side]

    def side_items(self, side: Side, rows: Any) -> Any:
        return np.asarray(rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Any:
        return (np.asarray(images) + np.asarray(texts)) / 2

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        return np.abs(queries - items.T).astype(np.float32)


def column(*values: float) -> Any:
    return np.array(values, dtype=np.float32)[:, None]


def part(images: Any, texts: Any, labels: Any = None, *others: Any) -> Part:
    marks = None if labels is None else np.array(labels, dtype=np.uint8)
    return Part(column(*images), column(*texts), marks, tuple(column(*each) for each in others))


def collection(train: Part, query: Part, names: tuple[str, ...] = ()) -> Collection:
    return Collection("tiny", train, query, names, "a few numbers")
