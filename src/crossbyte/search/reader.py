"""The half of an index that only reads: one generation of a file, looked up and searched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from crossbyte.errors import InvalidInput
from crossbyte.model.cmcq import CMCQ
from crossbyte.search import loading
from crossbyte.search.asking import Request
from crossbyte.search.browsing import browse, documents_at
from crossbyte.search.cells.cells import Cells, cells_of
from crossbyte.search.cells.visiting import check_probe
from crossbyte.search.details import Details
from crossbyte.search.explanations.explaining import explain
from crossbyte.search.explanations.explanation import Explanation
from crossbyte.search.facets import Facet, facets
from crossbyte.search.generation import Generation
from crossbyte.search.handle import Handle
from crossbyte.search.hits import Document, Hits
from crossbyte.search.ids import Id, check_id
from crossbyte.search.measuring import measure
from crossbyte.search.segment import SIDES

__all__ = ["Path", "Reader"]

Path = str | os.PathLike[str]


class Reader:
    """What a handle sees of a file; :class:`crossbyte.search.index.Index` opens and writes it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def path(self) -> str:
        """The real path of the file."""
        return self._handle.path

    @property
    def model(self) -> CMCQ:
        """The model inside the file."""
        return self._handle.model

    @property
    def generation(self) -> int:
        """The commit that this handle sees."""
        return self._handle.generation

    @property
    def cells(self) -> Cells | None:
        """What is known of the index's cells; None if it has none."""
        snapshot = self._handle.current().snapshot
        return cells_of(snapshot.cells, snapshot.cell_sizes())

    def close(self) -> None:
        """Close the file; a writer gives up its place. May be called again."""
        self._handle.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new."""
        return self._handle.refresh()

    def pinned(self) -> Reader:
        """A view that stays at this generation, whatever is written or refreshed; closed with the index.

        For several questions that must agree with each other, and with ``generation``. A compaction ends it:
        :class:`StaleReader`.
        """
        return Reader(self._handle.pinned())

    def __repr__(self) -> str:
        return f"Index({self.path!r}, {len(self)} documents, generation {self.generation})"

    def __len__(self) -> int:
        return len(self._handle.details.snapshot)

    def __contains__(self, id: object) -> bool:
        try:
            return self._handle.current().snapshot.find([check_id(id)])[0] is not None
        except InvalidInput:
            return False

    def ids(self) -> list[Id]:
        """All ids in the order of the documents' numbers."""
        snapshot = self._handle.current().snapshot
        found = [
            pair
            for shelf in snapshot.shelves.values()
            for pair in zip(
                shelf.numbers[shelf.live_rows()].tolist(), shelf.ids.take(shelf.live_rows()), strict=True
            )
        ]
        return [id for _, id in sorted(found, key=lambda pair: pair[0])]

    def get(self, id: Id) -> Document | None:
        """Give a document, or None if there is none of this id."""
        details = self._handle.current()
        place = details.snapshot.find([check_id(id)])[0]
        if place is None:
            return None
        return documents_at(details, [place], len(self.model.image_codebooks_))[0]

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
        details = self._handle.current()
        return browse(details, where, after, limit, len(self.model.image_codebooks_))

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
        return facets(self._handle.current(), where, fields, limit)

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
            One per query.
        """
        searched = Generation(self._handle.current(), self._handle.n_threads)
        request = Request.check(
            self.model,
            searched,
            images=images,
            texts=texts,
            like=like,
            target=target,
            k=k,
            where=where,
            max_distance=max_distance,
            distinct=distinct,
            rescore=rescore,
            candidates=candidates,
            min_probability=min_probability,
            prior=prior,
            match_threshold=match_threshold,
            probe=check_probe(probe, searched.snapshot.cells, target, like),
        )
        return request.answers(searched, bool(payloads))

    def payloads(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of what a search of this generation found, one per hit; None for none."""
        details = self._handle.current()
        return details.payloads(details.snapshot.places(hits.numbers))

    def sides(self, hits: Hits) -> list[tuple[str, ...]]:
        """Say which of "image" and "text" each document has that a search of this generation found."""
        return [SIDES[place.coding] for place in self._handle.current().snapshot.places(hits.numbers)]

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
        return explain(
            self.model,
            Generation(self._handle.current(), self._handle.n_threads),
            id,
            images=images,
            texts=texts,
            like=like,
            target=target,
            n_examples=n_examples,
            n_features=n_features,
            vocabulary=vocabulary,
        )

    def stats(self) -> dict[str, Any]:
        """Say how many documents there are, and their bytes on disk and in memory, by part and per item."""
        return measure(self._handle.current())

    def verify(self) -> None:
        """Read the whole file and compare everything with its checksums; raises if anything is damaged."""
        self._handle.store.verify()
        newest = loading.load_next(self._handle.details.snapshot, self._handle.store)
        loading.check_details(Details(newest, self._handle.store))

    def backup(self, path: Path) -> None:
        """Copy the index as it is in the file now, safely beside a writer; nothing may be at ``path`` yet."""
        self._handle.store.backup(path)
