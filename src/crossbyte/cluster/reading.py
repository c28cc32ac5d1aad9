"""The half of a sharded index that only reads: all shards at one moment, looked up and searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import numpy as np

from crossbyte.cluster.cells import cells_of_shards
from crossbyte.cluster.facets import facets
from crossbyte.cluster.holding import Holder
from crossbyte.cluster.measuring import measure_shards
from crossbyte.cluster.messages import ShardLost, Summary
from crossbyte.cluster.moment import Moment
from crossbyte.errors import InvalidInput, StaleReader
from crossbyte.model.cmcq import CMCQ
from crossbyte.search.asking import Question, Request
from crossbyte.search.cells.cells import Cells
from crossbyte.search.cells.visiting import check_probe
from crossbyte.search.explanations.explaining import explain
from crossbyte.search.explanations.explanation import Explanation
from crossbyte.search.facets import Facet
from crossbyte.search.hits import Document, Hits
from crossbyte.search.ids import Id, check_id
from crossbyte.search.segment import CODINGS, SIDES

__all__ = ["ShardedReader"]

T = TypeVar("T")
_TRIES = 5  # restarts and compactions that may pass within one answer


class ShardedReader:
    """What is seen of a sharded index at one moment; it has the reading methods of :class:`crossbyte.Index`.

    Parameters
    ----------
    path : str
    model : CMCQ
    holder : Holder
    summaries : tuple of Summary
        What each shard had at that moment.
    n_threads : int
    """

    def __init__(
        self, path: str, model: CMCQ, holder: Holder, summaries: tuple[Summary, ...], n_threads: int
    ) -> None:
        self._path, self._model, self._holder = path, model, holder
        self._summaries, self._n_threads = summaries, n_threads

    @property
    def path(self) -> str:
        """The real path of the folder."""
        return self._path

    @property
    def model(self) -> CMCQ:
        """The model inside every shard."""
        return self._model

    @property
    def generation(self) -> int:
        """The sum of the shards' generations: it grows with every commit of any shard."""
        return sum(summary.generation for summary in self._summaries)

    @property
    def n_shards(self) -> int:
        """How many files there are."""
        return len(self._summaries)

    @property
    def cells(self) -> Cells | None:
        """What is known of the cells, of all shards together; None unless all have the same.

        Raises
        ------
        ClusterError
            A shard is lost.
        """
        return self._answer(cells_of_shards)

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the shards that did not answer when they were last asked."""
        return tuple(self._holder.names[shard] for shard in sorted(self._holder.lost))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all shards; may be called again."""
        self._holder.close()

    def __repr__(self) -> str:
        numbers = f"{len(self)} documents in {self.n_shards} shards, generation {self.generation}"
        return f"{type(self).__name__}({self.path!r}, {numbers})"

    # Documents

    def __len__(self) -> int:
        return sum(summary.n_documents for summary in self._summaries)

    def __contains__(self, id: object) -> bool:
        try:
            names = [check_id(id)]
        except InvalidInput:
            return False
        return self._answer(lambda moment: any(_sought(moment, "find", names)))

    def ids(self) -> list[Id]:
        """All ids in the order of the documents' numbers."""
        parts = self._answer(lambda moment: moment.ask_all("ids"))
        order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
        ids = [id for _, own in parts for id in own]
        return [ids[place] for place in order.tolist()]

    def get(self, id: Id) -> Document | None:
        """Give a document, or None if there is none of this id."""
        name = check_id(id)
        found = self._answer(lambda moment: _sought(moment, "get", name))
        return next((document for document in found if document is not None), None)

    def documents(
        self, where: str | None = None, after: int | None = None, limit: int = 50
    ) -> list[Document]:
        """Give documents in the order of their numbers: see :meth:`crossbyte.Index.documents`."""

        def page(moment: Moment) -> list[Document]:
            moment.check_filter(where)
            parts = moment.ask_all("documents", where, after, limit)
            return sorted((each for part in parts for each in part), key=lambda each: each.number)[:limit]

        return self._answer(page)

    def facets(
        self, where: str | None = None, fields: Sequence[str] | None = None, limit: int = 12
    ) -> list[Facet]:
        """Say what there is to choose from: see :meth:`crossbyte.Index.facets`.

        Counts are exact. Shards send all values of a field that can be chosen from, and their counts.
        """
        return self._answer(lambda moment: facets(moment, where, fields, limit))

    # Searching

    def search(
        self, *, payloads: bool = False, probe: int | str | None = None, **question: Unpack[Question]
    ) -> list[Hits]:
        """Find the nearest documents of every query, exactly: see :meth:`crossbyte.Index.search`.

        The answer is, bit for bit, that of one index with the same documents and numbers. While a shard is
        lost, the others answer, and ``partial`` of every answer is True.

        Raises
        ------
        ClusterError
            No shard answers; or the document of ``like`` may be on one that does not.
        """

        def hits(moment: Moment) -> list[Hits]:
            checked = check_probe(probe, moment.cells, question.get("target"), question.get("like"))
            request = Request.check(self.model, moment, **question, probe=checked)
            return request.answers(moment, bool(payloads))

        for _ in range(_TRIES if payloads else 0):
            try:
                return self._answer(hits)
            except ShardLost:  # between finding something and telling its payload: the next answer is partial
                continue
        return self._answer(hits)

    def payloads(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of what a search at this moment found, one per hit; None for none."""
        found = self._answer(lambda moment: _by_number(moment, "payloads", hits))
        return [found.get(number) for number in hits.numbers.tolist()]

    def sides(self, hits: Hits) -> list[tuple[str, ...]]:
        """Say which of "image" and "text" each document has that a search at this moment found."""
        if hits._codings is not None:
            return [SIDES[CODINGS[place]] for place in hits._codings.tolist()]
        found = self._answer(lambda moment: _by_number(moment, "codings", hits))
        return [SIDES[found[number]] for number in hits.numbers.tolist() if number in found]

    def explain(
        self,
        id: Id,
        *,
        images: Any = None,
        texts: Any = None,
        like: Any = None,
        target: str | None = None,
        n_examples: int = 5,
        n_features: int = 10,
        vocabulary: Any = None,
    ) -> Explanation:
        """Say why a document is as near to a query as it is: see :meth:`crossbyte.Index.explain`."""
        return self._answer(
            lambda moment: explain(
                self.model,
                moment,
                id,
                images=images,
                texts=texts,
                like=like,
                target=target,
                n_examples=n_examples,
                n_features=n_features,
                vocabulary=vocabulary,
            )
        )

    def stats(self) -> dict[str, Any]:
        """Say how many documents there are and their bytes, as :meth:`crossbyte.Index.stats`, of all shards.

        ``shards`` has a line for each; ``partial`` says whether bytes of lost ones are missing in the sums.
        """
        return self._answer(measure_shards)

    # Moments

    def _answer(self, question: Callable[[Moment], T]) -> T:
        """Ask of one moment; again, where a shard has come back with a newer one."""
        for _ in range(_TRIES):
            moment = self._moment()
            try:
                return question(moment)
            except StaleReader:
                if not self._catch_up(moment):
                    raise
        return question(self._moment())

    def _moment(self) -> Moment:
        return Moment(self._path, self._holder, self._summaries, self._n_threads)

    def _catch_up(self, moment: Moment) -> bool:
        """Whether there is another moment to answer from."""
        return False


def _by_number(moment: Moment, method: str, hits: Hits) -> dict[int, Any]:
    """Ask for something of every hit; lost shards are missed only if they have one of them."""
    answers = moment.ask(method, hits.numbers)
    found: dict[int, Any] = {}
    for part in answers.values():
        found |= part
    if len(found) < len(hits):
        moment.complete(answers)
    return found


def _sought(moment: Moment, method: str, sought: Any) -> list[Any]:
    """Ask for something that one shard has; without it, no shard may be missing."""
    answers = moment.ask(method, sought)
    return list(answers.values()) if any(answers.values()) else moment.complete(answers)
