"""The index against a dictionary and brute force, through thousands of steps in any order."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crossbyte import CMCQ
from crossbyte.compute.kernels import FoundDocuments, Searcher
from crossbyte.errors import DuplicateId, IndexExists, IndexLocked, StaleReader, UnknownField, UnknownId
from crossbyte.index import merging
from crossbyte.index.index import Index
from crossbyte.index.segment import Groups
from crossbyte.index.snapshot import Snapshot
from support.index_twin import (
    TARGETS,
    Payload,
    Twin,
    compare_documents,
    compare_hits,
    document_model,
    features,
    small_model,
)

# Few ids, so that adding again, updating and deleting meet each other.
IDS: dict[str, list[Any]] = {
    "str": [f"p{i}" for i in range(22)] + ["", "ä\0b"],
    "int": list(range(-3, 21)),
    "both": [*range(12), *map(str, range(12))],
}
MODELS: dict[str, Callable[[], CMCQ]] = {
    "constant": small_model,
    "stored": lambda: small_model(cross_term="stored"),
    "calibrated": lambda: small_model(calibrated=True),
    "one code": document_model,
    "one code, calibrated": lambda: document_model(calibrated=True),
}


class Rng(random.Random):
    """Chance that can be printed and repeated."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __repr__(self) -> str:
        return f"Rng({self.number})"


# What a step does in detail comes from a seed: Hypothesis, left to draw everything itself, prefers the simple
# (no payload, no filter, no document), and thousands of such steps would prove little.
SEEDS = st.integers(0, 2**32 - 1).map(Rng)
COLOURS = ("red", "green", "blue")


def some_payload(rng: random.Random) -> Payload | None:
    """Two in three fields of these; now and then nothing at all."""
    full = {
        "year": rng.randint(2000, 2004),
        "colour": rng.choice(COLOURS),
        "deep": {"size": rng.uniform(-2, 2)},
        "tags": rng.sample(COLOURS, rng.randint(0, 2)),
    }
    return (
        {name: value for name, value in full.items() if rng.random() < 0.67} if rng.random() < 0.9 else None
    )


# What a filter selects, and the fields that it names. A negated condition asks for some value, NOT does not.
FILTERS: dict[str, tuple[Callable[[Payload], bool], set[str]]] = {
    "year >= 2002": (lambda p: p.get("year", 0) >= 2002, {"year"}),
    "NOT year >= 2002": (lambda p: not p.get("year", 0) >= 2002, {"year"}),
    "year != 2001": (lambda p: "year" in p and p["year"] != 2001, {"year"}),
    "year = 2001 OR colour = 'red'": (
        lambda p: p.get("year") == 2001 or p.get("colour") == "red", {"year", "colour"}
    ),
    "colour IN ('red', 'blue') AND year < 2003": (
        lambda p: p.get("colour") in ("red", "blue") and p.get("year", 9999) < 2003, {"year", "colour"}
    ),
    "deep.size > 0": (lambda p: "deep" in p and p["deep"]["size"] > 0, {"deep"}),
    "year IS NULL": (lambda p: "year" not in p, {"year"}),
    "colour IS NOT NULL": (lambda p: "colour" in p, {"colour"}),
    "colour LIKE '%re%'": (lambda p: "re" in p.get("colour", ""), {"colour"}),
    "tags = 'red'": (lambda p: "red" in p.get("tags", []), {"tags"}),
}  # fmt: skip


