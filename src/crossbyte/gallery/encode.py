"""Encode pictures and texts as features, batch by batch; what is known already is not encoded again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import crossbyte
from crossbyte.arrays import Raw
from crossbyte.compute.executor import available_cores
from crossbyte.data.captions.raw_documents import RawDocuments, Skipped
from crossbyte.encoders.base import Encoder, EncoderState
from crossbyte.errors import InvalidInput
from crossbyte.gallery.cache import FeatureCache, digest_file, digest_text
from crossbyte.gallery.companion import CompanionFiles, Thumbnail, Thumbnails
from crossbyte.index.docids import Id
from crossbyte.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from crossbyte.data.images.formats import Picture, PictureLimits
    from crossbyte.data.images.reader import PictureReader


BUILTIN = "builtin"
_BOTH_SIDES = ("image", "text")
_SAMPLE_PICTURES = 400  # a megabyte each while they are learned from
_SAMPLE_TEXTS = 200_000
_PICTURES_AT_ONCE = 16
_TEXTS_AT_ONCE = 256

Item = TypeVar("Item")


def drop_empty_captions(captions: Sequence[str]) -> list[str]:
    """Give the captions that are not blank."""
    return [caption for caption in captions if caption.strip()]


def mean_rows(rows: Raw, counts: Sequence[int]) -> Raw:
    """Average the first rows (n, d), the next, and so on: (len(counts), d), each of ``counts`` rows.

    The captions of a document are encoded one by one, as questions will be: an encoder of sentences places
    many sentences at once elsewhere than their mean.
    """
    sizes = np.asarray(counts)
    if (sizes == 1).all():
        return rows
    owners = np.repeat(np.arange(len(sizes)), sizes)
    shares = (1.0 / sizes[owners]).astype(np.float32)
    averages = sparse.csr_matrix((shares, (owners, np.arange(len(owners)))), shape=(len(sizes), len(owners)))
    means: Raw = averages @ rows
    return means


@dataclass(frozen=True)
class EncodingSession:
    """Hold what encoding works with, open files and processes; made by :meth:`open`.

    Attributes
    ----------
    cache : FeatureCache
    thumbnails : Thumbnails or None
        None where none are wanted.
    reader : PictureReader
    limits : PictureLimits
    callback : callable
    """

    cache: FeatureCache
    thumbnails: Thumbnails | None
    reader: PictureReader
    limits: PictureLimits
    callback: ProgressCallback

    @classmethod
    @contextmanager
    def open(
        cls, files: CompanionFiles, *, thumbnails: bool, n_jobs: int | None, callback: ProgressCallback
    ) -> Iterator[EncodingSession]:
        """Open everything, and close it after the block."""
        from crossbyte.data.images.formats import PictureLimits
        from crossbyte.data.images.reader import PictureReader

        files.make()
        limits = PictureLimits()
        n_children = available_cores() if n_jobs is None or n_jobs < 1 else n_jobs
        with ExitStack() as stack:
            cache = stack.enter_context(closing(FeatureCache(files.features)))
            small = stack.enter_context(closing(Thumbnails.write(files.thumbnails))) if thumbnails else None
            reader = stack.enter_context(PictureReader(limits=limits, n_children=n_children))
            yield cls(cache, small, reader, limits, callback)

    def digest(self, path: Path) -> str | None:
        """Compute the digest of a picture's file, before it is decoded."""
        return digest_file(path, self.limits.max_bytes)

    def has_thumbnail(self, id: Id, digest: str) -> bool:
        """Say whether a document's thumbnail need not be made."""
        return self.thumbnails is None or self.thumbnails.digest(id) == digest

    def keep(
        self, encoder: EncoderState, ids: Sequence[Id], pictures: Sequence[Picture], features: Raw
    ) -> None:
        """Keep the features and thumbnails of pictures."""
        digests = [picture.digest for picture in pictures]
        self.cache.put(encoder, digests, features)
        if self.thumbnails is not None:
            made = zip(ids, pictures, strict=True)
            self.thumbnails.put([Thumbnail(id, each.digest, each.thumbnail) for id, each in made])


