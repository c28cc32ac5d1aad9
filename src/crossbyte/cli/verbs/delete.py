"""``crossbyte delete``: remove documents by their ids."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from crossbyte._format import plural
from crossbyte.cli import options
from crossbyte.cli.inputs import read_lines, resolve_ids
from crossbyte.cli.output import emit
from crossbyte.errors import InvalidInput

__all__ = ["delete"]


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
    from crossbyte.gallery.opening import open_index

    names = [*(ids or []), *(read_lines(ids_file) if ids_file is not None else [])]
    if not names:
        raise InvalidInput("expected ids of documents, got none; name them, or give --ids-file")
    with closing(open_index(path, "rw")) as index:
        n_deleted = index.delete(resolve_ids(index, names), missing_ok=missing_ok)
        left = len(index)
    document = {"index": path, "deleted": n_deleted, "documents": left}
    emit(document, [f"{path}: {plural(n_deleted, 'document')} deleted; {left:,} left"], as_json=as_json)
