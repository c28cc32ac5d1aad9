"""Index: documents of a fitted model in one file, added, changed and searched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, Unpack

from crossbyte.errors import InvalidInput, ReadOnlyIndex
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import ProgressCallback, silent
from crossbyte.search import changes
from crossbyte.search.batch import Batch, Documents, check_payloads
from crossbyte.search.cells.building import CellRequest, build_cell_state
from crossbyte.search.changes import Commit
from crossbyte.search.ids import check_ids
from crossbyte.search.loading import load_model, model_record
from crossbyte.search.numbers import Numbers
from crossbyte.search.reader import Path, Reader
from crossbyte.search.snapshot import Snapshot
from crossbyte.search.storage.store import Change, Store
from crossbyte.validation import check_choice, check_number

__all__ = ["Index"]


class Index(Reader):
    """A fitted model's documents in one file; made by :meth:`create`, :meth:`open` or :meth:`from_training`.

    Everything that a call writes is on the disk when it returns, or nothing of it is in the file. A handle
    sees one committed generation: its own writes at once, those of others after :meth:`refresh`. Searches
    may run in many threads.
    """

    # Opening

    @classmethod
    def create(cls, path: Path, model: CMCQ, *, n_jobs: int | None = None) -> Self:
        """Make an empty index for a fitted model, and open it for writing.

        Parameters
        ----------
        path : path-like
            Nothing may be there yet.
        model : CMCQ
            Fitted; a copy of it becomes part of the file.
        n_jobs : int or None
            Threads; None for all cores. No answer depends on it.

        Raises
        ------
        IndexExists, IndexLocked, NotFitted, ReadOnlyIndex, StorageFull
        """
        if not isinstance(model, CMCQ):
            raise InvalidInput(f"model: expected a fitted CMCQ, got {type(model).__name__}")
        own = _copied(model, n_jobs)
        return cls(Store.create(path, [model_record(model)]), own, n_jobs)

    @classmethod
    def open(
        cls, path: Path, mode: str = "r", *, model: CMCQ | None = None, n_jobs: int | None = None
    ) -> Self:
        """Open an index for reading (``"r"``) or as its only writer (``"rw"``).

        Codes, ids and model are read into memory and verified; payloads and columns when they are read.

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
        n_jobs: int | None = None,
    ) -> Self:
        """Make an index of the training documents with their learned codes: the paper's search.

        Parameters
        ----------
        ids : sequence of str or int, optional
            One per training pair; None for 0, 1, 2, …
        payloads, groups
            As in :meth:`add`.
        """
        if not isinstance(model, CMCQ):
            raise InvalidInput(f"model: expected a fitted CMCQ, got {type(model).__name__}")
        documents = Documents(image_codes=model.image_codes_, text_codes=model.text_codes_)
        documents |= Documents(payloads=payloads, groups=groups)
        names = range(len(model.image_codes_)) if ids is None else ids
        batch = Batch.check(model, names, documents, coding="training")
        numbers = Numbers(0, len(batch.ids))
        segments = batch.segments(batch.codes(model), numbers)
        records = [model_record(model), *(segment.to_record() for segment in segments)]
        store = Store.create(path, records, batch.payload_rows(numbers), numbers.end)
        return cls(store, _copied(model, n_jobs), n_jobs)

    # Writing

    def add(
        self,
        ids: Any,
        *,
        images: Any = None,
        texts: Any = None,
        image_codes: Any = None,
        text_codes: Any = None,
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
            Documents with both are folded in as pairs: each code knows the other half.
        image_codes, text_codes : (n, M) uint8, optional
            Ready codes instead of features.
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
        DuplicateId, InvalidInput, PayloadTooLarge
            Before anything is written.
        ReadOnlyIndex, WriteRefused, StorageFull
            Nothing was changed.
        ClusterError, MissingExtra
            There is no such cluster, or it was lost while it worked; nothing was changed.
        StorageFailed
            The system failed to write. Nothing was changed, or, if only its last flush failed, everything;
            this handle writes no more, and opening the index again tells.
        """
        documents = Documents(images=images, texts=texts, image_codes=image_codes, text_codes=text_codes)
        documents |= Documents(payloads=payloads, groups=groups)
        return self._add_all(ids, documents, callback, replacing=False, cluster=cluster)

    def upsert(
        self,
        ids: Any,
        *,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
        **documents: Unpack[Documents],
    ) -> int:
        """Add documents, in the place of those that have the same ids; parameters as in :meth:`add`.

        A replaced document is gone altogether, its payload and group too, and the new one has a new number.
        """
        return self._add_all(ids, documents, callback, replacing=True, cluster=cluster)

    def update_payloads(self, ids: Any, payloads: Any) -> int:
        """Replace the payloads of documents and keep their codes and numbers; None removes a payload."""
        names = check_ids(ids)
        checked = check_payloads(payloads, len(names))
        self._write(lambda snapshot: changes.update_payloads(snapshot, names, checked))
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
            numbers = changes.numbers_of(self._latest(), names, missing_ok=missing_ok)
            if len(numbers):
                self._commit(changes.delete(numbers))
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
        """Put the documents into cells, so that a search looks at few of them: docs/cells.md.

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
            state = build_cell_state(self.model, self.snapshot(), self.n_threads, request, callback or silent)
            self._commit(Commit([state.to_record()]))

    def drop_cells(self) -> None:
        """Search everything again; the file keeps the bytes until it is compacted."""
        self._write(changes.drop_cells)

    def compact(self) -> None:
        """Forget deleted documents and old payloads, and make the file small; numbers stay.

        Readers of earlier generations get :class:`StaleReader` from then on, and :meth:`refresh` helps.
        """
        with self._writing:
            self._store.replace(*changes.compact(self._latest().unread()))
            self.refresh()

    # Commits

    def add_batch(
        self,
        batch: Batch,
        callback: ProgressCallback | None = None,
        *,
        replacing: bool,
        numbers: Numbers | None = None,
        cluster: str | None = None,
    ) -> int:
        """Add documents that are judged already, in one commit; parameters as in :meth:`add`.

        Parameters
        ----------
        batch : Batch
        replacing : bool
            Whether documents of the same ids make room.
        numbers : Numbers, optional
            Those of the documents: a shard is told them, so that they are unique over all shards.

        Returns
        -------
        int
            How many documents were added.
        """
        self._write(
            lambda snapshot: changes.add(
                snapshot, self.model, batch, callback, replacing=replacing, numbers=numbers, cluster=cluster
            )
        )
        return len(batch.ids)

    def _add_all(
        self,
        ids: Any,
        documents: Documents,
        callback: ProgressCallback | None,
        *,
        replacing: bool,
        cluster: str | None,
    ) -> int:
        batches = changes.batches_of(self.model, ids, documents)
        with changes.coding_on(cluster, ids, self.model):
            return sum(
                self.add_batch(batch, callback, replacing=replacing, cluster=cluster) for batch in batches
            )

    def _write(self, change: Callable[[Snapshot], Commit | None]) -> None:
        """Commit what a change of the newest generation writes, if that is anything."""
        with self._writing:
            commit = change(self._latest())
            if commit is not None:
                self._commit(commit)

    def _latest(self) -> Snapshot:
        """What the next write builds on; a write whose end was interrupted may not have been seen yet."""
        if not self._store.writable:
            raise ReadOnlyIndex(f'{self.path}: opened for reading; open it with mode="rw" to write')
        self.refresh()
        return self._seen

    def _commit(self, commit: Commit) -> None:
        """Write records, segments and payloads as one commit, and see it."""
        snapshot, segments = self._seen, commit.segments
        written = [*commit.records, *(segment.to_record() for segment in segments)]
        following = snapshot.catalogue.next_number if commit.next_number is None else commit.next_number
        catalogue = self._store.commit(Change(written, commit.payloads, following))
        with self._store.reading():
            known = self._store.records(after=snapshot.last_record)
            self._seen = snapshot.next(catalogue, known, segments)


def _copied(model: CMCQ, n_jobs: int | None) -> CMCQ:
    copy: CMCQ = CMCQ.from_bytes(model.to_bytes()).set_params(n_jobs=n_jobs)
    return copy