class EncodedItems(NamedTuple):
    """Items that were encoded, by the digests under which their features are kept.

    Attributes
    ----------
    encoder : EncoderState
    digests : list of str or None
        Under which the features are kept; None for a picture that cannot be read.
    reasons : dict of int to str
        Why pictures, by their place, cannot be read.
    """

    encoder: EncoderState
    digests: list[str | None]
    reasons: dict[int, str]


# Encoders


def learn_picture_encoder(
    session: EncodingSession, ids: Sequence[Id], paths: Sequence[Path], seed: int
) -> Encoder:
    """Give the built-in encoder, which learns from a sample of the pictures, or has done so before."""
    from crossbyte.encoders.registry import make_encoder

    chosen = _choose_sample(len(paths), _SAMPLE_PICTURES, seed)
    key = _make_sample_key("image", [session.digest(paths[at]) or "" for at in chosen])
    if (known := _find_learned_encoder(session, key, "image")) is not None:
        return known
    found = _read_sample(session, [ids[at] for at in chosen], [paths[at] for at in chosen])
    made = make_encoder(BUILTIN, "image", [picture.pixels for _, picture in found])
    session.cache.keep_encoder(key, "image", made.state)
    done = 0
    for batch in _iterate_batches(found, _PICTURES_AT_ONCE):
        _encode_and_keep(session, made, batch)
        done += len(batch)
        session.callback(Progress("pictures", made.state.name, done, len(found)))
    return made


def learn_text_encoder(session: EncodingSession, texts: Sequence[str], seed: int) -> Encoder:
    """Give the built-in encoder, which learns from the texts, or has done so before."""
    from crossbyte.encoders.registry import make_encoder

    sample = [texts[at] for at in _choose_sample(len(texts), _SAMPLE_TEXTS, seed)]
    key = _make_sample_key("text", map(digest_text, sample))
    if (known := _find_learned_encoder(session, key, "text")) is not None:
        return known
    made = make_encoder(BUILTIN, "text", sample)
    session.cache.keep_encoder(key, "text", made.state)
    return made


def _choose_sample(n_items: int, most: int, seed: int) -> list[int]:
    if n_items <= most:
        return list(range(n_items))
    found: list[int] = np.sort(np.random.default_rng(seed).permutation(n_items)[:most]).tolist()
    return found


def _make_sample_key(side: str, digests: Iterable[str]) -> str:
    """Hash what a learned encoder depends on: the version of crossbyte, and the sample."""
    hasher = hashlib.blake2b(f"{side} {crossbyte.__version__}".encode(), digest_size=16)
    for digest in digests:
        hasher.update(f"\n{digest}".encode())
    return hasher.hexdigest()


def _find_learned_encoder(session: EncodingSession, key: str, side: str) -> Encoder | None:
    from crossbyte.encoders.registry import restore_encoder

    state = session.cache.encoder(key)
    return None if state is None else restore_encoder(state, side)


def _read_sample(
    session: EncodingSession, ids: Sequence[Id], paths: Sequence[Path]
) -> list[tuple[Id, Picture]]:
    """Decode a sample; those that cannot be read are left out."""
    found: list[tuple[Id, Picture]] = []
    first: Exception | None = None
    for done, picture in enumerate(session.reader.read_many(paths)):
        if isinstance(picture, Exception):
            first = first or picture
        else:
            found.append((ids[done], picture))
        session.callback(Progress("sample", str(paths[done]), done + 1, len(paths)))
    if not found:
        raise InvalidInput(
            f"expected pictures that can be read, got none among {len(paths)} (the first: {first}); "
            "look at the files"
        )
    return found


# Features


