"""``crossbyte add INDEX FOLDER``: pictures and captions into an index that is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte._format import plural, readable_seconds
from crossbyte.cli.failures import ExitCode, say
from crossbyte.cli.inputs import Given
from crossbyte.cli.options import Sides
from crossbyte.cli.output import emit
from crossbyte.cli.progress import shown
from crossbyte.cli.raw import RawGiven, left_out, left_out_lines, read_raw_documents
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.folders.documents import RawDocuments, Skipped
    from crossbyte.gallery.gallery import Gallery

__all__ = ["Wanted", "add_files"]


class Wanted(NamedTuple):
    """How documents are to be added, whatever they are."""

    side: Sides
    upsert: bool
    skip_existing: bool
    batch: int
    thumbnails: bool
    jobs: int | None
    quiet: bool
    cluster: str | None = None


def add_files(path: Path, given: Given, raw: RawGiven, wanted: Wanted, *, as_json: bool) -> int:
    """Encode pictures and captions as the index's own were, and add them."""
    from crossbyte.gallery.adding import add_documents

    assert given.data is not None
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such index; make it with `crossbyte fit {given.data}`")
    documents = _of_side(read_raw_documents(given.data, raw), wanted.side)
    began = time.perf_counter()
    with (
        _opened(path, raw, wanted.jobs) as gallery,
        shown("add", quiet=wanted.quiet) as callback,
    ):
        new = _new(gallery, documents) if wanted.skip_existing else documents
        try:
            added = add_documents(
                gallery,
                new,
                upsert=wanted.upsert,
                batch=wanted.batch,
                thumbnails=wanted.thumbnails,
                n_jobs=wanted.jobs,
                callback=callback,
            )
        except KeyboardInterrupt:
            return _interrupted(wanted.upsert)
        total = len(gallery)
    document = {"index": path, "added": added.n_added, "documents": total}
    document |= {"already_there": len(documents) - len(new), "skipped": left_out(added.skipped)}
    document["seconds"] = round(time.perf_counter() - began, 3)
    emit(document, _lines(document, added.skipped), as_json=as_json)
    return ExitCode.FINE


def _opened(path: Path, raw: RawGiven, jobs: int | None) -> Gallery:
    from crossbyte.gallery.gallery import Gallery

    encoders = raw.image_encoder, raw.text_encoder
    return Gallery.open(path, "rw", image_encoder=encoders[0], text_encoder=encoders[1], n_jobs=jobs)


def _of_side(documents: RawDocuments, side: Sides) -> RawDocuments:
    from crossbyte.gallery.adding import take

    if side is Sides.IMAGE:
        documents = replace(documents, texts=[()] * len(documents))
    if side is Sides.TEXT:
        documents = replace(documents, pictures=[None] * len(documents))
    there = [row for row in range(len(documents)) if documents.pictures[row] or any(documents.texts[row])]
    if not there:
        raise InvalidInput(f"--side {side}: the documents have no {side}s; give another --side")
    return take(documents, there)


def _new(gallery: Gallery, documents: RawDocuments) -> RawDocuments:
    from crossbyte.gallery.adding import take

    return take(documents, [row for row, id in enumerate(documents.ids) if id not in gallery.index])


def _interrupted(upsert: bool) -> int:
    how = "again" if upsert else "again with --skip-existing"
    say(
        "interrupted: what was encoded so far is kept, and the batches that were done are in the index",
        f"to go on from there, run the same command {how}",
    )
    return ExitCode.INTERRUPTED


def _lines(document: dict[str, Any], skipped: list[Skipped]) -> Iterator[str]:
    rate = document["added"] / max(document["seconds"], 1e-9)
    took, added = readable_seconds(document["seconds"]), plural(document["added"], "document")
    before = f", {document['already_there']:,} were there already" if document["already_there"] else ""
    said = f"{document['index']}: {added} added in {took} ({rate:,.3g} per second){before}"
    yield f"{said}; it has {document['documents']:,} now"
    yield from left_out_lines(skipped)
