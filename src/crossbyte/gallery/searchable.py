"""What can be asked of an open index, in one file or in many shards: written once for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from crossbyte.model.cmcq import CMCQ
from crossbyte.search.asking import SearchRequest
from crossbyte.search.cells.cells import Cells
from crossbyte.search.explanations.explaining import explain
from crossbyte.search.explanations.explanation import Explanation
from crossbyte.search.facets import Facet
from crossbyte.search.hits import Document, Hits
from crossbyte.search.ids import Id
from crossbyte.search.searched import Searched

__all__ = ["T", "View"]

T = TypeVar("T")


class View(ABC):
    """One generation of an index, asked in many threads: looked up, searched, and described."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The real path of the file or folder."""

    @property
    @abstractmethod
    def model(self) -> CMCQ:
        """The model of all documents."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """The commit that is seen; of shards, the sum of theirs."""

    @property
    def n_shards(self) -> int | None:
        """How many files there are; None for an index that is one file."""
        return None

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the shards that did not answer when they were last asked; one file has none."""
        return ()

    @abstractmethod
    def __len__(self) -> int:
        """Documents that are not deleted."""

    @abstractmethod
    def close(self) -> None:
        """Close all files; a writer gives up its place. May be called again."""

    @abstractmethod
    def _answer(self, question: Callable[[Searched], T], *, payloads: bool = False) -> T:
        """Ask of what is seen now; ``payloads`` says that what is found is looked at once more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Documents

    def __contains__(self, id: object) -> bool:
        return self._answer(lambda backend: backend.contains(id))

    def ids(self) -> list[Id]:
        """All ids in the order of the documents' numbers."""
        return self._answer(lambda backend: backend.all_ids())

    def get(self, id: Id) -> Document | None:
        """Give a document, or None if there is none of this id."""
        return self._answer(lambda backend: backend.get(id))

    def documents(
        self, where: str | None = None, after: int | None = None, limit: int = 50
    ) -> list[Document]:
        """Give documents in the order of their numbers, a page at a time.

        Parameters
        ----------
        where : str, optional
            A filter, as in :meth:`search`.
        after : int, optional
            Only documents with a larger number: that of the last document of the page before.
        limit : int
            How many at most.

        Returns
        -------
        list of Document
            Fewer than ``limit`` only at the end.
        """
        return self._answer(lambda backend: backend.documents(where, after, limit))

    def facets(
        self, where: str | None = None, fields: Sequence[str] | None = None, limit: int = 12
    ) -> list[Facet]:
        """Say what there is to choose from: the values of payload fields, and how many documents have each.

        Parameters
        ----------
        where : str, optional
            Count only documents that the filter allows, as in :meth:`search`.
        fields : sequence of str, optional
            Which fields, in this order. None: all that one can choose from, in alphabetical order. Left out
            are ``captions`` and ``file``, texts with more different values than half of the documents that
            have one (and than ``limit``), and lists of more than 64 different values.
        limit : int
            How many values of each field.

        Returns
        -------
        list of Facet
            Without ``fields``, only of fields that some allowed document has.

        Raises
        ------
        UnknownField
            A field that no document has.
        """
        return self._answer(lambda backend: backend.facets(where, fields, limit))

    # Searching

    def search(
        self,
        *,
        images: Any = None,
        texts: Any = None,
        like: Any = None,
        target: str | None = None,
        k: int = 10,
        where: str | None = None,
        max_distance: float | None = None,
        distinct: str | None = None,
        rescore: Any = None,
        candidates: int | None = None,
        payloads: bool = False,
        min_probability: float | None = None,
        prior: float | None = None,
        match_threshold: float = 0.5,
        probe: int | str | None = None,
    ) -> list[Hits]:
        """Find the nearest documents of every query, exactly, in the order of (distance, number).

        Parameters
        ----------
        images : (n, d_I) or (d_I,) features
        texts : (n, d_T) or (d_T,) features
        like : id or list of ids
            Give one of these three. ``like`` asks with a document's own decoded vector: that of the target's
            side where it has one, else of its other side (of the image with ``target="document"``).
        target : {"image", "text", "document"}, optional
            What is searched. "document": the sum of both distances; documents with one side by that side.
            None: texts for images, images for texts, and for ``like`` the side of its vector.
        k : int
            How many at most; all documents if there are fewer.
        where : str, optional
            A filter over payload fields, such as ``"year >= 2020 AND kind IN ('a', 'b')"``: docs/filters.md.
        max_distance : float, optional
            Nothing farther is found.
        distinct : {"group"}, optional
            Count every group once, by its nearest document.
        rescore : callable, optional
            ``rescore(query_number, hits)`` gives the distances that count, one per candidate: for people who
            keep finer vectors. ``max_distance`` and ``distinct`` then look at these.
        candidates : int, optional
            How many are rescored; None for 10 k.
        payloads : bool
            Read the payloads of what was found.
        min_probability : float, optional
            Of the k nearest, leave out those that are less probably the query's true partner. Needs a model
            that was calibrated.
        prior : float, optional
            Probability that any one document is the partner, before looking; None for one in all documents.
            Half of that where only every second query has a partner here.
        match_threshold : float
            ``no_match`` says that even the best hit is less probable than this.
        probe : int, "all" or None
            How many cells of an index with cells (:meth:`Index.build_cells`) are searched: the answer is
            exact among their documents. None: as many as were found to be enough, and everything where the
            question is not one for cells (``like``, documents, no cells). "all": everything, always.

        Returns
        -------
        list of Hits
            One per query. While a shard of a sharded index is lost, the others answer, and ``partial`` of
            every answer is True.

        Raises
        ------
        ClusterError
            No shard of a sharded index answers; or the document of ``like`` may be on one that does not.
        """
        request = SearchRequest(
            images,
            texts,
            like,
            target,
            k,
            where,
            max_distance,
            distinct,
            rescore,
            candidates,
            payloads,
            min_probability,
            prior,
            match_threshold,
            probe,
        )
        return self._answer(lambda backend: request.answer(self.model, backend), payloads=bool(payloads))

    def payloads(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of what a search of this generation found, one per hit; None for none."""
        return self._answer(lambda backend: backend.payloads_of(hits))

    def sides(self, hits: Hits) -> list[tuple[str, ...]]:
        """Say which of "image" and "text" each document has that a search of this generation found."""
        return self._answer(lambda backend: backend.sides_of(hits))

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
        """Say why a document is as near to a query as it is: docs/explanation.md.

        Parameters
        ----------
        id : str or int
            Of the document.
        images, texts, like, target
            One query, as in :meth:`search`.
        n_examples : int
            How many training pairs are listed, of each codeword and altogether.
        n_features : int
            How many features of the query, and how many words of the item, are listed.
        vocabulary : sequence of str, or mapping of str to int, optional
            The words of the text features: one per column, or the column of each.

        Raises
        ------
        UnknownId
            No document has this id.
        InvalidInput
            The document does not have the target's side; or the query is not one.
        """
        return self._answer(
            lambda backend: explain(
                self.model,
                backend,
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

    # What it is

    @property
    def cells(self) -> Cells | None:
        """What is known of the index's cells; None if it has none, or if its shards have not all the same.

        Raises
        ------
        ClusterError
            A shard is lost.
        """
        return self._answer(lambda backend: backend.describe_cells())

    def stats(self) -> dict[str, Any]:
        """Say how many documents there are, and their bytes on disk and in memory, by part and per item.

        Of a sharded index, ``shards`` has a line for each; ``partial`` says whether bytes of lost ones are
        missing in the sums.
        """
        return self._answer(lambda backend: backend.stats())