def encode_pictures(
    session: EncodingSession, encoder: Encoder, ids: Sequence[Id], paths: Sequence[Path]
) -> EncodedItems:
    """Decode and encode pictures, once each; unreadable ones are listed, and stop nothing."""
    known = session.cache.known(encoder.state)
    digests = [_find_known_digest(session, known, id, path) for id, path in zip(ids, paths, strict=True)]
    missing = [at for at, digest in enumerate(digests) if digest is None]
    if len(missing) < len(paths):
        session.callback(Progress("resume", f"{len(paths) - len(missing):,} pictures are known", 1, 1))
    reasons: dict[int, str] = {}
    pictures = zip(missing, session.reader.read_many([paths[at] for at in missing]), strict=True)
    done = 0
    for batch in _iterate_batches(pictures, _PICTURES_AT_ONCE):
        good = [(at, each) for at, each in batch if not isinstance(each, Exception)]
        reasons |= {at: str(each) for at, each in batch if isinstance(each, Exception)}
        if good:
            _encode_and_keep(session, encoder, [(ids[at], picture) for at, picture in good])
        for at, picture in good:
            digests[at] = picture.digest
        done += len(batch)
        session.callback(Progress("pictures", encoder.state.name, done, len(missing)))
    return EncodedItems(encoder.state, digests, reasons)


def _find_known_digest(session: EncodingSession, known: set[str], id: Id, path: Path) -> str | None:
    """Find the digest of a picture that need not be decoded; None for all others."""
    digest = session.digest(path) if known else None
    return digest if digest is not None and digest in known and session.has_thumbnail(id, digest) else None


def _encode_and_keep(session: EncodingSession, encoder: Encoder, found: Sequence[tuple[Id, Picture]]) -> None:
    ids, pictures = [id for id, _ in found], [picture for _, picture in found]
    session.keep(encoder.state, ids, pictures, encoder.encode([picture.pixels for picture in pictures]))


def encode_texts(session: EncodingSession, encoder: Encoder, texts: Sequence[str]) -> EncodedItems:
    """Encode texts, once each."""
    digests = [digest_text(text) for text in texts]
    known = session.cache.known(encoder.state)
    text_of = dict(zip(digests, texts, strict=True))
    missing = [digest for digest in text_of if digest not in known]
    done = 0
    for batch in _iterate_batches(missing, _TEXTS_AT_ONCE):
        session.cache.put(encoder.state, batch, encoder.encode([text_of[digest] for digest in batch]))
        done += len(batch)
        session.callback(Progress("texts", encoder.state.name, done, len(missing)))
    return EncodedItems(encoder.state, list(digests), {})


def _iterate_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


