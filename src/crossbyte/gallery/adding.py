"""Files into an index that is there: encoded with its own encoders, then added batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from crossbyte.data.folders.documents import RawDocuments, Skipped
from crossbyte.errors import DuplicateId
from crossbyte.gallery.encoded import Pieces, encode_documents
from crossbyte.gallery.gallery import Gallery
from crossbyte.gallery.workshop import Workshop
from crossbyte.progress import ProgressCallback, silent
from crossbyte.search.ids import check_ids

__all__ = ["Added", "add_documents", "take"]


class Added(NamedTuple):
    """How many documents were added, and which were left out and why."""

    n_added: int
    skipped: list[Skipped]


def add_documents(
    gallery: Gallery,
    documents: RawDocuments,
    *,
    upsert: bool = False,
    batch: int = 20_000,
    thumbnails: bool = True,
    n_jobs: int | None = None,
    callback: ProgressCallback | None = None,
) -> Added:
    """Add documents with the encoders that the index was made with.

    What is encoded is kept beside the index, so that a call that was interrupted goes on where it was.

    Parameters
    ----------
    gallery : Gallery
        Open for writing.
    documents : RawDocuments
    upsert : bool
        Replace documents of the same ids.
    batch : int
        Documents per commit.
    thumbnails : bool
    n_jobs : int or None
        Processes that decode; None for all cores.
    callback : callable, optional

    Raises
    ------
    DuplicateId, NoEncoder, WrongEncoder, MissingExtra
        Before any long work.
    """
    _check_new(gallery, documents, upsert)
    opened = Workshop.open(gallery.beside, thumbnails=thumbnails, n_jobs=n_jobs, callback=callback or silent)
    with opened as session:
        encoded = encode_documents(session, documents, lambda side, _: gallery.encoder(side))
        write = gallery.index.upsert if upsert else gallery.index.add
        n_added = sum(
            write(**block, callback=session.callback) for block in encoded.blocks(session.cache, batch)
        )
    return Added(n_added, [*documents.skipped, *encoded.skipped])


def _check_new(gallery: Gallery, documents: RawDocuments, upsert: bool) -> None:
    for id in check_ids(documents.ids):
        if not upsert and id in gallery.index:
            raise DuplicateId(
                f"ids: {id!r} is in the index already; use upsert=True in add_documents(…) to replace it"
            )
    pieces = Pieces(documents)
    for side, items in (("image", pieces.paths), ("text", pieces.texts)):
        if items:
            gallery.encoder(side)


def take(documents: RawDocuments, rows: Sequence[int]) -> RawDocuments:
    """Some of the documents; what was left out stays listed."""
    return replace(
        documents,
        ids=[documents.ids[row] for row in rows],
        pictures=[documents.pictures[row] for row in rows],
        texts=[documents.texts[row] for row in rows],
        payloads=[documents.payloads[row] for row in rows],
        groups=[documents.groups[row] for row in rows],
    )