class IndexMachine(RuleBasedStateMachine):
    """Every method of the index that writes or reads, beside its twin."""

    steps = 0  # of all machines together

    @initialize(kind=st.sampled_from(sorted(IDS)), model=st.sampled_from(sorted(MODELS)))
    def create(self, kind: str, model: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="crossbyte-"))
        self.path, self.kind, self.copies = self.folder / "i.cb", kind, 0
        self.model = MODELS[model]()
        # Small records are merged at once, so that a few steps lead to many merges.
        self.merged_at_once = merging.MERGED_AT_ONCE
        merging.MERGED_AT_ONCE = 3
        self.index, self.twin = Index.create(self.path, self.model, n_jobs=1), Twin(self.model)
        self.reader: Any = None

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.drop_reader()
            self.index.close()
            shutil.rmtree(self.folder)
            merging.MERGED_AT_ONCE = self.merged_at_once

    def write(self, method: str, **values: Any) -> None:
        getattr(self.index, method)(**values)
        getattr(self.twin, method)(**values)

    def documents(self, rng: random.Random, keys: list[Any]) -> dict[str, Any]:
        """Features or codes of one or both sides or of the whole, payloads and groups for these ids."""
        sides = rng.choice(["pair", "image", "text"])
        images, texts = features(len(keys), seed=rng.randint(0, 3))  # few seeds: ties
        given: dict[str, Any] = {"images": images, "texts": texts}
        ready = rng.random() < 0.3
        if ready and sides == "pair" and self.model.fitted_.has_document_codes and rng.random() < 0.5:
            given = {"document_codes": self.model.encode_documents(images, texts)}
        elif ready:
            encode = {"image_codes": self.model.encode_images, "text_codes": self.model.encode_texts}
            given = {name: encode[name](rows) for name, rows in zip(encode, given.values(), strict=True)}
        given = {name: rows for name, rows in given.items() if sides == "pair" or name.startswith(sides)}
        if "images" in given and rng.random() < 0.3:
            given["codes"] = "sides"
        payloads = [some_payload(rng) for _ in keys] if rng.random() < 0.9 else None
        groups = [rng.choice(["a", "b", "c", 7, None]) for _ in keys] if rng.random() < 0.7 else None
        return {"ids": keys, **given, "payloads": payloads, "groups": groups}

    def some_ids(self, rng: random.Random, present: bool | None, at_most: int = 6) -> list[Any]:
        allowed = [key for key in IDS[self.kind] if present is None or (key in self.twin.entries) == present]
        return rng.sample(allowed, min(len(allowed), rng.randint(0, at_most)))

    # Writing

    @rule(rng=SEEDS)
    def add(self, rng: random.Random) -> None:
        self.write("add", **self.documents(rng, self.some_ids(rng, present=False)))

    @rule(rng=SEEDS)
    def upsert(self, rng: random.Random) -> None:
        self.write("upsert", **self.documents(rng, self.some_ids(rng, present=None)))

    @rule(rng=SEEDS)
    def delete(self, rng: random.Random) -> None:
        self.write("delete", ids=self.some_ids(rng, present=True, at_most=3))

    @rule(rng=SEEDS)
    def update_payloads(self, rng: random.Random) -> None:
        keys = self.some_ids(rng, present=True)
        self.write("update_payloads", ids=keys, payloads=[some_payload(rng) for _ in keys])

    @rule(rng=SEEDS)
    def delete_and_add_again(self, rng: random.Random) -> None:
        keys = self.some_ids(rng, present=True, at_most=3)
        self.write("delete", ids=keys)
        self.write("add", **self.documents(rng, keys))

    @precondition(lambda self: bool(self.twin.entries))
    @rule(rng=SEEDS)
    def refuse(self, rng: random.Random) -> None:
        """A refused call changes nothing (the invariant looks)."""
        present = next(iter(self.twin.entries))
        values = self.documents(rng, [*self.some_ids(rng, present=False, at_most=2), present])
        with pytest.raises(DuplicateId):
            self.index.add(**values)
        with pytest.raises(UnknownId):
            self.index.delete([present, "absent"])
        with pytest.raises(UnknownId):
            self.index.update_payloads(["absent"], [{}])
        with pytest.raises(IndexLocked):
            Index.open(self.path, mode="rw")

    # Handles

    @rule(rng=SEEDS)
    def keep_house(self, rng: random.Random) -> None:
        """What is done now and then; in one rule, so that it does not crowd out the others."""
        rng.choice([self.compact, self.compact, self.reopen, self.backup, self.index.verify])()

    def compact(self) -> None:
        self.index.compact()

    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.path, mode="rw", n_jobs=1)

    def backup(self) -> None:
        self.copies += 1
        copy = self.folder / f"copy{self.copies}.cb"
        self.index.backup(copy)
        with pytest.raises(IndexExists):
            self.index.backup(copy)
        with Index.open(copy, n_jobs=1) as index:
            index.verify()
            compare_documents(index, self.twin)

    @rule(rng=SEEDS)
    def look_over_the_shoulder(self, rng: random.Random) -> None:
        """A second handle, which only reads."""
        if self.reader is None or rng.random() < 0.2:
            self.open_reader()
        elif rng.random() < 0.4:
            self.refresh()
        else:
            self.read_old(rng)

    def open_reader(self) -> None:
        self.drop_reader()
        self.reader, self.pinned = Index.open(self.path, n_jobs=1), self.twin.copy()

    def drop_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None

    def read_old(self, rng: random.Random) -> None:
        """A reader stays at its generation, or is told that a compaction has passed it."""
        try:
            compare_documents(self.reader, self.pinned)
            self.compare_search(rng, self.reader, self.pinned)
        except StaleReader:
            assert self.reader.generation < self.index.generation

    def refresh(self) -> None:
        behind = self.reader.generation != self.index.generation
        assert self.reader.refresh() == behind
        assert self.reader.generation == self.index.generation
        self.pinned = self.twin.copy()
        compare_documents(self.reader, self.pinned)

    # Searching

    @rule(rng=SEEDS)
    def search(self, rng: random.Random) -> None:
        self.compare_search(rng, self.index, self.twin)

    @rule(rng=SEEDS)
    def search_like(self, rng: random.Random) -> None:
        for key in self.some_ids(rng, present=True, at_most=2):
            given = {"target": rng.choice(TARGETS), "k": rng.randint(1, 12)}
            compare_hits(self.index.search(like=key, **given), self.twin.search(like=key, **given))

    def compare_search(self, rng: random.Random, index: Any, twin: Twin) -> None:
        """One search with options of every kind."""
        side = rng.choice(["images", "texts"])
        query = {side: features(rng.randint(1, 3), seed=rng.randint(0, 5))[side == "texts"]}
        common = {
            "target": rng.choice(TARGETS),
            "k": rng.randint(1, 30),
            "max_distance": rng.choice([None, None, rng.uniform(-2, 30)]),
            "distinct": rng.choice([None, "group"]),
        }
        where = rng.choice([None, *FILTERS, *FILTERS])
        keep, fields = FILTERS[where] if where else (None, set())
        try:
            found = index.search(**query, **common, where=where, payloads=True)
        except UnknownField:
            assert not all(_has_field(twin, field) for field in fields)
            return
        compare_hits(found, twin.search(**query, **common, keep=keep))
        for hits in found:
            assert hits.payloads == [twin.entries[key].payload for key in hits.ids]

    @invariant()
    def same_ids(self) -> None:
        if hasattr(self, "index"):
            IndexMachine.steps += 1
            assert list(self.index.ids()) == list(self.twin.entries)
            assert len(self.index) == len(self.twin.entries)


