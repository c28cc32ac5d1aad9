"""Gallery: an index that is asked, and filled, with words and pictures."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from crossbyte.arrays import Raw
from crossbyte.errors import DuplicateId, InvalidInput
from crossbyte.gallery.beside import Beside
from crossbyte.gallery.doubt import Verdict, telling, verdict
from crossbyte.gallery.new_documents import NewDocument, blocks_of
from crossbyte.gallery.opening import Path, Searchable, open_index
from crossbyte.gallery.restored import Encoders
from crossbyte.gallery.thumbnails import Thumbnail, Thumbnails, exchange
from crossbyte.search.hits import Hits
from crossbyte.search.ids import Id, check_ids

if TYPE_CHECKING:
    from crossbyte.data.pictures.picture import Picture
    from crossbyte.data.pictures.reader import PictureReader
    from crossbyte.encoders.protocol import Encoder, EncoderState
    from crossbyte.search.explanations.explanation import Explanation

__all__ = ["Gallery", "NewDocument"]


class Gallery:
    """An index with the encoders that made its features, and the files beside it.

    Searches, encoding and thumbnails may run in many threads; writes, too, one after another.

    Attributes
    ----------
    index : Searchable
        An Index, or a ShardedIndex.
    beside : CompanionFiles
        Names of the files beside the index.
    """

    def __init__(self, index: Searchable, given: Mapping[str, str]) -> None:
        self.index, self.beside = index, Beside.of(index.path)
        self._encoders = Encoders(index.model, given, self.beside.local_encoders())
        self._thumbnails: Thumbnails | None = None
        self._training: list[Id] | None = None
        self._reader: PictureReader | None = None
        self._opening, self._writing = threading.Lock(), threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        mode: str = "r",
        *,
        image_encoder: str | None = None,
        text_encoder: str | None = None,
        n_jobs: int | None = None,
        cluster: str | None = None,
    ) -> Self:
        """Open any index for reading (``"r"``) or as its only writer (``"rw"``).

        Parameters
        ----------
        path : path-like
        mode : {"r", "rw"}
        image_encoder, text_encoder : str, optional
            Where the encoder is, if the model cannot make it again by itself: the path of an ``.onnx`` file,
            ``"module:function"``, …. It must be the one that made the features.
        n_jobs : int or None
            Threads; None for all cores.
        cluster : str, optional
            For a folder of shards: "local" or an address, as in :func:`crossbyte.gallery.opening.open_index`.

        Raises
        ------
        The errors of :func:`crossbyte.gallery.opening.open_index`.
        """
        given = {"image": image_encoder, "text": text_encoder}
        index = open_index(path, mode, cluster=cluster, n_jobs=n_jobs)
        try:
            return cls(index, {side: spec for side, spec in given.items() if spec is not None})
        except BaseException:
            index.close()
            raise

    def close(self) -> None:
        """Close all files; may be called again."""
        with self._opening:
            if self._reader is not None:
                self._reader.close()
            if self._thumbnails is not None:
                self._thumbnails.close()
            self._reader = self._thumbnails = None
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Gallery({self.index.path!r}, {len(self)} documents, generation {self.index.generation})"

    def refresh(self) -> bool:
        """See what others have committed; returns whether there was anything new."""
        return self.index.refresh()

    # Encoding

    @property
    def encoders(self) -> Mapping[str, EncoderState]:
        """What made the features, by side; empty for an index of plain features."""
        return self._encoders.states

    def encode_texts(self, texts: Sequence[str]) -> Raw:
        """Give the features (n, d_T) of texts.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        return self._encoders.encode("text", texts)

    def encode_pictures(self, pictures: Sequence[Picture]) -> Raw:
        """Give the features (n, d_I) of pictures.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        return self._encoders.encode("image", [picture.pixels for picture in pictures])

    def read_picture(self, source: bytes | Path) -> Picture:
        """Decode a picture, in another process and within limits.

        Raises
        ------
        PictureError, FileNotFoundError
        """
        from crossbyte.data.pictures.reader import PictureReader

        with self._opening:
            if self._reader is None:
                self._reader = PictureReader()
            reader = self._reader
        return reader.read(source)

    def encoder(self, side: str) -> Encoder:
        """Give the encoder of a side ("image" or "text"), or say why it cannot be had.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        return self._encoders.get(side)

    def unknown_words(self, text: str) -> list[str] | None:
        """Words of a text that no caption had when the model was fitted; None where that is not known."""
        known = self.vocabulary()
        if known is None:
            return None
        words: list[str] = getattr(self.encoder("text"), "words_of")(text)  # noqa: B009
        return [word for word in words if word not in known]

    # Asking

    def search(
        self, *, text: str | None = None, image: bytes | Path | Picture | None = None, **options: Any
    ) -> Hits:
        """Answer one query.

        Parameters
        ----------
        text : str
        image : Picture, bytes of a file, or its path
            Give one of the two, or one query of :meth:`crossbyte.Index.search`: ``like``, or features.
        **options
            ``target``, ``k``, ``where`` and the others of :meth:`crossbyte.Index.search`.

        Raises
        ------
        NoEncoder, WrongEncoder, PictureError, InvalidInput
        """
        answers = self.index.search(**self._query(text, image), **options)
        if len(answers) != 1:
            raise InvalidInput(f"expected one query, got {len(answers)}; ask one by one")
        return answers[0]

    def verdict(self, keyword: str, target: str | None, hits: Hits, text: str | None = None) -> Verdict:
        """Judge whether anything of an answer matches, by all that the model knows of itself.

        Parameters
        ----------
        keyword : {"texts", "images", "like"}
            What was asked with, as :meth:`crossbyte.Index.search` calls it.
        target : {"image", "text", "document"} or None
            What was searched; None for the other side.
        hits : Hits
        text : str, optional
            The query, if it was asked in words.
        """
        if keyword == "like":  # there is always something that is most alike
            return "likely"
        query, other = ("image", "text") if keyword == "images" else ("text", "image")
        report = getattr(self.index.model, "report_", None)
        return verdict(hits, telling(report, query, target or other), len(self.index), text)

    def explain(
        self,
        id: Id,
        *,
        text: str | None = None,
        image: bytes | Path | Picture | None = None,
        **options: Any,
    ) -> Explanation:
        """Say why a document is as near to a query as it is; the words are those of the built-in encoder.

        Parameters
        ----------
        id : str or int
            Of the document.
        text, image
            As for :meth:`search`.
        **options
            Those of :meth:`crossbyte.Index.explain`.
        """
        if options.get("vocabulary") is None:
            options["vocabulary"] = self.vocabulary()
        return self.index.explain(id, **self._query(text, image), **options)

    def vocabulary(self) -> Mapping[str, int] | None:
        """Give the column of every known word, where the built-in encoder made the text features."""
        state = self.encoders.get("text")
        if state is None or not state.kind.startswith("builtin"):
            return None
        words: Mapping[str, int] | None = getattr(self.encoder("text"), "vocabulary")()  # noqa: B009
        return words

    def _query(self, text: str | None, image: bytes | Path | Picture | None) -> dict[str, Any]:
        if text is not None and image is not None:
            raise InvalidInput("expected one kind of query, got a text and a picture; ask with one of them")
        if text is not None:
            if not text.strip():
                raise InvalidInput("text: expected some words, got none; say what the picture shows")
            return {"texts": self.encode_texts([text])}
        if image is None:
            return {}
        picture = self.read_picture(image) if isinstance(image, bytes | str | os.PathLike) else image
        return {"images": self.encode_pictures([picture])}

    # What lies beside the index

    def thumbnail(self, id: Id) -> bytes | None:
        """Give a document's small picture (JPEG), or None."""
        found = self._shown()
        return None if found is None else found.get(id)

    @property
    def has_thumbnails(self) -> bool:
        """Whether there are any."""
        return self._shown() is not None

    def audit(self) -> dict[str, Any] | None:
        """Give the pairs that looked wrong when the index was made, the most surprising first, or None."""
        return self.beside.audit()

    def training_id(self, row: int) -> Id | None:
        """Give the document of a row that the model was fitted on (explanations name such rows), or None."""
        with self._opening:
            if self._training is None:
                self._training = self.beside.training() or []
            return self._training[row] if 0 <= row < len(self._training) else None

    def _shown(self) -> Thumbnails | None:
        with self._opening:
            if self._thumbnails is None:
                self._thumbnails = Thumbnails.open(self.beside.thumbnails)
            return self._thumbnails

    # Changing

    def add(self, documents: Sequence[NewDocument], *, upsert: bool = False) -> int:
        """Add documents; those with the same sides are one commit.

        Parameters
        ----------
        documents : sequence of NewDocument
        upsert : bool
            Replace documents of the same ids.

        Returns
        -------
        int
            How many were added.

        Raises
        ------
        DuplicateId, InvalidInput, NoEncoder
            Before anything is written.
        ReadOnlyIndex, StorageFull, StorageFailed
        """
        given = list(documents)
        ids = check_ids([document.id for document in given])
        with self._writing:
            there = [] if upsert else [id for id in ids if id in self.index]
            if there:
                raise DuplicateId(
                    f"ids: {there[0]!r} is in the index already; use add(…, upsert=True) to replace it"
                )
            blocks = blocks_of(given, self.encode_pictures, self.encode_texts)
            write = self.index.upsert if upsert else self.index.add
            added = sum(write(**block) for block in blocks)
            self._keep_thumbnails(given)
        return added

    def delete(self, ids: Iterable[Id], *, missing_ok: bool = False) -> int:
        """Delete documents and their thumbnails; returns how many.

        Raises
        ------
        UnknownId
            An id is not there (unless ``missing_ok``); nothing was deleted.
        """
        names = list(ids)
        with self._writing:
            deleted = self.index.delete(names, missing_ok=missing_ok)
            if self.beside.thumbnails.is_file():
                exchange(self.beside.thumbnails, names, [])
        return deleted

    def _keep_thumbnails(self, documents: Sequence[NewDocument]) -> None:
        pictures = [(document.id, document.picture) for document in documents]
        made = [Thumbnail(id, each.digest, each.thumbnail) for id, each in pictures if each is not None]
        if made or self.beside.thumbnails.is_file():
            self.beside.make()
            exchange(self.beside.thumbnails, [document.id for document in documents], made)
