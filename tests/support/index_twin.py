"""The index as a dictionary, searched by brute force: what every index must agree with, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from crossbyte import CMCQ
from crossbyte.compute.executor import Workers

Id = str | int
Payload = dict[str, Any]
IMAGE_WIDTH, TEXT_WIDTH = 6, 5
TARGETS = ("image", "text", "document")


@cache
def small_model(
    n_bits: int = 16,
    cross_term: str = "constant",
    n_components: int = 3,
    calibrated: bool = False,
    seed: int = 0,
) -> CMCQ:
    """A model of a few kilobytes with a code for each half of a document, fitted in a moment."""
    model = CMCQ(
        n_bits, scoring="unit", n_components=n_components, cross_term=cross_term,
        max_iter=2, random_state=seed, n_jobs=1,
    )  # fmt: skip
    model.fit(*features(60, seed=seed))
    if calibrated:
        # Enough for offsets that depend on the index's size.
        model.calibrate(*features(400, seed=seed + 1), curve=())
    return model


@cache
def document_model(cross_term: str = "stored", calibrated: bool = False) -> CMCQ:
    """A small model with the defaults, which give a document with both halves one code."""
    model = CMCQ(16, n_components=3, cross_term=cross_term, max_iter=2, random_state=0, n_jobs=1)
    model.fit(*features(60, seed=0))
    if calibrated:
        model.calibrate(*features(400, seed=1), curve=())
    return model


def features(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of features that know of each other: (n, 6) and (n, 5) float32."""
    rng = np.random.default_rng(seed)
    topic = rng.normal(size=(n, 4))
    images = topic @ np.cos(np.arange(4 * IMAGE_WIDTH).reshape(4, IMAGE_WIDTH))
    texts = topic @ np.sin(np.arange(4 * TEXT_WIDTH).reshape(4, TEXT_WIDTH) + 1)
    noise = rng.normal(size=(n, IMAGE_WIDTH)) / 4
    return (images + noise).astype(np.float32), (texts + noise[:, :TEXT_WIDTH]).astype(np.float32)


@dataclass(frozen=True)
class Entry:
    """A document as the twin keeps it."""

    number: int
    id: Id
    coding: str
    image_code: tuple[int, ...] | None
    text_code: tuple[int, ...] | None
    payload: Payload | None = None
    group: Id | None = None
    document_code: tuple[int, ...] | None = None

    def code(self, side: str) -> tuple[int, ...] | None:
        code: tuple[int, ...] | None = getattr(self, f"{side}_code")
        return code

    def sides(self, target: str) -> list[str]:
        """The sides whose distances count; a code of the whole document serves every target."""
        if self.document_code is not None:
            return ["document"]
        wanted = ("image", "text") if target == "document" else (target,)
        return [side for side in wanted if self.code(side) is not None]


class Twin:
    """A dictionary with the methods of the index. Searching is a sort of all distances."""

    def __init__(self, model: CMCQ) -> None:
        self.model, self.next_number = model, 0
        self.entries: dict[Id, Entry] = {}  # in the order of their numbers

    def copy(self) -> Twin:
        twin = copy.copy(self)
        twin.entries = dict(self.entries)
        return twin

    # Writing

    def add(
        self,
        ids: Sequence[Id],
        images: Any = None,
        texts: Any = None,
        image_codes: Any = None,
        text_codes: Any = None,
        payloads: Sequence[Payload | None] | None = None,
        groups: Sequence[Id] | None = None,
        document_codes: Any = None,
        codes: str | None = None,
    ) -> None:
        one_code = codes != "sides" and self.model.fitted_.has_document_codes
        if images is not None and texts is not None and one_code:
            document_codes = self.model.encode_documents(images, texts)
        elif images is not None and texts is not None:
            image_codes, text_codes = self.model.encode_pairs(images, texts)
        elif images is not None:
            image_codes = self.model.encode_images(images)
        elif texts is not None:
            text_codes = self.model.encode_texts(texts)
        given = {"image": image_codes, "text": text_codes, "document": document_codes}
        sides = [side for side, each in given.items() if each is not None]
        coding = "pair" if len(sides) == 2 else sides[0]
        for row, key in enumerate(ids):
            assert key not in self.entries
            self.entries[key] = Entry(
                self.next_number, key, coding, _row(image_codes, row), _row(text_codes, row),
                None if payloads is None else payloads[row], None if groups is None else groups[row],
                _row(document_codes, row),
            )  # fmt: skip
            self.next_number += 1

    def upsert(self, ids: Sequence[Id], **values: Any) -> None:
        for key in ids:
            self.entries.pop(key, None)
        self.add(ids, **values)

    def update_payloads(self, ids: Sequence[Id], payloads: Sequence[Payload | None]) -> None:
        for key, payload in zip(ids, payloads, strict=True):
            entry = self.entries[key]
            self.entries[key] = Entry(**{**vars(entry), "payload": payload})

    def delete(self, ids: Sequence[Id]) -> None:
        for key in ids:
            self.entries.pop(key, None)

    # Searching

    def search(
        self,
        *,
        images: Any = None,
        texts: Any = None,
        like: Id | None = None,
        target: str = "image",
        k: int = 10,
        keep: Callable[[Payload], bool] | None = None,
        max_distance: float | None = None,
        distinct: str | None = None,
    ) -> list[tuple[list[Id], np.ndarray]]:
        """Ids and float32 distances of each query, best first."""
        kind, points = self._asked(images, texts, like, target)
        entries = [e for e in self.entries.values() if keep is None or keep(e.payload or {})]
        found = []
        for point in points:
            ranked = sorted(self._ranking(kind, point[None], entries, target))
            ranked = [hit for hit in ranked if max_distance is None or hit[0] <= np.float32(max_distance)]
            if distinct == "group":
                ranked = _first_of_each_group(ranked, self.entries)
            ids = [key for _, _, key in ranked[:k]]
            found.append((ids, np.array([distance for distance, _, _ in ranked[:k]], dtype=np.float32)))
        return found

    def _asked(self, images: Any, texts: Any, like: Id | None, target: str) -> tuple[str, np.ndarray]:
        """Kind and points of the queries."""
        if images is not None:
            return "image", self.model.transform_images(images)
        if texts is not None:
            return "text", self.model.transform_texts(texts)
        assert like is not None
        return self._own_point(self.entries[like], target)

    def _own_point(self, entry: Entry, target: str) -> tuple[str, np.ndarray]:
        first, second = ("text", "image") if target == "text" else ("image", "text")
        side = next(side for side in (first, second, "document") if entry.code(side) is not None)
        codes = np.array([entry.code(side)], dtype=np.uint8)
        with Workers(1) as workers:
            return side, self.model.fitted_.quantizers[side].decode(codes, workers)

    def _ranking(
        self, kind: str, point: np.ndarray, entries: list[Entry], target: str
    ) -> list[tuple[Any, int, Id]]:
        by_side = {side: self._side_distances(point, entries, side) for side in ("image", "text", "document")}
        ranking = []
        for entry in entries:
            parts = [by_side[side][entry.id] for side in entry.sides(target)]
            if parts:
                total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
                ranking.append((self._fair(total, kind, target, entry.coding), entry.number, entry.id))
        return ranking

    def _fair(self, distance: np.float32, kind: str, target: str, coding: str) -> np.float32:
        """A distance as it competes with those to documents of other codings."""
        calibration = self.model.calibration_
        if calibration is not None:
            offset = calibration.offset(kind, target, coding, len(self.entries))
        else:
            offset = self.model.fitted_.document_constant if coding == "document" else 0.0
        return distance + np.float32(offset)

    def _side_distances(self, point: np.ndarray, entries: list[Entry], side: str) -> dict[Id, np.float32]:
        having = [entry for entry in entries if entry.code(side) is not None]
        if not having:
            return {}
        codes = np.array([entry.code(side) for entry in having], dtype=np.uint8)
        quantizer = self.model.fitted_.quantizers[side]
        with Workers(1) as workers:
            distances = quantizer.table(point).distances(quantizer.scan_codes(codes, workers))[0]
        return {entry.id: distance for entry, distance in zip(having, distances, strict=True)}


