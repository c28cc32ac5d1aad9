"""Open, search and write an index: one file with a fitted model and its documents.

``BaseIndex`` has the questions that any open index answers, in one file or in many shards; ``Reader`` answers
them from one generation of a file; ``Index`` opens a file, follows it, and writes to it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from crossbyte.compute.executor import available_cores
from crossbyte.errors import IndexFileError, InvalidInput, ReadOnlyIndex, StaleReader
from crossbyte.index import merging, mutations
from crossbyte.index.docids import DocIds, Id, check_ids
from crossbyte.index.explain.explain import explain
from crossbyte.index.explain.explanation import Explanation
from crossbyte.index.facets import Facet
from crossbyte.index.fusion import match_words
from crossbyte.index.hits import Document, Hits
from crossbyte.index.ivf.build import CellRequest, build_cell_state
from crossbyte.index.ivf.state import Cells
from crossbyte.index.lexical import KIND as WORDS_KIND
from crossbyte.index.lexical import WordMatch, WordSettings, check_word_fields
from crossbyte.index.mutations import Batch, Commit, DocumentFields, check_payloads
from crossbyte.index.query import SearchRequest
from crossbyte.index.scan import LocalBackend, SearchBackend
from crossbyte.index.snapshot import (
    Snapshot,
    check_snapshot,
    load_model,
    load_next,
    load_snapshot,
    may_hold_document_codes,
    model_record,
)
from crossbyte.index.storage.database import FORMATS, WORDS_FORMAT
from crossbyte.index.storage.records import Change, NewRecord
from crossbyte.index.storage.store import Store
from crossbyte.model.estimator import CMCQ
from crossbyte.progress import ProgressCallback, ignore_progress
from crossbyte.validation import check_choice, check_integer, check_number

Path = str | os.PathLike[str]
T = TypeVar("T")
_TRIES = 5  # merges that may outdate an answer while it is made


class BaseIndex(ABC):
    """An open index, whether one file or many shards: look up, search and describe its documents.

    Every answer is taken from one generation. Many threads may ask at the same time.
    """

    def __init__(self, path: str, model: CMCQ) -> None:
        self._path, self._model = path, model

    @property
    def path(self) -> str:
        """The real path of the file, or of the folder of shards."""
        return self._path

    @property
    def model(self) -> CMCQ:
        """The model of all documents, as it is inside the file or every shard."""
        return self._model

    @property
    @abstractmethod
    def generation(self) -> int:
        """Number of the commit that is seen; of shards, the sum of theirs."""

    @property
    @abstractmethod
    def format(self) -> int:
        """Format of the file: 2 where a document with both halves may have one code, else 1."""

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None for an index that is one file."""
        return None

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the shards that did not answer the last question; never any of one file."""
        return ()

    @abstractmethod
    def __len__(self) -> int:
        """Count the documents that are not deleted."""

    @abstractmethod
    def close(self) -> None:
        """Close all files; a writer gives up its lock. May be called again."""

    @abstractmethod
    def _answer(self, question: Callable[[SearchBackend], T], *, payloads: bool = False) -> T:
        """Ask the generation that is seen now.

        ``payloads`` says that the question first finds documents and then reads their payloads.
        """

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
        """List all ids in the order of the documents' numbers."""
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
        """Count the documents of each value of payload fields: what there is to choose from.

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
        n_probe: int | str | None = None,
        words: str | Sequence[str] | None = None,
        mode: str | None = None,
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
            ``no_match`` says that the probabilities of the first ten hits sum to less than this.
        n_probe : int, "all" or None
            How many cells (inverted lists) are searched, of an index with cells (:meth:`Index.build_cells`);
            the answer is exact among their documents. None: as many as were found to be enough, and all
            documents where cells do not apply (``like``, no cells, and with target "document" all but those
            of one code). "all": always all.
        words : str or list of str, optional
            The texts that ``texts`` are features of, one per query. An index that keeps words then searches
            by both, in the order of the distance less a share of the BM25 score; documents with a phrase in
            quotes, or with all rare words, come first.
        mode : {"both", "vectors", "words"}, optional
            How to search where ``words`` are given; None for both where the index keeps words.

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
            n_probe,
            words,
            mode,
        )
        return self._answer(lambda backend: request.answer(self.model, backend), payloads=bool(payloads))

    @property
    def word_fields(self) -> tuple[str, ...]:
        """Payload fields whose words are searched; empty for an index that keeps none."""
        words = self._answer(lambda backend: backend.words)
        return () if words is None else words.fields

    @property
    def word_settings(self) -> WordSettings | None:
        """How words and vectors are fused, and what was measured of it; None for an index without words."""
        return self._answer(lambda backend: backend.words)

    def match_words(self, text: str, where: str | None = None) -> list[WordMatch]:
        """Find documents with any word of a text, or any phrase in quotes, best first by BM25.

        Parameters
        ----------
        text : str
            Nothing in it is an operator.
        where : str, optional
            A filter, as in :meth:`search`.
        """
        return self._answer(lambda backend: match_words(backend, text, where))

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

    # Description

    @property
    def cells(self) -> Cells | None:
        """Description of the cells (IVF); None if there are none, or if shards have different ones.

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


