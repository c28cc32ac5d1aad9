"""``crossbyte export``: an index for other systems."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import check_free
from crossbyte.cli.output import emit, readable_bytes
from crossbyte.errors import InvalidInput

__all__ = ["export"]


class Format(StrEnum):
    """What can be written."""

    FAISS = "faiss"
    NPY = "npy"
    PARQUET = "parquet"


def export(
    path: options.IndexPath,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The file to write.")],
    to: Annotated[
        Format | None, typer.Option("--to", help="What to write; by the ending of DEST if not given.")
    ] = None,
    side: Annotated[
        options.Side, typer.Option("--side", help="Which side is exported.")
    ] = options.Side.IMAGE,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write an index for other systems.

    A FAISS index that ranks alike, or decoded vectors as .npy or Parquet.
    TREC runs are answers to queries: `crossbyte search --trec FILE` writes them.

    Example:
      crossbyte export photos.cb photos.faiss
      crossbyte export photos.cb vectors.parquet --side text
    """
    from crossbyte.search.index import Index

    form = to or _by_ending(destination)
    check_free(destination, overwrite=overwrite)
    with Index.open(path) as index:
        if form is Format.FAISS:
            from crossbyte.search.exports.faiss_index import export_faiss

            export_faiss(index, destination, target=side.value)
        else:
            from crossbyte.search.exports.vectors import export_vectors

            export_vectors(index, destination, target=side.value, overwrite=overwrite)
    size = destination.stat().st_size
    document = {"index": path, "export": destination, "to": form, "side": side, "bytes": size}
    emit(
        document,
        [f"{destination}: the {side}s of {path} for {form}, {readable_bytes(size)}"],
        as_json=as_json,
    )


def _by_ending(destination: Path) -> Format:
    try:
        return Format(destination.suffix.removeprefix("."))
    except ValueError:
        forms = ", ".join(Format)
        raise InvalidInput(f"{destination}: expected an ending of {forms}; give --to") from None
