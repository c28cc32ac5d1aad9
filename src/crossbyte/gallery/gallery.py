"""Search and change an index with words and pictures, encoded as the model's features were."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeGuard, cast, overload

import numpy as np

from crossbyte.arrays import Raw
from crossbyte.data.images.formats import Picture
from crossbyte.encoders.builtin_text import split_words
from crossbyte.errors import DuplicateId, InvalidInput, MissingExtra, NoEncoder, WrongEncoder
from crossbyte.gallery.companion import CompanionFiles, Thumbnail, Thumbnails, replace_thumbnails
from crossbyte.index.docids import Id, check_ids
from crossbyte.index.hits import Hits
from crossbyte.index.index import Index
from crossbyte.index.lexical import name_as_typed
from crossbyte.model.estimator import CMCQ

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from crossbyte.data.images.reader import PictureReader
    from crossbyte.encoders.base import Encoder, EncoderState
    from crossbyte.index.explain.explanation import Explanation
    from crossbyte.sharding.index import ShardedIndex

PathLike = str | os.PathLike[str]
PictureLike: TypeAlias = "bytes | PathLike | Picture | Image | NDArray[np.uint8]"
"""A picture, as programs have one: a file, its bytes, a Pillow image, an array, or one that was read."""
Searchable: TypeAlias = "Index | ShardedIndex"
"""An open index: read, followed, and written where it was opened for that."""
_SHARD_SECONDS = 10.0  # for a shard to answer: whoever waits for all of them must have time left
# Ours, which keep nothing between calls, and sessions of ONNX Runtime, which may be shared.
_SHAREABLE = ("builtin", "clip", "onnx", "static")
_IN_FILES = ("clip", "onnx", "onnx-text")


class NewDocument(NamedTuple):
    """A document on its way into an index.

    Attributes
    ----------
    id : str or int
    picture : Picture, optional
    text : str, optional
        Kept in the payload, as the first of its ``captions`` unless it is one of them already, so that a
        document is found by its own words, too.
    image_features, text_features : (d,) features, optional
        Instead of the picture or the text.
    payload : dict, optional
    group : str or int, optional
    """

    id: Id
    picture: Picture | None = None
    text: str | None = None
    image_features: Any = None
    text_features: Any = None
    payload: Mapping[str, Any] | None = None
    group: Id | None = None


class Gallery:
    """An index with the encoders that made its features, and the files beside it.

    Searches, encoding and thumbnails may run in many threads; writes, too, one after another.

    Attributes
    ----------
    index : Searchable
        An Index, or a ShardedIndex.
    files : CompanionFiles
        Names of the files beside the index.
    """

    def __init__(self, index: Searchable, given: Mapping[str, str]) -> None:
        self.index, self.files = index, CompanionFiles.of(index.path)
        self._encoders = LazyEncoders(index.model, given, self.files.local_encoders())
        self._thumbnails: Thumbnails | None = None
        self._training: list[Id] | None = None
        self._reader: PictureReader | None = None
        self._opening, self._writing = threading.Lock(), threading.Lock()

    @classmethod
    def open(
        cls,
        path: PathLike,
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
            For a folder of shards: "local" or an address, as in :func:`crossbyte.gallery.gallery.open_index`.

        Raises
        ------
        The errors of :func:`crossbyte.gallery.gallery.open_index`.
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
        """The encoders that made the features, by side; empty for an index of plain features."""
        return self._encoders.states

    def encode_texts(self, texts: Sequence[str]) -> Raw:
        """Give the features (n, d_T) of texts.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        return self._encoders.encode("text", texts)

    def encode_questions(self, texts: Sequence[str], mode: str | None) -> Raw:
        """Give the features (n, d_T) of questions; words alone are answered without an encoder, too.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
            The encoder is not at hand, and vectors are asked.
        """
        try:
            return self.encode_texts(texts)
        except (NoEncoder, WrongEncoder, MissingExtra) as error:
            if mode == "words":
                return np.zeros((len(texts), self.index.model.n_text_features_), dtype=np.float32)
            if self.index.word_fields:
                raise type(error)(f'{error}; words alone are searched without it: mode "words"') from error
            raise

    def encode_pictures(self, pictures: Sequence[Picture]) -> Raw:
        """Give the features (n, d_I) of pictures.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        return self._encoders.encode("image", [picture.pixels for picture in pictures])

    def read_picture(self, source: PictureLike) -> Picture:
        """Decode a picture, in another process and within limits; or take one that is in memory.

        Parameters
        ----------
        source : bytes of a file, its path, a Pillow image, or pixels (h, w[, channels]) uint8
            A :class:`Picture` is given back as it is.

        Raises
        ------
        PictureError, FileNotFoundError, InvalidInput
        """
        from crossbyte.data.images.in_memory import is_in_memory, take_picture
        from crossbyte.data.images.reader import PictureReader

        if isinstance(source, Picture):
            return source
        if is_in_memory(source):
            return take_picture(source)
        if not isinstance(source, bytes | str | os.PathLike):
            raise InvalidInput(
                "image: expected the path of a picture, the bytes of its file, a Pillow image, pixels, or "
                f"what read_picture(…) gave, got {type(source).__name__}"
            )
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
        """Name the words of a text that the built-in encoder does not know; None of another encoder."""
        known = self.vocabulary()
        if known is None:
            return None
        words: list[str] = getattr(self.encoder("text"), "words_of")(text)  # noqa: B009
        pieces = set(split_words(text, pairs=False))  # a pair of characters need not be a word
        return name_as_typed(text, [word for word in words if word not in known and word in pieces])

    # Searching

    @overload
    def search(
        self, *, text: str | None = None, image: PictureLike | None = None, **options: Any
    ) -> Hits: ...

    @overload
    def search(self, *, text: Sequence[str], **options: Any) -> list[Hits]: ...

    @overload
    def search(self, *, image: Sequence[PictureLike], **options: Any) -> list[Hits]: ...

    def search(
        self,
        *,
        text: str | Sequence[str] | None = None,
        image: PictureLike | Sequence[PictureLike] | None = None,
        **options: Any,
    ) -> Hits | list[Hits]:
        """Answer one query, or a list of them.

        Parameters
        ----------
        text : str or list of str
        image : path, bytes of a file, Pillow image, pixels (h, w[, channels]) uint8, or a list of these
            Give one of the two, or one query of :meth:`crossbyte.Index.search`: ``like``, or features.
        **options
            ``target``, ``k``, ``where``, ``mode`` and the others of :meth:`crossbyte.Index.search`. A text
            is searched by its words and by its meaning, unless ``mode`` is "words" or "vectors".

        Returns
        -------
        Hits
            A list of them, one per query, where a list was given.

        Raises
        ------
        NoEncoder, WrongEncoder, PictureError, InvalidInput
        """
        query = self._query(text, image, options.get("mode"))
        answers = self.index.search(**query, **options)
        if "words" in query:
            asked = zip(answers, query["words"], strict=True)
            answers = [self.name_unknown_words(hits, words) for hits, words in asked]
        if not isinstance(text, str | None) or _is_list(image):
            return answers
        if len(answers) != 1:
            raise InvalidInput(f"expected one query, got {len(answers)}; ask one by one")
        return answers[0]

    def name_unknown_words(self, hits: Hits, text: str) -> Hits:
        """Name the words of a text that no caption had, in an answer of an index that keeps no words itself.

        These are the words that the built-in encoder has not learned; with another encoder, nothing is known.
        """
        if hits.unknown_words is not None or self.index.word_fields:
            return hits
        return replace(hits, unknown_words=self.unknown_words(text))

    def explain(
        self,
        id: Id,
        *,
        text: str | None = None,
        image: PictureLike | None = None,
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
        query = self._query(text, image)
        query.pop("words", None)  # distances alone are explained
        return self.index.explain(id, **query, **options)

    def vocabulary(self) -> Mapping[str, int] | None:
        """Give the column of every known word, where the built-in encoder made the text features."""
        state = self.encoders.get("text")
        if state is None or not state.kind.startswith("builtin"):
            return None
        words: Mapping[str, int] | None = getattr(self.encoder("text"), "vocabulary")()  # noqa: B009
        return words

    def _query(
        self,
        text: str | Sequence[str] | None,
        image: PictureLike | Sequence[PictureLike] | None,
        mode: str | None = None,
    ) -> dict[str, Any]:
        """Encode the queries, as arguments of :meth:`crossbyte.Index.search`."""
        if text is not None and image is not None:
            raise InvalidInput("expected one kind of query, got a text and a picture; ask with one of them")
        if text is not None:
            words = _check_words(text)
            return {"texts": self.encode_questions(words, mode), "words": words}
        if image is None:
            return {}
        pictures = image if _is_list(image) else [cast("PictureLike", image)]
        if not pictures:
            raise InvalidInput("image: expected some pictures, got an empty list; leave the search out")
        return {"images": self.encode_pictures([self.read_picture(each) for each in pictures])}

    # Files beside the index

    def thumbnail(self, id: Id) -> bytes | None:
        """Give a document's small picture (JPEG), or None."""
        found = self._open_thumbnails()
        return None if found is None else found.get(id)

    @property
    def has_thumbnails(self) -> bool:
        """Whether there are thumbnails."""
        return self._open_thumbnails() is not None

    def audit(self) -> dict[str, Any] | None:
        """Give the pairs that looked wrong when the index was made, the most surprising first, or None."""
        return self.files.audit()

    def training_id(self, row: int) -> Id | None:
        """Give the document of a row that the model was fitted on (explanations name such rows), or None."""
        with self._opening:
            if self._training is None:
                self._training = self.files.training() or []
            return self._training[row] if 0 <= row < len(self._training) else None

    def _open_thumbnails(self) -> Thumbnails | None:
        with self._opening:
            if self._thumbnails is None:
                self._thumbnails = Thumbnails.open(self.files.thumbnails)
            return self._thumbnails

    # Changing

    def add(self, documents: Sequence[NewDocument], *, upsert: bool = False, codes: str | None = None) -> int:
        """Add documents; those with the same sides are one commit.

        Parameters
        ----------
        documents : sequence of NewDocument
        upsert : bool
            Replace documents of the same ids.
        codes : {"document", "sides"}, optional
            As in :meth:`crossbyte.Index.add`.

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
            blocks = make_blocks(given, self.encode_pictures, self.encode_texts)
            write = self.index.upsert if upsert else self.index.add
            added = sum(write(**block, codes=codes) for block in blocks)
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
            if self.files.thumbnails.is_file():
                replace_thumbnails(self.files.thumbnails, names, [])
        return deleted

    def _keep_thumbnails(self, documents: Sequence[NewDocument]) -> None:
        pictures = [(document.id, document.picture) for document in documents]
        made = [Thumbnail(id, each.digest, each.thumbnail) for id, each in pictures if each is not None]
        if made or self.files.thumbnails.is_file():
            self.files.make()
            replace_thumbnails(self.files.thumbnails, [document.id for document in documents], made)


def _check_words(text: Any) -> list[str]:
    """Check one text, or some, and give a list of them."""
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, list | tuple) and hasattr(texts, "tolist"):  # an array, a column of a table
        texts = texts.tolist()
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        kinds = sorted({type(each).__name__ for each in texts}) if isinstance(texts, list | tuple) else []
        got = f"a list of {', '.join(kinds)}" if kinds else type(text).__name__
        raise InvalidInput(f"text: expected a text as str, or a list of such texts, got {got}")
    if not texts:
        raise InvalidInput("text: expected some texts, got an empty list; leave the search out")
    if not all(map(str.strip, texts)):
        raise InvalidInput("text: expected some words, got none; say what the picture shows")
    return list(texts)


def _is_list(image: Any) -> TypeGuard[Sequence[PictureLike]]:
    return isinstance(image, list | tuple) and not isinstance(image, Picture)


def is_sharded(path: PathLike) -> bool:
    """Say whether a path is a folder of shards, by its name (``photos.cbs``) or the manifest inside."""
    name = os.path.realpath(os.fspath(path))
    return os.path.isdir(name) and (
        name.endswith(".cbs") or os.path.isfile(os.path.join(name, "shards.json"))
    )


def open_index(
    path: PathLike,
    mode: str = "r",
    *,
    model: CMCQ | None = None,
    cluster: str | None = None,
    n_jobs: int | None = None,
) -> Searchable:
    """Open an index, of one file or of many shards.

    Parameters
    ----------
    path : path-like
        A file, or a folder of shards.
    mode : {"r", "rw"}
    model : CMCQ, optional
        The model that the index must have been made with.
    cluster : str, optional
        Of shards only: "local" starts Ray here, else the address of one that runs. None: all in this process.
    n_jobs : int or None
        Threads; None for all cores.

    Raises
    ------
    InvalidInput
        A cluster was named for an index of one file.
    ClusterError, MissingExtra
        There is no such cluster, or Ray is not installed.
    The errors of :meth:`crossbyte.Index.open`.
    """
    if is_sharded(path):
        from crossbyte.sharding.index import ShardedIndex

        return ShardedIndex.open(
            path, mode, model=model, cluster=cluster, n_jobs=n_jobs, timeout=_SHARD_SECONDS
        )
    if cluster is not None and os.path.exists(path):
        raise InvalidInput(
            f"cluster: expected a folder of shards to spread over it, got the single file {os.fspath(path)}; "
            "cut it with crossbyte shard (crossbyte.split_index in Python), or leave the cluster out"
        )
    return Index.open(path, mode, model=model, n_jobs=n_jobs)


class LazyEncoders:
    """Encodes texts and pictures with the model's encoders, which are loaded when first needed.

    Parameters
    ----------
    model : CMCQ
        Holds the state of its encoders, unless it was fitted on plain features.
    given : mapping of side to str
        Where the user says an encoder is.
    local : mapping of side to str
        Where one was found before on this machine, unless the user says otherwise.
    """

    def __init__(self, model: CMCQ, given: Mapping[str, str], local: Mapping[str, str]) -> None:
        self.states = model.encoder_states_
        self._widths = {"image": model.n_features_in_, "text": model.n_text_features_}
        self._given, self._local = given, local
        self._made: dict[str, Encoder] = {}
        self._making, self._busy = threading.Lock(), threading.Lock()

    def get(self, side: str) -> Encoder:
        """Give the encoder of a side.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        with self._making:
            if side not in self._made:
                self._made[side] = self._make(side)
            return self._made[side]

    def encode(self, side: str, items: Sequence[Any]) -> Raw:
        """Encode texts, or pictures as arrays of pixels; any thread may call it."""
        encoder = self.get(side)
        if encoder.state.kind.startswith(_SHAREABLE):
            return encoder.encode(items)
        with self._busy:
            return encoder.encode(items)

    def _make(self, side: str) -> Encoder:
        from crossbyte.encoders.registry import restore_encoder

        if side in self.states:
            state = self.states[side]
            if side not in self._given and side in self._local and state.kind in _IN_FILES:
                with suppress(FileNotFoundError):  # moved since: then say which option brings it
                    return restore_encoder(state, side, self._local[side])
            return restore_encoder(state, side, self._given.get(side))
        if side not in self._given:
            what = "pictures" if side == "image" else "texts"
            raise NoEncoder(
                f"this index was made from features, and says of no encoder that makes them from {what}; "
                f"ask with features, or name it with --{side}-encoder"
            )
        return self._make_given(side, self._given[side])

    def _make_given(self, side: str, spec: str) -> Encoder:
        """Make the user's encoder for a model of plain features; only its width can be checked."""
        from crossbyte.encoders.registry import make_encoder

        if spec == "builtin":
            raise NoEncoder(
                f"{side} encoder: the built-in one learns from the pairs of its model, and this model has "
                "none; name the encoder that made the features"
            )
        made = make_encoder(spec, side, ())
        if made.state.dimension != self._widths[side]:
            raise WrongEncoder(
                f"{side} encoder: expected features of the model's width {self._widths[side]}, got "
                f"{made.state.name!r} with {made.state.dimension}; name the encoder that made the features"
            )
        return made


