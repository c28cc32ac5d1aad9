"""Run ``crossbyte delete``, ``verify``, ``compact`` and ``backup``: look after an index."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from crossbyte._format import plural, readable_bytes
from crossbyte.cli import options
from crossbyte.cli.inputs import is_index, read_lines, resolve_ids
from crossbyte.cli.output import emit
from crossbyte.errors import InvalidInput


def delete(
    path: options.IndexPath,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of documents.")] = None,
    ids_file: Annotated[
        Path | None,
        typer.Option("--ids-file", metavar="FILE", help="A file with an id per line; - is stdin."),
    ] = None,
    missing_ok: Annotated[
        bool, typer.Option("--missing-ok", help="Ids that are not there are no error.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete documents by their ids.

    All of them or, if an id is unknown, none. Their bytes leave the file with `crossbyte compact`.

    Example:
      crossbyte delete photos.cb p17 p18
    """
    from crossbyte.gallery.gallery import open_index

    names = [*(ids or []), *(read_lines(ids_file) if ids_file is not None else [])]
    if not names:
        raise InvalidInput("expected ids of documents, got none; name them, or give --ids-file")
    with closing(open_index(path, "rw")) as index:
        n_deleted = index.delete(resolve_ids(index, names), missing_ok=missing_ok)
        left = len(index)
    document = {"index": path, "deleted": n_deleted, "documents": left}
    emit(document, [f"{path}: {plural(n_deleted, 'document')} deleted; {left:,} left"], as_json=as_json)


def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An index, a folder of shards, or a model.")],
    as_json: options.AsJson = False,
) -> None:
    """Compare a whole index or model with its checksums.

    Exit code 5 if anything is damaged.

    Example:
      crossbyte verify photos.cb
    """
    from crossbyte.gallery.gallery import is_sharded, open_index
    from crossbyte.model.estimator import CMCQ

    if not is_sharded(path) and not is_index(path):
        CMCQ.load(path)  # every byte of a model is verified when it is read
        emit({"file": path, "kind": "model", "whole": True}, [f"{path}: whole"], as_json=as_json)
        return
    with closing(open_index(path)) as index:
        index.verify()
        n_documents = len(index)
    document = {"file": path, "kind": "index", "whole": True, "documents": n_documents}
    emit(document, [f"{path}: whole; {plural(n_documents, 'document')}"], as_json=as_json)


def compact(path: options.IndexPath, as_json: options.AsJson = False) -> None:
    """Make an index file small.

    Deleted documents and old payloads leave it. Readers that are open see the new file after their
    next refresh. Needs as much free space as the file has.

    Example:
      crossbyte compact photos.cb
    """
    from crossbyte.gallery.gallery import open_index

    with closing(open_index(path, "rw")) as index:
        before = index.stats()["disk"]["bytes"]["file"]
        index.compact()
        after = index.stats()["disk"]["bytes"]["file"]
    document = {"index": path, "bytes_before": before, "bytes_after": after}
    text = f"{path}: {readable_bytes(before)} before, {readable_bytes(after)} now"
    emit(document, [text], as_json=as_json)


def backup(
    path: options.IndexPath,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The copy; nothing may be there yet.")],
    as_json: options.AsJson = False,
) -> None:
    """Copy an index, safely beside a writer.

    Example:
      crossbyte backup photos.cb photos-monday.cb
    """
    from crossbyte.gallery.gallery import open_index

    with closing(open_index(path)) as index:
        index.backup(destination)
    files = destination.iterdir() if destination.is_dir() else [destination]
    size = sum(file.stat().st_size for file in files)
    document = {"index": path, "backup": destination, "bytes": size}
    emit(document, [f"{destination}: a copy of {path}, {readable_bytes(size)}"], as_json=as_json)