def _row(codes: Any, row: int) -> tuple[int, ...] | None:
    return None if codes is None else tuple(int(value) for value in codes[row])


def _first_of_each_group(ranked: list[Any], entries: dict[Id, Entry]) -> list[Any]:
    """One hit for each group; a document without a group stands for itself."""
    seen: set[Id] = set()
    kept = []
    for hit in ranked:
        group = entries[hit[2]].group
        if group is None or group not in seen:
            kept.append(hit)
        if group is not None:
            seen.add(group)
    return kept


# Comparing an index with its twin


def compare_documents(index: Any, twin: Twin) -> None:
    """Every document, in order, in every part."""
    found, expected = list(index.ids()), list(twin.entries)
    assert found == expected, f"ids {found} instead of {expected}"
    assert len(index) == len(expected), f"length {len(index)} instead of {len(expected)}"
    for key, entry in twin.entries.items():
        assert key in index, f"{key!r} is listed and not in"
        compare_document(index.get(key), entry)


def compare_document(document: Any, entry: Entry) -> None:
    """One document with its entry."""
    sides = ("image", "text", "document")
    given = [getattr(document, f"{side}_code") for side in sides]
    codes = [None if code is None else tuple(np.asarray(code).tolist()) for code in given]
    found = (document.id, document.coding, document.group, document.payload, codes)
    expected = (entry.id, entry.coding, entry.group, entry.payload, [entry.code(side) for side in sides])
    assert found == expected, f"document {found} instead of {expected}"
    assert type(document.id) is type(entry.id), f"{document.id!r} came back as another type"


def compare_hits(hits: Any, expected: list[tuple[list[Id], np.ndarray]]) -> None:
    """Ids and distances, bit for bit."""
    assert len(hits) == len(expected), f"{len(hits)} answers to {len(expected)} queries"
    for found, (ids, distances) in zip(hits, expected, strict=True):
        given = np.asarray(found.distances)
        assert given.dtype == np.float32, f"distances are {given.dtype}"
        assert (list(found.ids), given.tobytes()) == (ids, distances.tobytes()), (
            f"found {list(found.ids)} at {given} instead of {ids} at {distances}"
        )


def standard_queries(k: int = 7, seed: int = 99) -> list[dict[str, Any]]:
    """Both kinds of query against every target."""
    images, texts = features(2, seed=seed)
    return [
        {**query, "target": target, "k": k}
        for target in TARGETS
        for query in ({"images": images}, {"texts": texts})
    ]


@cache
def expected_searches(twin: Twin) -> list[Any]:
    """What the standard queries give; remembered, so the twin must not change any more."""
    return [twin.search(**query) for query in standard_queries()]


def compare_searches(index: Any, twin: Twin) -> None:
    """Answers to the standard queries, from a twin that does not change any more."""
    for query, expected in zip(standard_queries(), expected_searches(twin), strict=True):
        compare_hits(index.search(**query), expected)


def compare(index: Any, twin: Twin) -> None:
    """Everything that an index says, and that it thinks itself whole."""
    index.verify()
    compare_documents(index, twin)
    compare_searches(index, twin)