class Pairs(NamedTuple):
    """Features row by row, with a group number each."""

    images: Raw
    texts: Raw
    groups: NDArray[np.intp]

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents, and where the features of their sides are kept.

    Attributes
    ----------
    documents : RawDocuments
    encoders : mapping of side to EncoderState
    digests : mapping of side to mapping of row to list of digests
        Rows that have the side: of their picture, of their captions one by one.
    skipped : list of Skipped
        Pictures that cannot be read; their documents are left out altogether.
    """

    documents: RawDocuments
    encoders: Mapping[str, EncoderState]
    digests: Mapping[str, Mapping[int, list[str]]]
    skipped: list[Skipped]

    def rows(self, sides: Sequence[str]) -> list[int]:
        """List the rows of documents with exactly these sides."""
        wanted = set(sides)
        return [
            row
            for row in range(len(self.documents))
            if {side for side in _BOTH_SIDES if row in self.digests[side]} == wanted
        ]

    def features(self, cache: FeatureCache, side: str, rows: Sequence[int]) -> Raw:
        """Read the features (n, d) of one side of these documents: of captions, their mean."""
        digests = [self.digests[side][row] for row in rows]
        found = cache.get(self.encoders[side], [digest for each in digests for digest in each])
        return mean_rows(found, [len(each) for each in digests]) if digests else found

    def values(self, name: str, rows: Sequence[int]) -> list[Any]:
        """Give the ids, payloads or groups of these documents."""
        column = getattr(self.documents, name)
        return [column[row] for row in rows]

    def group_numbers(self, rows: Sequence[int]) -> NDArray[np.intp]:
        """Number the groups of these documents: (n,), the same for documents of one group."""
        groups = self.documents.groups
        labels = [("alone", row) if groups[row] is None else groups[row] for row in rows]
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.intp)

    def pairs(self, cache: FeatureCache, rows: Sequence[int]) -> Pairs:
        """Pair each of these documents with its whole text."""
        images, texts = (self.features(cache, side, rows) for side in _BOTH_SIDES)
        return Pairs(images, texts, self.group_numbers(rows))

    def repeat_by_captions(self, rows: Sequence[int]) -> list[int]:
        """Repeat each of these rows as often as it has captions."""
        return [row for row in rows for _ in self.digests["text"][row]]

    def pair_captions(self, cache: FeatureCache, rows: Sequence[int]) -> Pairs:
        """Pair these documents with each of their captions, in the order of :meth:`repeat_by_captions`."""
        digests = [digest for row in rows for digest in self.digests["text"][row]]
        repeated = self.repeat_by_captions(rows)
        texts = cache.get(self.encoders["text"], digests)
        return Pairs(self.features(cache, "image", repeated), texts, self.group_numbers(repeated))

    def blocks(self, cache: FeatureCache, size: int) -> Iterator[dict[str, Any]]:
        """Yield the arguments of ``Index.add`` for all documents, block after block."""
        for sides in (_BOTH_SIDES, ("image",), ("text",)):
            rows = self.rows(sides)
            for first in range(0, len(rows), size):
                yield self._block(cache, sides, rows[first : first + size])

    def _block(self, cache: FeatureCache, sides: Sequence[str], rows: Sequence[int]) -> dict[str, Any]:
        block: dict[str, Any] = {name: self.values(name, rows) for name in ("ids", "payloads", "groups")}
        return block | {f"{side}s": self.features(cache, side, rows) for side in sides}


class DocumentParts:
    """Lists the pictures and texts of documents, with the rows that have them."""

    def __init__(self, documents: RawDocuments) -> None:
        pictures = [(row, path) for row, path in enumerate(documents.pictures) if path is not None]
        texts = [(row, drop_empty_captions(captions)) for row, captions in enumerate(documents.texts)]
        self.picture_rows, self.paths = [row for row, _ in pictures], [path for _, path in pictures]
        self.picture_ids = [documents.ids[row] for row in self.picture_rows]
        self.text_rows = [row for row, captions in texts if captions]
        self.captions = [captions for _, captions in texts if captions]

    @property
    def n_pairs(self) -> int:
        """How many documents have both."""
        return len(set(self.picture_rows) & set(self.text_rows))


def encode_documents(
    session: EncodingSession,
    documents: RawDocuments,
    encoder_of: Callable[[str, DocumentParts], Encoder],
) -> EncodedDocuments:
    """Encode everything that is not kept yet.

    Parameters
    ----------
    session : EncodingSession
    documents : RawDocuments
    encoder_of : callable
        Gives the encoder of a side; called only for sides that there are.
    """
    parts = DocumentParts(documents)
    digests: dict[str, dict[int, list[str]]] = {side: {} for side in _BOTH_SIDES}
    encoders: dict[str, EncoderState] = {}
    reasons: dict[int, str] = {}
    if parts.paths:
        found = encode_pictures(session, encoder_of("image", parts), parts.picture_ids, parts.paths)
        encoders["image"], rows = found.encoder, parts.picture_rows
        digests["image"] = {r: [digest] for r, digest in zip(rows, found.digests, strict=True) if digest}
        reasons = {rows[at]: reason for at, reason in found.reasons.items()}
    if parts.captions:
        texts = [caption for each in parts.captions for caption in each]
        encoders["text"] = encode_texts(session, encoder_of("text", parts), texts).encoder
        known = zip(parts.text_rows, parts.captions, strict=True)
        digests["text"] = {r: list(map(digest_text, each)) for r, each in known if r not in reasons}
    skipped = [Skipped(_name_document(documents, row), reason) for row, reason in sorted(reasons.items())]
    return EncodedDocuments(documents, encoders, digests, skipped)


def _name_document(documents: RawDocuments, row: int) -> str:
    return str(documents.payloads[row].get("file", documents.ids[row]))
