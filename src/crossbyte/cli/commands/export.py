"""Run ``crossbyte export``: write an index for other systems."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crossbyte._format import plural, readable_bytes
from crossbyte.cli import options
from crossbyte.cli.inputs import check_free
from crossbyte.cli.output import emit
from crossbyte.errors import InvalidInput


class Format(StrEnum):
    """What can be written."""

    FAISS = "faiss"
    NPY = "npy"
    PARQUET = "parquet"


class NumberType(StrEnum):
    """Types of numbers."""

    SINGLE = "float32"
    HALF = "float16"


def export(
    path: options.IndexPath,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The file to write.")],
    to: Annotated[
        Format | None, typer.Option("--to", help="What to write; by the ending of DEST if not given.")
    ] = None,
    side: Annotated[
        options.Side, typer.Option("--side", help="Which side is exported.")
    ] = options.Side.IMAGE,
    query: Annotated[
        options.Side | None,
        typer.Option("--query", help="faiss: which side will ask; the other one if not given."),
    ] = None,
    dtype: Annotated[
        NumberType, typer.Option("--dtype", help="npy, parquet: type of the numbers.")
    ] = NumberType.SINGLE,
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
    from crossbyte.index.index import Index

    form = to or _guess_format(destination)
    check_free(destination, overwrite=overwrite)
    with Index.open(path) as index:
        if form is Format.FAISS:
            from crossbyte.index.export.faiss_index import export_faiss

            asking = query and query.value
            count = export_faiss(index, destination, target=side.value, query=asking, overwrite=overwrite)
        else:
            from crossbyte.index.export.vectors import export_vectors

            vectors = {"dtype": dtype.value, "form": form.value}
            count = export_vectors(index, destination, target=side.value, overwrite=overwrite, **vectors)
    size = destination.stat().st_size
    document = {"index": path, "export": destination, "to": form, "side": side, "items": count, "bytes": size}
    text = f"{destination}: {plural(count, side.value)} of {path} for {form.value}, {readable_bytes(size)}"
    emit(document, [text], as_json=as_json)


def _guess_format(destination: Path) -> Format:
    try:
        return Format(destination.suffix.removeprefix("."))
    except ValueError:
        forms = ", ".join(Format)
        raise InvalidInput(f"{destination}: expected an ending of {forms}; give --to") from None