def make_blocks(
    documents: Sequence[NewDocument],
    encode_pictures: Callable[[Sequence[Picture]], Raw],
    encode_texts: Callable[[Sequence[str]], Raw],
) -> list[dict[str, Any]]:
    """Give the arguments of ``Index.add`` for documents; those of the same sides come together."""
    return [_make_block(some, encode_pictures, encode_texts) for some in _group_by_sides(documents)]


def _make_block(
    documents: Sequence[NewDocument],
    encode_pictures: Callable[[Sequence[Picture]], Raw],
    encode_texts: Callable[[Sequence[str]], Raw],
) -> dict[str, Any]:
    block: dict[str, Any] = {"ids": [document.id for document in documents]}
    block["payloads"] = [_make_payload(document) for document in documents]
    block["groups"] = [document.group for document in documents]
    sides = _list_sides(documents[0])
    if "image" in sides:
        pictures = [each.picture for each in documents if each.image_features is None and each.picture]
        made = encode_pictures(pictures) if pictures else None
        block["images"] = _interleave_rows([each.image_features for each in documents], made)
    if "text" in sides:
        texts = [each.text for each in documents if each.text_features is None and each.text is not None]
        made = encode_texts(texts) if texts else None
        block["texts"] = _interleave_rows([each.text_features for each in documents], made)
    return block


