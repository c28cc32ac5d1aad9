"""Run ``crossbyte cells``: build an inverted file (IVF) for approximate search, or describe it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte._format import plural
from crossbyte.cli import options
from crossbyte.cli.inputs import InputOptions, read_pairs
from crossbyte.cli.output import Table, emit, show_progress
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.index.ivf.state import Cells

_DISTANCES = {"plain": "plain", "paired": "learned"}


def cells(
    path: options.IndexPath,
    data: options.Data = None,
    split: options.Split = None,
    images: options.ImageFile = None,
    texts: options.TextFile = None,
    payloads: options.PayloadFile = None,
    groups: options.GroupColumn = None,
    recall: Annotated[
        float, typer.Option("--recall", help="Share of what the exhaustive search finds that is kept.")
    ] = 0.95,
    number: Annotated[
        int | None,
        typer.Option("--cells", help="How many cells; four times the root of the documents if not given."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Search everything again.")] = False,
    jobs: options.Jobs = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Build an inverted-file (IVF) index for approximate search.

    Documents are put into cells, and a search looks at few of them. Which cells a query visits is
    learned from pairs of features, and how much is found is measured on some that were held out.
    Without pairs, says what is known of the cells: docs/cells.md. Shards keep the cells of the file
    that they were cut from.

    Example:
      crossbyte cells photos.cb photos.npz --split test --recall 0.95
      crossbyte cells photos.cb --drop
    """
    from crossbyte.gallery.gallery import is_sharded, open_index
    from crossbyte.sharding.snapshot import make_build_error

    given = InputOptions(data, split, images, texts, payloads, None, groups)
    with_pairs = any(value is not None for value in (data, images, texts))
    if drop and with_pairs:
        raise InvalidInput("--drop: expected no pairs beside it; leave one of the two out")
    if with_pairs and is_sharded(path):
        raise make_build_error(path)
    with closing(open_index(path, "rw" if drop or with_pairs else "r", n_jobs=jobs)) as index:
        if drop:
            index.drop_cells()
        elif with_pairs:
            pairs = read_pairs(given, stored=True, payloads=groups is not None)
            settings: dict[str, Any] = {"n_cells": number, "recall": recall, "groups": pairs.groups}
            with show_progress("cells", quiet=quiet) as callback:
                index.build_cells(images=pairs.images, texts=pairs.texts, callback=callback, **settings)
        known = index.cells
    document = {"index": path, "cells": None if known is None else known.to_dict()}
    said: list[str | Table] = [f"{path}: no cells"] if known is None else _describe_cells(known)
    emit(document, said, as_json=as_json)


def _describe_cells(known: Cells) -> list[str | Table]:
    rows = []
    for name, curve in known.curve.items():
        items, kept = curve.at(known.n_probe[name])
        of = "the first ten" if curve.partners is None else "partners found"
        share = (
            known.choice[name],
            str(known.n_probe[name]),
            f"{100 * items:.2f} %",
            f"{100 * kept:.1f} %",
            of,
        )
        rows.append((name.replace("-", " "), *share))
    heading = ("search", "choice", "cells>", "documents>", "kept>", "of")
    counts = [
        f"{side}: {plural(count, 'cell')} by {_DISTANCES[known.metric[side]]} distances"
        for side, count in known.n_cells.items()
    ]
    return [", ".join(counts), Table(heading, rows), *map(_describe_drift, known.drift.items())]


def _describe_drift(entry: tuple[str, Any]) -> str:
    side, drift = entry
    said = (
        f"{side}: {plural(drift.n_added, 'document')} added since {drift.n_documents:,} were put into cells"
    )
    if drift.distance is not None:
        said += f", {drift.distance:.2f} times as far from their centres"
    return said + ("; build the cells again" if drift.rebuild else "")