def _has_field(twin: Twin, name: str) -> bool:
    return any((entry.payload or {}).get(name) not in (None, []) for entry in twin.entries.values())


def run(n_examples: int, steps: int, seed: int, **more: Any) -> int:
    """Run about ``n_examples * steps`` steps, and give how many it were; the seed is printed for failures."""
    settings = hypothesis.settings(
        max_examples=n_examples, stateful_step_count=steps, deadline=None, database=None, print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck), **more,
    )  # fmt: skip
    print(f"seed {seed}")
    before = IndexMachine.steps
    run_state_machine_as_test(hypothesis.seed(seed)(IndexMachine), settings=settings)
    return IndexMachine.steps - before


def test_three_hundred_steps_agree_with_a_dictionary() -> None:
    assert run(n_examples=18, steps=25, seed=0) >= 300


@pytest.mark.long
def test_ten_thousand_steps_agree_with_a_dictionary() -> None:
    assert sum(run(n_examples=150, steps=50, seed=seed) for seed in (1, 2)) >= 10_000


# The tests' own test


def filter_old_payloads(patch: pytest.MonkeyPatch) -> None:
    def spoiled(snapshot: Snapshot, partition: Any, condition: Any) -> Any:
        parts = [snapshot._judge(segment.record, segment.n_rows, condition) for segment in partition.segments]
        return np.concatenate(parts)

    patch.setattr(Snapshot, "_matches", spoiled)


def break_ties_backwards(patch: pytest.MonkeyPatch) -> None:
    search = Searcher.search

    def spoiled(*arguments: Any, **options: Any) -> FoundDocuments:
        found = search(*arguments, **options)
        queries = np.repeat(np.arange(len(found.counts)), found.counts)
        order = np.lexsort((-found.numbers, found.distances, queries))
        return FoundDocuments(found.counts, *(column[order] for column in found[1:]))

    patch.setattr(Searcher, "search", spoiled)


def forget_groups_in_compactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Groups, "select", lambda groups, rows: None)


@pytest.mark.long
@pytest.mark.parametrize("plant", [filter_old_payloads, break_ties_backwards, forget_groups_in_compactions])
def test_planted_faults_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run(n_examples=200, steps=50, seed=3, phases=[hypothesis.Phase.generate], report_multiple_bugs=False)