def _list_sides(document: NewDocument) -> tuple[str, ...]:
    has_image = document.picture is not None or document.image_features is not None
    has_text = document.text is not None or document.text_features is not None
    return tuple(side for side, has in (("image", has_image), ("text", has_text)) if has)


def _group_by_sides(documents: Sequence[NewDocument]) -> list[list[NewDocument]]:
    """Group documents by their sides, in the order of the first of each."""
    found: dict[tuple[str, ...], list[NewDocument]] = {}
    for document in documents:
        sides = _list_sides(document)
        if not sides:
            raise InvalidInput(f"document {document.id!r}: expected a picture, a text, or features, got none")
        found.setdefault(sides, []).append(document)
    return list(found.values())


def _make_payload(document: NewDocument) -> dict[str, Any] | None:
    payload = None if document.payload is None else dict(document.payload)
    if document.text is None or not document.text.strip():
        return payload
    given = (payload or {}).get("captions")
    captions = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(captions, list):
        raise InvalidInput(
            f"document {document.id!r}: expected captions to be a text or a list of texts, with which its "
            f"own text is kept, got {given!r}; give them another name in the payload"
        )
    own = captions if document.text in captions else [document.text, *captions]
    return {"captions": own} if payload is None else payload | {"captions": own}


def _interleave_rows(given: Sequence[Any], made: Raw | None) -> Raw:
    """Interleave rows that were encoded with rows that came as features."""
    if made is not None and all(row is None for row in given):
        return made
    rows, fresh = [], iter(range(0 if made is None else made.shape[0]))
    for row in given:
        chosen: Any = made[[next(fresh)]] if row is None and made is not None else row
        dense = chosen.toarray() if hasattr(chosen, "toarray") else np.asarray(chosen)
        rows.append(dense.reshape(1, -1))
    if len({row.shape[1] for row in rows}) != 1:
        raise InvalidInput("expected features of one width, got several; give as many numbers for each")
    return np.concatenate(rows)