class Reader(BaseIndex):
    """One generation of an index file; :meth:`Index.pinned` gives one that stays at its generation.

    Parameters
    ----------
    store : Store
        Closed if its newest generation cannot be read.
    model : CMCQ
        The model inside the file.
    n_jobs : int or None
    pinned : Reader, optional
        Another one of the same file, which has the generation in memory already.
    """

    def __init__(self, store: Store, model: CMCQ, n_jobs: int | None, pinned: Reader | None = None) -> None:
        super().__init__(store.path, model)
        self._store, self._n_jobs = store, n_jobs
        self._writing: Any = threading.RLock()  # held while the next generation is made
        self._compacting = threading.Lock()  # held while a compaction is prepared and written
        if pinned is not None:
            self._writing, self._seen = pinned._writing, pinned.snapshot()
            return
        try:
            self._seen = load_snapshot(store, model.fitted_.quantizers, n_jobs)
        except BaseException:
            store.close()
            raise

    @property
    def generation(self) -> int:
        """Number of the commit that is seen."""
        return self._seen.generation

    @property
    def format(self) -> int:
        """Format of the file: 2 where a document with both halves may have one code, else 1."""
        return self._store.format

    @property
    def _n_threads(self) -> int:
        """Threads of a search."""
        return available_cores() if self._n_jobs is None or self._n_jobs < 0 else max(1, self._n_jobs)

    def snapshot(self) -> Snapshot:
        """Give the documents of the generation that is seen, as they are held in memory.

        For tools that look below ids and payloads: codes, segments, cells, the file. What it gives is not
        changed by later writes; its members may change between versions.

        Raises
        ------
        StaleReader
            A compaction has passed it.
        """
        snapshot = self._seen
        self._store.check_current(snapshot.generation)
        if snapshot.unsettled:
            with self._writing:
                snapshot = self._seen = self._seen.settle()
        return snapshot

    def pinned(self) -> Reader:
        """Give a view that stays at this generation, whatever is written or refreshed; closed with the index.

        For several questions that must agree with each other, and with ``generation``. A compaction ends it:
        :class:`StaleReader`.
        """
        return Reader(self._store, self._model, self._n_jobs, self)

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new."""
        with self._writing:
            before, self._seen = self._seen, load_next(self._seen)
            return self._seen is not before

    def close(self) -> None:
        """Close the file; a writer gives up its lock. May be called again."""
        self._store.close()

    def __repr__(self) -> str:
        return f"Index({self.path!r}, {len(self)} documents, generation {self.generation})"

    def __len__(self) -> int:
        return len(self._seen)

    def _answer(self, question: Callable[[SearchBackend], T], *, payloads: bool = False) -> T:
        return question(LocalBackend(self.snapshot(), self._n_threads))

    def verify(self) -> None:
        """Read the whole file and compare everything with its checksums; raises if anything is damaged."""
        self._store.verify()
        check_snapshot(load_next(self._seen).without_caches())

    def backup(self, path: Path) -> None:
        """Copy the index as it is in the file now, safely beside a writer; nothing may be at ``path`` yet."""
        self._store.backup(path)


class Index(Reader):
    """A fitted model's documents in one file; made by :meth:`create`, :meth:`open` or :meth:`from_training`.

    Everything that a call writes is on the disk when it returns, or nothing of it is in the file. A handle
    sees one committed generation: its own writes at once, those of others after :meth:`refresh`. Searches
    may run in many threads.
    """

    _until_merge = 1  # commits

    # Opening

    @classmethod
    def create(
        cls,
        path: Path,
        model: CMCQ,
        *,
        words: Sequence[str] | WordSettings | None = None,
        format: int | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Make an empty index for a fitted model, and open it for writing.

        Parameters
        ----------
        path : path-like
            Nothing may be there yet.
        model : CMCQ
            Fitted; a copy of it becomes part of the file.
        words : sequence of str, optional
            Payload fields, such as ``["captions"]``, whose words are kept, so that :meth:`search` finds
            documents by them, too.
        format : {1, 2, 3}, optional
            None: 3 with ``words``, else 2 for a model that can give a document one code, else 1, which
            earlier versions read, too. With a model that cannot, an index of format 2 holds what one of
            format 1 does.
        n_jobs : int or None
            Threads; None for all cores. No answer depends on it.

        Raises
        ------
        IndexExists, IndexLocked, NotFitted, ReadOnlyIndex, StorageFull
        """
        if not isinstance(model, CMCQ):
            raise InvalidInput(f"model: expected a fitted CMCQ, got {type(model).__name__}")
        searched = None if words is None else _check_words(words)
        wanted = check_format(format, model, None if searched is None else searched.fields)
        own, records = _copy_model(model, n_jobs), [model_record(model)]
        if searched is not None:
            records.append(NewRecord(WORDS_KIND, searched.to_dict()))
        return cls(Store.create(path, records, format=wanted), own, n_jobs)

    @classmethod
    def open(
        cls, path: Path, mode: str = "r", *, model: CMCQ | None = None, n_jobs: int | None = None
    ) -> Self:
        """Open an index for reading (``"r"``) or as its only writer (``"rw"``).

        Codes, ids and model are read into memory and verified; payloads and columns when they are read. The
        first use of the documents lays codes out for the scan, which takes longer than reading them.

        Parameters
        ----------
        path : path-like
        mode : {"r", "rw"}
        model : CMCQ, optional
            The model that the index must have been made with.
        n_jobs : int or None
            Threads; None for all cores.

        Raises
        ------
        FileNotFoundError, ForeignIndexFile, DamagedIndexFile, NewerIndexFile
        IndexLocked
            Somebody else is writing; the message says who.
        WrongModel
            The index was made with another model.
        """
        check_choice(mode, "mode", ("r", "rw"))
        store = Store.open(path, writable=mode == "rw")
        try:
            own = load_model(store, model)
            if model is None:
                own.set_params(n_jobs=n_jobs)
        except BaseException:
            store.close()
            raise
        return cls(store, own, n_jobs)

    @classmethod
    def from_training(
        cls,
        path: Path,
        model: CMCQ,
        ids: Any = None,
        payloads: Any = None,
        *,
        groups: Any = None,
        codes: str | None = None,
        format: int | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Make an index of the training documents with the codes that the model has learned of them.

        That is one code each, or two (the paper's) where each half has its own dictionary.

        Parameters
        ----------
        ids : sequence of str or int, optional
            One per training pair; None for 0, 1, 2, …
        payloads, groups, codes
            As in :meth:`add`.
        format : {1, 2}, optional
            As in :meth:`create`.

        Raises
        ------
        InvalidInput
            Among others, where two codes are asked for (``codes="sides"`` or ``format=1``) and the model has
            learned one: create an empty index and add the features instead.
        """
        if not isinstance(model, CMCQ):
            raise InvalidInput(f"model: expected a fitted CMCQ, got {type(model).__name__}")
        wanted = check_format(format, model)
        mutations.check_wanted_codes(codes, model.fitted_.has_document_codes, wanted)
        one_code = codes != "sides" and may_hold_document_codes(wanted, model.fitted_.quantizers)
        if model.fitted_.has_document_codes and not one_code:
            asked = 'codes="sides"' if codes == "sides" else f"format={wanted}"
            raise InvalidInput(
                f"{asked}: expected a model that has learned two codes of each training document, got one "
                "that has learned one code of both halves; leave codes and format out, or Index.create(…), "
                'then add(…, images=…, texts=…, codes="sides") to code the features of both halves'
            )
        documents = DocumentFields(payloads=payloads, groups=groups, codes=codes)
        if one_code:
            documents["document_codes"] = model.document_codes_
        else:
            documents |= DocumentFields(image_codes=model.image_codes_, text_codes=model.text_codes_)
        names = range(len(model.fitted_.image_codes)) if ids is None else ids
        batch = Batch.check(model, wanted, names, documents, None if one_code else "training")
        numbers = DocIds(0, len(batch.ids))
        segments = batch.segments(batch.encode(model), numbers)
        records = [model_record(model), *(segment.to_record() for segment in segments)]
        store = Store.create(path, records, batch.payload_rows(numbers), numbers.end, format=wanted)
        return cls(store, _copy_model(model, n_jobs), n_jobs)

    # Writing

    def add(
        self,
        ids: Any,
        *,
        images: Any = None,
        texts: Any = None,
        image_codes: Any = None,
        text_codes: Any = None,
        document_codes: Any = None,
        codes: str | None = None,
        payloads: Any = None,
        groups: Any = None,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
    ) -> int:
        """Add documents; each has an image, a text, or both.

        Parameters
        ----------
        ids : sequence of str or int, or iterator of blocks
            New ids, one per document. An iterator gives mappings of these same parameters (with "ids"),
            and every block is a commit of its own, so that any number of documents can pass through.
        images : (n, d_I) features, optional
        texts : (n, d_T) features, optional
            Documents with both get one code of both halves, or are folded in as pairs, where each of two
            codes knows the other half: ``codes``.
        image_codes, text_codes, document_codes : (n, M) uint8, optional
            Ready codes instead of features: of one side, of both, or one of both halves (alone).
        codes : {"document", "sides"}, optional
            One code for a document with both halves, which serves every target, or two, one for each side.
            None: one, where format and model of the index have such codes, else two.
        payloads : sequence of dict or None, optional
            JSON objects of at most 1 MiB each.
        groups : sequence of str, int or None, optional
            Documents of one group count once with ``search(distinct="group")``.
        callback : callable, optional
            Called with a :class:`crossbyte.progress.Progress` as coding goes on.
        cluster : str, optional
            ``"local"`` to start Ray on this machine, or the address of a Ray cluster, to code features there;
            by default, threads. The codes are the same.

        Returns
        -------
        int
            How many documents were added.

        Raises
        ------
        DuplicateId, InvalidInput, PayloadTooLarge, TooManyFields
            Before anything is written.
        ReadOnlyIndex, WriteRefused, StorageFull
            Nothing was changed.
        ClusterError, MissingExtra
            There is no such cluster, or it was lost while it worked; nothing was changed.
        StorageFailed
            The system failed to write. Nothing was changed, or, if only its last flush failed, everything;
            this handle writes no more, and opening the index again tells.
        """
        documents = DocumentFields(images=images, texts=texts, image_codes=image_codes, text_codes=text_codes)
        documents |= DocumentFields(document_codes=document_codes, codes=codes)
        documents |= DocumentFields(payloads=payloads, groups=groups)
        return self._add_all(ids, documents, callback, replacing=False, cluster=cluster)

    def upsert(
        self,
        ids: Any,
        *,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
        **documents: Unpack[DocumentFields],
    ) -> int:
        """Add documents, in the place of those that have the same ids; parameters as in :meth:`add`.

        A replaced document is gone altogether, its payload and group too, and the new one has a new number.
        """
        return self._add_all(ids, documents, callback, replacing=True, cluster=cluster)

    def update_payloads(self, ids: Any, payloads: Any) -> int:
        """Replace the payloads of documents and keep their codes and numbers; None removes a payload."""
        names = check_ids(ids)
        checked = check_payloads(payloads, len(names))
        self._write(lambda snapshot: mutations.make_payload_update(snapshot, names, checked))
        return len(names)

    def delete(self, ids: Any, *, missing_ok: bool = False) -> int:
        """Delete documents; returns how many.

        Raises
        ------
        UnknownId
            An id is not there (unless ``missing_ok``); nothing was deleted.
        """
        names = check_ids(ids)
        with self._writing:
            numbers = mutations.find_docids(self._latest(), names, missing_ok=missing_ok)
            if len(numbers):
                self._commit(mutations.make_deletion(numbers))
        return len(numbers)

    def build_cells(
        self,
        *,
        images: Any,
        texts: Any,
        n_cells: int | None = None,
        recall: float = 0.95,
        groups: Any = None,
        callback: ProgressCallback | None = None,
    ) -> None:
        """Put the documents into cells (IVF), so that a search looks at few of them: docs/cells.md.

        Parameters
        ----------
        images : (n, d_I) features
        texts : (n, d_T) features
            Pairs, row by row, from which it is learned which cells a query of the other kind visits; best
            not those that the model was fitted on. Some are held out, and the curve is measured on them.
        n_cells : int, optional
            Cells of images, and of texts; None for four times the root of their number.
        recall : float
            How much of what the exhaustive search finds a search is to keep: of true partners among the
            first ten where enough are found, else of the first ten.
        groups : (n,) labels, optional
            Rows of one group (captions of one picture) are held out together.
        callback : callable, optional
            Called with a :class:`crossbyte.progress.Progress` after every step.

        Raises
        ------
        InvalidInput
            Fewer than 20 pairs, no documents, or more cells than documents; nothing was written.
        """
        wanted = check_number(recall, "recall", 0.0, 1.0, open_low=True)
        request = CellRequest(images, texts, n_cells, wanted, groups)
        with self._writing:
            self._latest()
            state = build_cell_state(
                self.model, self.snapshot(), self._n_threads, request, callback or ignore_progress
            )
            self._commit(Commit([state.to_record()]))

    def drop_cells(self) -> None:
        """Forget the cells, and search everything again; the file keeps the bytes until it is compacted."""
        self._write(mutations.make_cell_removal)

    def compact(self) -> None:
        """Forget deleted documents and old payloads, and make the file small; numbers stay.

        Other threads go on writing while the new segments are made; they wait while these are written.
        Readers of earlier generations get :class:`StaleReader` from then on, and :meth:`refresh` helps.

        Raises
        ------
        ReadOnlyIndex, WriteRefused, IndexBusy
        StorageFull
            There must be room for the file once more, or twice. Nothing was changed, and writing goes on.
        StorageFailed
            As in :meth:`add`.
        """
        with self._compacting:
            with self._writing:
                before = self._latest().without_caches()
            compaction = mutations.make_compaction(before)
            with self._writing:
                now = self._latest()
                if now.generation != before.generation:
                    caught_up = mutations.catch_up(compaction, before, now)
                    compaction = caught_up or mutations.make_compaction(now.without_caches())
                self._store.replace(*compaction)
                self.refresh()

    # Answers

    def snapshot(self) -> Snapshot:
        """Give the documents of the generation that is seen: see :meth:`Reader.snapshot`."""
        return self._retry_after_own_merge(super().snapshot)

    def _answer(self, question: Callable[[SearchBackend], T], *, payloads: bool = False) -> T:
        return self._retry_after_own_merge(lambda: super(Index, self)._answer(question, payloads=payloads))

    def _retry_after_own_merge(self, ask: Callable[[], T]) -> T:
        """Ask again where a commit of this very handle has merged what was being read."""
        for _ in range(_TRIES):
            try:
                return ask()
            except StaleReader:
                if not self._store.writable:
                    raise
                with self._writing:  # until its generation is seen
                    pass
        return ask()

    # Commits

    def _add_all(
        self,
        ids: Any,
        documents: DocumentFields,
        callback: ProgressCallback | None,
        *,
        replacing: bool,
        cluster: str | None,
    ) -> int:
        def add(batch: Batch) -> None:
            self._write(
                lambda snapshot: mutations.make_addition(
                    snapshot, self.model, batch, callback, replacing=replacing, cluster=cluster
                )
            )

        return mutations.add_batches(self.model, self.format, ids, documents, cluster, add)

    def _write(self, change: Callable[[Snapshot], Commit | None]) -> None:
        """Apply a change to the newest generation, and commit what it gives, if anything."""
        with self._writing:
            commit = change(self._latest())
            if commit is not None:
                self._commit(commit)

    def _latest(self) -> Snapshot:
        """Give what the next write builds on, a commit included whose end was interrupted before it was seen.

        Raises
        ------
        ReadOnlyIndex
        """
        if not self._store.writable:
            raise ReadOnlyIndex(f'{self.path}: opened for reading; open it with mode="rw" to write')
        self.refresh()
        return self._seen

    def _commit(self, commit: Commit) -> None:
        """Write records, segments and payloads as one commit, and go on to its generation."""
        snapshot, segments = self._seen, commit.segments
        written = [*commit.records, *(segment.to_record() for segment in segments)]
        following = snapshot.catalogue.next_number if commit.next_number is None else commit.next_number
        catalogue = self._store.commit(Change(written, commit.payloads, following, words=commit.words))
        with self._store.reading():
            known = self._store.records(after=snapshot.last_record)
            self._seen = snapshot.next(catalogue, known, segments)
        self._merge_if_due()

    def _merge_if_due(self) -> None:
        """Merge the records of small commits, now and then; a commit of its own, which may as well fail."""
        self._until_merge -= 1
        if self._until_merge > 0 or self._compacting.locked():
            return
        self._until_merge = max(1, merging.MERGED_AT_ONCE // 4)  # commits, before it looks again
        with suppress(IndexFileError, MemoryError):
            merge = merging.make_merge(self._store, len(self.model.image_codebooks_))
            if merge is None:
                return
            following = self._seen.catalogue.next_number
            catalogue = self._store.merge(merge.drop, merge.records, following)
            with self._store.reading():
                written = self._store.records(after=self._seen.last_record)
                self._seen = merging.put_merge(self._seen, catalogue, written, merge)


def _check_words(words: Sequence[str] | WordSettings) -> WordSettings:
    """Check which words are kept; with fields alone, the rest is as usual."""
    if isinstance(words, WordSettings):
        return replace(words, fields=check_word_fields(words.fields))
    return WordSettings(check_word_fields(words))


def check_format(format: int | None, model: CMCQ, words: Sequence[str] | None = None) -> int:
    """Check the format of a new index; None for the one that fits the model, and words that are searched."""
    if format is None:
        return WORDS_FORMAT if words else 2 if model.fitted_.has_document_codes else 1
    wanted = check_integer(format, "format", FORMATS[0], FORMATS[-1])
    if words and wanted < WORDS_FORMAT:
        raise InvalidInput(f"words: expected format {WORDS_FORMAT}, which keeps them, got {wanted}")
    if wanted == WORDS_FORMAT and not words:
        raise InvalidInput(f"format: expected words= (payload fields) with format {WORDS_FORMAT}, got none")
    return wanted


def _copy_model(model: CMCQ, n_jobs: int | None) -> CMCQ:
    copy: CMCQ = CMCQ.from_bytes(model.to_bytes()).set_params(n_jobs=n_jobs)
    return copy
