"""Answer for one shard of an index: the same class in this process and in an actor."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import StaleReader
from crossbyte.index.bitset import count_bits
from crossbyte.index.docids import DocIds, Id
from crossbyte.index.hits import Document
from crossbyte.index.index import Index, Reader
from crossbyte.index.ivf.state import Cells, measure_drift, summarize_cells
from crossbyte.index.lexical import TermMatches
from crossbyte.index.mutations import Batch, Payloads, make_addition
from crossbyte.index.scan import Example, LocalBackend, Query, Ranking, Standing
from crossbyte.index.snapshot import Snapshot
from crossbyte.model.estimator import CMCQ
from crossbyte.sharding.facets import Tally, ValueCount, count_different_values, count_values, hash_values
from crossbyte.sharding.manifest import Manifest, find_model_record
from crossbyte.sharding.wire import CellSummary, CellSums, ShardRanking, ShardSummary


class _ShardFile(Index):
    """The index file of a shard: its documents have numbers that are unique over all shards."""

    def add_numbered(self, batch: Batch, numbers: DocIds, *, replacing: bool) -> None:
        """Add documents with these numbers in one commit; ``replacing`` those of the same ids."""
        self._write(
            lambda snapshot: make_addition(
                snapshot, self.model, batch, None, replacing=replacing, numbers=numbers
            )
        )

    def backend(self, snapshot: Snapshot) -> LocalBackend:
        """Answer from a generation of this file, as one of several shards."""
        return LocalBackend(snapshot, self._n_threads, is_part=True)


class Shard:
    """An open index file that answers from one generation or another.

    Every question names the generation that it is about, so that the answers of all shards belong together.
    Whoever has a shard move on says which generations are still needed (``keep``).

    Parameters
    ----------
    manifest : Manifest
        Of the sharded index.
    place : int
        Of the shard among all.
    mode : {"r", "rw"}
    model : CMCQ, optional
        The model inside the file, where it is in memory already.
    n_jobs : int or None
        Threads.
    """

    def __init__(
        self,
        manifest: Manifest,
        place: int,
        mode: str,
        model: CMCQ | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self._manifest, self._place, self._given = manifest, place, (mode, model, n_jobs)
        self._opened: _ShardFile | None = None
        self._kept: dict[int, Reader] = {}
        self._opening, self._moving = threading.Lock(), threading.Lock()

    def open(self) -> None:
        """Open the file, unless it is open; the first question does it otherwise.

        Raises
        ------
        WrongModel
            The file is of another model than the manifest names: it was replaced since.
        The errors of :meth:`crossbyte.Index.open`.
        """
        with self._opening:
            if self._opened is None:
                self._opened = self._open_file()

    def _open_file(self) -> _ShardFile:
        mode, model, n_jobs = self._given
        index = _ShardFile.open(self._manifest.paths[self._place], mode, model=model, n_jobs=n_jobs)
        try:
            self._manifest.check_model(
                self._manifest.shards[self._place], find_model_record(index.snapshot().store)[1]
            )
        except BaseException:
            index.close()
            raise
        return index

    @property
    def _index(self) -> _ShardFile:
        if self._opened is None:
            self.open()
        assert self._opened is not None
        return self._opened

    # Generations

    def summary(self) -> ShardSummary:
        """Summarize the newest generation."""
        snapshot = self._index.snapshot()
        counts = LocalBackend(snapshot, 1).codings
        numbers = snapshot.generation, snapshot.catalogue.next_number
        return ShardSummary(
            *numbers,
            counts,
            dict(snapshot.fields),
            _summarize_cells(snapshot),
            self._index.format,
            snapshot.words,
            snapshot.has_words,
        )

    def process(self) -> int:
        """Give the id of the process that holds this shard."""
        return os.getpid()

    def refresh(self, keep: Collection[int]) -> ShardSummary:
        """See what others have committed."""
        with self._moving:
            self._keep(keep)
            self._index.refresh()
        return self.summary()

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._opened is not None:
            self._opened.close()

    # Cells

    def cell_sums(self, generation: int) -> dict[str, CellSums]:
        """Count what adds up over shards to the description of the cells, by side."""
        snapshot = self._snapshot(generation)
        sides, sizes = {} if snapshot.cells is None else snapshot.cells.sides, snapshot.cell_sizes()
        return {
            name: CellSums(side.n_documents, side.n_added, side.added_distance, sizes[name])
            for name, side in sides.items()
        }

    def cells(self, generation: int, sums: Mapping[str, CellSums]) -> Cells:
        """Describe the cells, given the sums over all shards."""
        snapshot = self._snapshot(generation)
        known, state, drift = summarize_cells(snapshot.cells, snapshot.cell_sizes()), snapshot.cells, {}
        assert known is not None and state is not None  # there are sums of them
        for name, (n_documents, n_added, distance, sizes) in sums.items():
            side = state.sides[name]
            whole = side._replace(n_documents=n_documents, n_added=n_added, added_distance=distance)
            drift[name] = measure_drift(whole, sizes)
        return replace(known, drift=drift)

    # Searching

    def rank(
        self, generation: int, query: Query, where: str | None, distinct: bool, grouped: bool
    ) -> ShardRanking:
        """Find the nearest documents of this shard; with ``distinct``, the nearest of every group."""
        start = time.perf_counter()
        backend = self._backend(generation)
        rankings = backend.rank(query, where, distinct=distinct)
        whole = rankings[0] if len(rankings) == 1 else Ranking.join(rankings)
        groups = backend.groups(whole) if grouped else None
        counts, ids = [len(ranking.rows) for ranking in rankings], backend.ids(whole)
        arrays = whole.distances, whole.numbers, whole.codings
        return ShardRanking(counts, *arrays, ids, groups, time.perf_counter() - start)

    def allowed(self, generation: int, where: str, side: str) -> tuple[int, int]:
        """Count the documents with a code of this side that a filter allows, and all of them."""
        snapshot = self._snapshot(generation)
        words = snapshot.allowed(where, is_part=True)
        partitions = [partition for partition in snapshot.partitions.values() if side in partition.codes]
        return sum(count_bits(words[each.coding]) for each in partitions), sum(
            each.n_live for each in partitions
        )

    def examples(self, generation: int, ids: Sequence[Id]) -> dict[int, Example]:
        """Look up the documents of these ids that are in this shard, by place in the list."""
        examples = self._backend(generation).examples(ids)
        return {place: example for place, example in enumerate(examples) if example is not None}

    def match_terms(self, generation: int, terms: Sequence[str], where: str | None) -> list[TermMatches]:
        """Find the documents of this shard that have each of some words or phrases."""
        return self._backend(generation).match_terms(terms, where)

    def count_term(self, generation: int, term: str, most: int) -> int:
        """Count the documents of this shard that have a word or phrase, ``most`` at most."""
        return self._backend(generation).count_term(term, most)

    def standing(self, generation: int, query: Query, number: int) -> Standing:
        """Rank a document, of this shard or another, among those of this shard."""
        return self._backend(generation).standing(query, number)

    # Documents

    def find(self, generation: int, ids: Sequence[Id]) -> list[int]:
        """Find the ids that are in this shard, as places in the list."""
        found = self._snapshot(generation).find(ids)
        return [place for place, where in enumerate(found) if where is not None]

    def get(self, generation: int, id: Id) -> Document | None:
        """Give a document, or None."""
        return self._backend(generation).get(id)

    def documents(self, generation: int, where: str | None, after: int | None, limit: int) -> list[Document]:
        """Give one page of documents."""
        return self._backend(generation).documents(where, after, limit)

    def ids(self, generation: int) -> tuple[NDArray[np.int64], list[Id]]:
        """List all numbers and ids."""
        partitions = self._snapshot(generation).partitions.values()
        rows = [partition.live_rows() for partition in partitions]
        numbers = [partition.numbers[own] for partition, own in zip(partitions, rows, strict=True)]
        ids = [id for partition, own in zip(partitions, rows, strict=True) for id in partition.ids.take(own)]
        return np.concatenate([np.empty(0, np.int64), *numbers]), ids

    def payloads(self, generation: int, numbers: NDArray[np.int64]) -> dict[int, dict[str, Any] | None]:
        """Read the payloads of those documents that are in this shard, by their number."""
        snapshot = self._snapshot(generation)
        here = numbers[np.isin(numbers, list(self.codings(generation, numbers)))]
        bodies = snapshot.payloads(snapshot.places(here))
        return dict(zip(here.tolist(), bodies, strict=True))

    def codings(self, generation: int, numbers: NDArray[np.int64]) -> dict[int, str]:
        """Look up the codings of those documents that are in this shard, by their number."""
        partitions = self._snapshot(generation).partitions
        found = {
            coding: numbers[partition.numbers.find(numbers)[1]] for coding, partition in partitions.items()
        }
        return {number: coding for coding, own in found.items() for number in own.tolist()}

    # Fields

    def kinds(self, generation: int, fields: Sequence[str]) -> list[dict[str, int]]:
        """Count the values of each kind of each field."""
        snapshot = self._snapshot(generation)
        return [snapshot.kinds(field) for field in fields]

    def value_counts(self, generation: int, kinds: Sequence[tuple[str, str]]) -> list[ValueCount]:
        """Count the different values of a kind of each field."""
        snapshot = self._snapshot(generation)
        return [count_different_values(snapshot, field, kind) for field, kind in kinds]

    def value_hashes(self, generation: int, field: str, kind: str) -> NDArray[np.uint64]:
        """Hash each different value of a field."""
        return hash_values(self._snapshot(generation), field, kind)

    def tallies(self, generation: int, kinds: Sequence[tuple[str, str]], where: str | None) -> list[Tally]:
        """Count the documents of each value of each field."""
        snapshot = self._snapshot(generation)
        return [count_values(snapshot, field, kind, where) for field, kind in kinds]

    # The file

    def stats(self, generation: int) -> dict[str, Any]:
        """Count documents and bytes."""
        return self._backend(generation).stats()

    def verify(self) -> None:
        """Compare everything with its checksums."""
        self._index.verify()

    def hashes(self, generation: int) -> NDArray[np.uint64]:
        """Hash each id, to find ids that other shards have as well."""
        partitions = self._snapshot(generation).partitions.values()
        parts = [partition.ids.hashes()[partition.live_rows()] for partition in partitions]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def backup(self, path: str) -> None:
        """Copy the file."""
        self._index.backup(path)

    # Writing

    def add(self, batch: Batch, numbers: DocIds, replacing: bool, keep: Collection[int]) -> ShardSummary:
        """Add coded documents with these numbers, in one commit."""
        with self._moving:
            self._keep(keep)
            self._index.add_numbered(batch, numbers, replacing=replacing)
        return self.summary()

    def delete(self, ids: list[Id], keep: Collection[int]) -> ShardSummary:
        """Delete documents, all of this shard."""
        with self._moving:
            self._keep(keep)
            self._index.delete(ids, missing_ok=True)
        return self.summary()

    def update_payloads(self, ids: list[Id], payloads: Payloads, keep: Collection[int]) -> ShardSummary:
        """Replace the payloads of documents, all of this shard."""
        with self._moving:
            self._keep(keep)
            self._index.update_payloads(ids, payloads)
        return self.summary()

    def compact(self, keep: Collection[int]) -> ShardSummary:
        """Forget deleted documents and old payloads, and make the file small."""
        with self._moving:
            self._keep(keep)
            self._index.compact()
        return self.summary()

    def drop_cells(self, keep: Collection[int]) -> ShardSummary:
        """Forget the cells, and search everything again."""
        with self._moving:
            self._keep(keep)
            self._index.drop_cells()
        return self.summary()

    def _backend(self, generation: int) -> LocalBackend:
        return self._index.backend(self._snapshot(generation))

    def _snapshot(self, generation: int) -> Snapshot:
        """Give a generation: the newest, or one that was kept.

        Raises
        ------
        StaleReader
        """
        snapshot = self._index.snapshot()
        if snapshot.generation == generation:
            return snapshot
        kept = self._kept.get(generation)
        if kept is None:
            raise StaleReader(
                f"{self._index.path}: the shard has moved on (from generation {generation} to "
                f"{snapshot.generation}); call refresh()"
            )
        return kept.snapshot()

    def _keep(self, generations: Collection[int]) -> None:
        """Keep the generations that are still needed, before moving on to the next one."""
        kept = {number: view for number, view in self._kept.items() if number in generations}
        if self._index.generation in generations:
            kept[self._index.generation] = self._index.pinned()
        self._kept = kept


def _summarize_cells(snapshot: Snapshot) -> CellSummary | None:
    if snapshot.cells is None:
        return None
    directions = snapshot.cells.directions.items()
    counts = {name: (each.n_probe, len(each.router.points)) for name, each in directions}
    return CellSummary(snapshot.cells.digest, counts)
