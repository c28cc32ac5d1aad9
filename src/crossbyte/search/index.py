"""Index: documents of a fitted model in one file, added, changed and searched."""

from __future__ import annotations

from typing import Any, Self, Unpack

from crossbyte.errors import InvalidInput
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import ProgressCallback, silent
from crossbyte.search import changes, loading
from crossbyte.search.batch import Batch, Documents, check_payloads
from crossbyte.search.cells.building import CellRequest
from crossbyte.search.handle import Handle
from crossbyte.search.ids import check_ids
from crossbyte.search.numbers import Numbers
from crossbyte.search.reader import Path, Reader
from crossbyte.search.storage.store import Store
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
        return cls(Handle.of(Store.create(path, [loading.model_record(model)]), own, n_jobs))

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
            own = loading.load_model(store, model)
            if model is None:
                own.set_params(n_jobs=n_jobs)
        except BaseException:
            store.close()
            raise
        return cls(Handle.of(store, own, n_jobs))

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
        segments = batch.segments(batch.codes(model, silent), numbers)
        records = [loading.model_record(model), *(segment.to_record() for segment in segments)]
        store = Store.create(path, records, batch.payload_rows(numbers), numbers.end)
        return cls(Handle.of(store, _copied(model, n_jobs), n_jobs))

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
        return changes.add_all(
            self._handle, ids, documents, callback or silent, replacing=False, cluster=cluster
        )

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
        return changes.add_all(
            self._handle, ids, documents, callback or silent, replacing=True, cluster=cluster
        )

    def update_payloads(self, ids: Any, payloads: Any) -> int:
        """Replace the payloads of documents and keep their codes and numbers; None removes a payload."""
        names = check_ids(ids)
        return changes.update_payloads(self._handle, names, check_payloads(payloads, len(names)))

    def delete(self, ids: Any, *, missing_ok: bool = False) -> int:
        """Delete documents; returns how many.

        Raises
        ------
        UnknownId
            An id is not there (unless ``missing_ok``); nothing was deleted.
        """
        return changes.delete(self._handle, check_ids(ids), missing_ok=missing_ok)

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
        changes.build_cells(self._handle, request, callback or silent)

    def drop_cells(self) -> None:
        """Search everything again; the file keeps the bytes until it is compacted."""
        changes.drop_cells(self._handle)

    def compact(self) -> None:
        """Forget deleted documents and old payloads, and make the file small; numbers stay.

        Readers of earlier generations get :class:`StaleReader` from then on, and :meth:`refresh` helps.
        """
        changes.compact(self._handle)


def _copied(model: CMCQ, n_jobs: int | None) -> CMCQ:
    copy: CMCQ = CMCQ.from_bytes(model.to_bytes()).set_params(n_jobs=n_jobs)
    return copy
