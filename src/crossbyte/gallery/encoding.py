"""Pictures and texts become features, batch by batch; what is known already is not made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

import crossbyte
from crossbyte.encoders.protocol import Encoder, EncoderState
from crossbyte.errors import InvalidInput
from crossbyte.gallery.cache import digest_of_text
from crossbyte.gallery.workshop import Workshop
from crossbyte.progress import Progress
from crossbyte.search.ids import Id

if TYPE_CHECKING:
    from crossbyte.data.pictures.picture import Picture

__all__ = ["BUILTIN", "Encoded", "encode_pictures", "encode_texts", "learned_pictures", "learned_texts"]

BUILTIN = "builtin"
_SAMPLE_PICTURES = 400  # a megabyte each while they are learned from
_SAMPLE_TEXTS = 200_000
_PICTURES_AT_ONCE = 16
_TEXTS_AT_ONCE = 256

Item = TypeVar("Item")


class Encoded(NamedTuple):
    """What became of items.

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


def learned_pictures(session: Workshop, ids: Sequence[Id], paths: Sequence[Path], seed: int) -> Encoder:
    """Give the built-in encoder, which learns from a sample of the pictures, or has done so before."""
    from crossbyte.encoders.choosing import make_encoder

    chosen = _sample(len(paths), _SAMPLE_PICTURES, seed)
    key = _key("image", [session.digest(paths[at]) or "" for at in chosen])
    if (known := _learned_before(session, key, "image")) is not None:
        return known
    found = _read(session, [ids[at] for at in chosen], [paths[at] for at in chosen])
    made = make_encoder(BUILTIN, "image", [picture.pixels for _, picture in found])
    session.cache.keep_encoder(key, "image", made.state)
    done = 0
    for batch in _batches(found, _PICTURES_AT_ONCE):
        _keep(session, made, batch)
        done += len(batch)
        session.callback(Progress("pictures", made.state.name, done, len(found)))
    return made


def learned_texts(session: Workshop, texts: Sequence[str], seed: int) -> Encoder:
    """Give the built-in encoder, which learns from the texts, or has done so before."""
    from crossbyte.encoders.choosing import make_encoder

    sample = [texts[at] for at in _sample(len(texts), _SAMPLE_TEXTS, seed)]
    key = _key("text", map(digest_of_text, sample))
    if (known := _learned_before(session, key, "text")) is not None:
        return known
    made = make_encoder(BUILTIN, "text", sample)
    session.cache.keep_encoder(key, "text", made.state)
    return made


def _sample(n_items: int, most: int, seed: int) -> list[int]:
    if n_items <= most:
        return list(range(n_items))
    found: list[int] = np.sort(np.random.default_rng(seed).permutation(n_items)[:most]).tolist()
    return found


def _key(side: str, digests: Iterable[str]) -> str:
    """What a learned encoder depends on: our version, and the sample."""
    hasher = hashlib.blake2b(f"{side} {crossbyte.__version__}".encode(), digest_size=16)
    for digest in digests:
        hasher.update(f"\n{digest}".encode())
    return hasher.hexdigest()


def _learned_before(session: Workshop, key: str, side: str) -> Encoder | None:
    from crossbyte.encoders.restoring import restore_encoder

    state = session.cache.encoder(key)
    return None if state is None else restore_encoder(state, side)


def _read(session: Workshop, ids: Sequence[Id], paths: Sequence[Path]) -> list[tuple[Id, Picture]]:
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


def encode_pictures(session: Workshop, encoder: Encoder, ids: Sequence[Id], paths: Sequence[Path]) -> Encoded:
    """Decode and encode pictures, once each; unreadable ones are listed, and stop nothing."""
    known = session.cache.known(encoder.state)
    digests = [_known_digest(session, known, id, path) for id, path in zip(ids, paths, strict=True)]
    missing = [at for at, digest in enumerate(digests) if digest is None]
    if len(missing) < len(paths):
        session.callback(Progress("resume", f"{len(paths) - len(missing):,} pictures are known", 1, 1))
    reasons: dict[int, str] = {}
    pictures = zip(missing, session.reader.read_many([paths[at] for at in missing]), strict=True)
    done = 0
    for batch in _batches(pictures, _PICTURES_AT_ONCE):
        good = [(at, each) for at, each in batch if not isinstance(each, Exception)]
        reasons |= {at: str(each) for at, each in batch if isinstance(each, Exception)}
        if good:
            _keep(session, encoder, [(ids[at], picture) for at, picture in good])
        for at, picture in good:
            digests[at] = picture.digest
        done += len(batch)
        session.callback(Progress("pictures", encoder.state.name, done, len(missing)))
    return Encoded(encoder.state, digests, reasons)


def _known_digest(session: Workshop, known: set[str], id: Id, path: Path) -> str | None:
    """The digest of a picture that need not be decoded; None for all others."""
    digest = session.digest(path) if known else None
    return digest if digest is not None and digest in known and session.has_thumbnail(id, digest) else None


def _keep(session: Workshop, encoder: Encoder, found: Sequence[tuple[Id, Picture]]) -> None:
    ids, pictures = [id for id, _ in found], [picture for _, picture in found]
    session.keep(encoder.state, ids, pictures, encoder.encode([picture.pixels for picture in pictures]))


def encode_texts(session: Workshop, encoder: Encoder, texts: Sequence[str]) -> Encoded:
    """Encode texts, once each."""
    digests = [digest_of_text(text) for text in texts]
    known = session.cache.known(encoder.state)
    text_of = dict(zip(digests, texts, strict=True))
    missing = [digest for digest in text_of if digest not in known]
    done = 0
    for batch in _batches(missing, _TEXTS_AT_ONCE):
        session.cache.put(encoder.state, batch, encoder.encode([text_of[digest] for digest in batch]))
        done += len(batch)
        session.callback(Progress("texts", encoder.state.name, done, len(missing)))
    return Encoded(encoder.state, list(digests), {})


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch
