"""``crossbyte backup``: copy an index while others read and write it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from crossbyte._format import readable_bytes
from crossbyte.cli import options
from crossbyte.cli.output import emit

__all__ = ["backup"]


def backup(
    path: options.IndexPath,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The copy; nothing may be there yet.")],
    as_json: options.AsJson = False,
) -> None:
    """Copy an index, safely beside a writer.

    Example:
      crossbyte backup photos.cb photos-monday.cb
    """
    from crossbyte.gallery.opening import open_index

    with closing(open_index(path)) as index:
        index.backup(destination)
    files = destination.iterdir() if destination.is_dir() else [destination]
    size = sum(file.stat().st_size for file in files)
    document = {"index": path, "backup": destination, "bytes": size}
    emit(document, [f"{destination}: a copy of {path}, {readable_bytes(size)}"], as_json=as_json)
