"""Ask all shards a question about generations that belong together, and merge their answers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from crossbyte.errors import InvalidInput
from crossbyte.index.docids import Id, check_id
from crossbyte.index.facets import Facet
from crossbyte.index.hits import Document, Hits
from crossbyte.index.ivf.router import ALL_CELLS, count_visited_cells
from crossbyte.index.ivf.state import Cells
from crossbyte.index.lexical import TermMatches, WordSettings
from crossbyte.index.scan import (
    Example,
    Query,
    Ranking,
    Standing,
    keep_first_of_groups,
    rank_groups,
)
from crossbyte.index.segment import CODINGS, known_halves
from crossbyte.index.snapshot import read_filter, routed_sides, summarize_bytes
from crossbyte.sharding.facets import count_facets
from crossbyte.sharding.gather import MergedHits, merge_standings
from crossbyte.sharding.pool import ShardPool
from crossbyte.sharding.wire import CellSummary, CellSums, ShardLost, ShardSummary, make_sendable


class ShardedSnapshot:
    """Answers from one generation of every shard, by scatter and gather.

    See :class:`crossbyte.index.scan.SearchBackend`. One is made for every question, because it holds what was
    found.

    Parameters
    ----------
    path : str
        Of the sharded index, for messages.
    pool : ShardPool
    summaries : sequence of ShardSummary
        One per shard.
    n_threads : int
    """

    def __init__(self, path: str, pool: ShardPool, summaries: Sequence[ShardSummary], n_threads: int) -> None:
        self.path, self.pool, self.summaries, self.n_threads = path, pool, summaries, n_threads
        self.partial = False
        self._merged = MergedHits()

    # Known from the summaries

    def __len__(self) -> int:
        return sum(summary.n_documents for summary in self.summaries)

    @cached_property
    def codings(self) -> dict[str, int]:
        """Number of documents of each coding in all shards, lost ones included."""
        counts = {coding: sum(s.codings.get(coding, 0) for s in self.summaries) for coding in CODINGS}
        return {coding: count for coding, count in counts.items() if count}

    @cached_property
    def fields(self) -> dict[str, set[str]]:
        """Payload fields of all shards, and their types."""
        fields: dict[str, set[str]] = {}
        for summary in self.summaries:
            for field, types in summary.fields.items():
                fields[field] = fields.get(field, set()) | types
        return fields

    @cached_property
    def cells(self) -> CellSummary | None:
        """Summary of the cells, if all shards have the same; else None."""
        known = [summary.cells for summary in self.summaries]
        return known[0] if all(each == known[0] for each in known) else None

    def describe_cells(self) -> Cells | None:
        """Describe the cells of all shards together; None unless all have the same."""
        return _describe_cells(self)

    def stats(self) -> dict[str, Any]:
        """Count documents and bytes, in all shards and in each."""
        return _measure_shards(self)

    def check_filter(self, where: str | None) -> None:
        """Refuse a filter that cannot be read, or that names a field which no shard has."""
        if where is not None:
            read_filter(where, self.fields)

    # Asking shards

    def ask(self, method: str, *arguments: Any) -> dict[int, Any]:
        """Ask every shard, and give the answers of those that answer: at least one.

        Raises
        ------
        ShardLost
            None of them answers.
        """
        calls = {shard: (each.generation, *arguments) for shard, each in enumerate(self.summaries)}
        answers = self.pool.ask(method, calls)
        if not answers:
            reasons = self._reasons(self.pool.names)
            raise ShardLost(
                f"{self.path}: none of its {len(calls)} shards answers{reasons}; try again in a while, or "
                "open it anew"
            )
        return answers

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Ask every shard, where an answer of all is needed.

        Raises
        ------
        ShardLost
        """
        return self.complete(self.ask(method, *arguments))

    def complete(self, answers: dict[int, Any]) -> list[Any]:
        """Check that no shard's answer is missing, and give the answers.

        Raises
        ------
        ShardLost
        """
        missing = [name for shard, name in enumerate(self.pool.names) if shard not in answers]
        if missing:
            raise self.make_lost_error(missing)
        return list(answers.values())

    def make_lost_error(self, names: Sequence[str]) -> ShardLost:
        """Make the error that these shards are missing."""
        return ShardLost(
            f"{self.path}: {', '.join(names)} of {len(self.summaries)} shards cannot be reached, and this "
            f"needs all of them{self._reasons(names)}; try again when Ray has restarted what was lost"
        )

    def _reasons(self, names: Sequence[str]) -> str:
        """Say why shards are lost, where that is known."""
        lost = {self.pool.names[shard]: why for shard, why in self.pool.lost.items()}
        known = [f"{name}: {lost[name]}" for name in names if name in lost]
        return f" ({'; '.join(known)})" if known else ""

    # Searching

    def examples(self, ids: Sequence[Id]) -> list[Example | None]:
        """Look up the documents of these ids, in any shard."""
        answers = self.ask("examples", ids)
        found: dict[int, Example] = {}
        for part in answers.values():
            found = part | found
        if len(found) < len(ids):
            self.complete(answers)  # it may be on a shard that is lost
        return [found.get(place) for place in range(len(ids))]

    def rank(self, query: Query, where: str | None, *, distinct: bool, grouped: bool) -> list[Ranking]:
        """Find the nearest documents of all shards."""
        self.check_filter(where)
        if not distinct:
            return self._find_nearest(query, where, grouped)
        if query.n_probe != ALL_CELLS:
            return rank_groups(query, lambda some: self._find_nearest(some, where, True), self.groups)
        # Of everything, the nearest k groups are among the nearest k of each shard.
        merged = self._rank_shards(query, where, True, True, k=query.k * len(self.summaries))
        return [keep_first_of_groups(each, self.groups(each)).take(slice(query.k)) for each in merged]

    def _find_nearest(self, query: Query, where: str | None, grouped: bool) -> list[Ranking]:
        """Visit as many cells as one index would; all, for queries that find fewer than k there."""
        n_probe = self._count_visited(query, where) if query.n_probe is None else query.n_probe
        rankings = self._rank_shards(query._replace(n_probe=n_probe), where, False, grouped, k=query.k)
        if query.n_probe is None and n_probe != ALL_CELLS and query.max_distance == np.inf:
            few = [place for place, ranking in enumerate(rankings) if len(ranking.rows) < query.k]
            if few:
                again = query.take(few)._replace(n_probe=ALL_CELLS)
                for place, ranking in zip(few, self._find_nearest(again, where, grouped), strict=True):
                    rankings[place] = ranking
        return rankings

    def _count_visited(self, query: Query, where: str | None) -> dict[str, int] | str:
        """Count the cells to visit by default, as :func:`crossbyte.index.scan.count_cells` does, by side."""
        counts: dict[str, int] = {}
        if self.cells is None:
            return ALL_CELLS
        for side in routed_sides(query.target):
            known = self.cells.directions.get((query.kind, side))
            if known is None:
                continue
            share = 1.0
            if where is not None:
                allowed, there = np.sum(list(self.ask("allowed", where, side).values()), axis=0)
                share = float(allowed / max(1, there))
            count = count_visited_cells(*known, share)
            if count < known[1]:
                counts[side] = count
        return counts or ALL_CELLS

    def _rank_shards(
        self, query: Query, where: str | None, distinct: bool, grouped: bool, *, k: int
    ) -> list[Ranking]:
        rankings: list[Ranking] = []
        for some in query.parts():
            answers = self.ask("rank", some, where, distinct, grouped)
            self.partial = self.partial or len(answers) < len(self.summaries)
            rankings += self._merged.merge(answers, k)
        return rankings

    @property
    def words(self) -> WordSettings | None:
        """What is known of the words of documents; None where a shard does not keep them, or none has any."""
        return self.word_settings if any(summary.has_words for summary in self.summaries) else None

    @property
    def word_settings(self) -> WordSettings | None:
        """What was measured of words and vectors, also where words cannot be searched; else None."""
        known = [summary.words for summary in self.summaries]
        return known[0] if all(each is not None for each in known) else None

    def match_terms(self, terms: Sequence[str], where: str | None) -> list[TermMatches]:
        """Find the documents of all shards that have each of some words or phrases."""
        self.check_filter(where)
        answers = list(self.ask("match_terms", terms, where).values())
        self.partial = self.partial or len(answers) < len(self.summaries)
        if not answers:
            return [TermMatches.none() for _ in terms]
        return [TermMatches.join(parts) for parts in zip(*answers, strict=True)]

    def count_term(self, term: str, most: int) -> int:
        """Count the documents of all shards that have a term, ``most`` at most; deleted ones too."""
        return min(sum(self.ask("count_term", term, most).values()), most)

    def standing(self, query: Query, number: int) -> Standing:
        """Find the position of a document among those of all shards."""
        return merge_standings(self.ask_all("standing", make_sendable(query), number))

    def groups(self, ranking: Ranking) -> list[Id | None]:
        """Look up the groups of ranked documents."""
        return [self._merged.groups[row] for row in ranking.rows.tolist()]

    def ids(self, ranking: Ranking) -> list[Id]:
        """Look up the ids of ranked documents."""
        return [self._merged.ids[row] for row in ranking.rows.tolist()]

    def payloads(self, ranking: Ranking) -> list[dict[str, Any] | None]:
        """Read the payloads of ranked documents, from the shards that have them.

        Raises
        ------
        ShardLost
            One of them was lost after it had found documents.
        """
        owners = self._merged.shards[ranking.rows]
        calls = {
            shard: (self.summaries[shard].generation, ranking.numbers[owners == shard])
            for shard in np.unique(owners).tolist()
        }
        answers = self.pool.ask("payloads", calls)
        if len(answers) < len(calls):
            raise self.make_lost_error([self.pool.names[shard] for shard in calls if shard not in answers])
        pairs = zip(owners.tolist(), ranking.numbers.tolist(), strict=True)
        return [answers[shard][number] for shard, number in pairs]

    # Documents

    def contains(self, id: object) -> bool:
        """Say whether a document has this id; never for what cannot be an id."""
        try:
            names = [check_id(id)]
        except InvalidInput:
            return False
        return any(self._ask_for("find", names))

    def get(self, id: Id) -> Document | None:
        """Give a document, or None if there is none of this id."""
        found = self._ask_for("get", check_id(id))
        return next((document for document in found if document is not None), None)

    def all_ids(self) -> list[Id]:
        """List all ids in the order of the documents' numbers."""
        parts = self.ask_all("ids")
        order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
        ids = [id for _, own in parts for id in own]
        return [ids[place] for place in order.tolist()]

    def documents(self, where: str | None, after: int | None, limit: int) -> list[Document]:
        """Give one page of documents in the order of their numbers."""
        self.check_filter(where)
        parts = self.ask_all("documents", where, after, limit)
        return sorted((each for part in parts for each in part), key=lambda each: each.number)[:limit]

    def facets(self, where: str | None, fields: Sequence[str] | None, limit: int) -> list[Facet]:
        """Count the values of payload fields.

        Counts are exact. Shards send all values of a field that can be chosen from, and their counts.
        """
        return count_facets(self, where, fields, limit)

    def payloads_of(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of hits of these generations."""
        found = self._ask_by_number("payloads", hits)
        return [found.get(number) for number in hits.numbers.tolist()]

    def sides_of(self, hits: Hits) -> list[tuple[str, ...]]:
        """Look up the sides that each hit of these generations has."""
        if hits._codings is not None:
            return [known_halves(CODINGS[place]) for place in hits._codings.tolist()]
        found = self._ask_by_number("codings", hits)
        return [known_halves(found[number]) for number in hits.numbers.tolist() if number in found]

    def _ask_by_number(self, method: str, hits: Hits) -> dict[int, Any]:
        """Ask for something of every hit; lost shards matter only if they may have one of the hits."""
        answers = self.ask(method, hits.numbers)
        found: dict[int, Any] = {}
        for part in answers.values():
            found |= part
        if len(found) < len(hits):
            self.complete(answers)
        return found

    def _ask_for(self, method: str, sought: Any) -> list[Any]:
        """Ask for something that one shard has; if none has it, no answer may be missing."""
        answers = self.ask(method, sought)
        return list(answers.values()) if any(answers.values()) else self.complete(answers)


def _describe_cells(snapshot: ShardedSnapshot) -> Cells | None:
    """Describe the cells of all shards as one index would; None unless all of them have the same.

    Raises
    ------
    ShardLost
        A shard is missing, and how well cells fit depends on all documents.
    """
    if snapshot.cells is None:
        return None
    parts = snapshot.ask_all("cell_sums")
    sums = {side: _add_cell_sums([part[side] for part in parts]) for side in parts[0]}
    cells: Cells = next(iter(snapshot.ask("cells", sums).values()))
    return cells


def _add_cell_sums(parts: Sequence[CellSums]) -> CellSums:
    return CellSums(
        sum(part.n_documents for part in parts),
        sum(part.n_added for part in parts),
        sum(part.added_distance for part in parts),
        np.sum([part.sizes for part in parts], axis=0),
    )


def _measure_shards(snapshot: ShardedSnapshot) -> dict[str, Any]:
    """Count documents and bytes: see :meth:`crossbyte.ShardedIndex.stats`.

    Returns
    -------
    dict
        As :func:`crossbyte.index.snapshot.measure_index` gives it, with ``partial``, and ``shards``: a list
        of dicts with ``name``, ``documents``, ``generation``, ``lost``, and ``disk`` and ``memory`` in bytes.
    """
    answers = snapshot.ask("stats")
    whole = {name: _add_counts(each[name] for each in answers.values()) for name in ("items", "codings")}
    n_items = max(1, sum(whole["items"].values()))
    lowest = min(answers.values(), key=lambda each: int(each["format"]))  # new documents may go to any
    return {
        **{name: lowest[name] for name in ("format", "codes")},
        "documents": len(snapshot),
        "deleted": sum(each["deleted"] for each in answers.values()),
        **whole,
        "fields": {field: sorted(types) for field, types in sorted(snapshot.fields.items())},
        "generation": sum(summary.generation for summary in snapshot.summaries),
        "segments": sum(each["segments"] for each in answers.values()),
        "disk": summarize_bytes(_add_counts(each["disk"]["bytes"] for each in answers.values()), n_items),
        "memory": summarize_bytes(_add_counts(each["memory"]["bytes"] for each in answers.values()), n_items),
        "partial": len(answers) < len(snapshot.summaries),
        "shards": [
            _describe_shard(snapshot, shard, answers.get(shard)) for shard in range(len(snapshot.summaries))
        ],
    }


def _describe_shard(snapshot: ShardedSnapshot, shard: int, answer: dict[str, Any] | None) -> dict[str, Any]:
    summary = snapshot.summaries[shard]
    return {
        "name": snapshot.pool.names[shard],
        "documents": summary.n_documents,
        "generation": summary.generation,
        "lost": answer is None,
        "disk": None if answer is None else answer["disk"]["bytes"]["file"],
        "memory": None if answer is None else answer["memory"]["bytes"]["total"],
    }


def _add_counts(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        for name, count in part.items():
            total[name] += count
    return dict(total)


def make_build_error(path: str | os.PathLike[str]) -> InvalidInput:
    """Make the error that cells cannot be built over shards."""
    return InvalidInput(
        f"{os.fspath(path)}: cells are learned from all documents, and no shard has them all; build the "
        "cells in one file and cut it with `crossbyte shard` (split_index in Python): its shards keep them"
    )
