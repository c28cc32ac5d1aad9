"""``crossbyte add``: put documents into an index, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte._format import plural, readable_seconds
from crossbyte.cli import options
from crossbyte.cli.adding_files import Wanted, add_files
from crossbyte.cli.cluster import connected
from crossbyte.cli.failures import ExitCode, say
from crossbyte.cli.inputs import Given, read_documents
from crossbyte.cli.output import emit
from crossbyte.cli.progress import shown
from crossbyte.cli.raw import RawGiven, is_raw_data
from crossbyte.errors import InvalidInput
from crossbyte.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from crossbyte.data.files.reading import Dataset
    from crossbyte.gallery.opening import Searchable
    from crossbyte.model.cmcq import CMCQ

__all__ = ["add"]


def add(
    path: options.IndexPath,
    data: options.Data = None,
    split: options.Split = None,
    images: options.ImageFile = None,
    texts: options.TextFile = None,
    payloads: options.PayloadFile = None,
    ids: options.Ids = None,
    groups: options.GroupColumn = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FILE", help="Make the index with this model if it is missing."),
    ] = None,
    side: Annotated[
        options.Sides, typer.Option("--side", help="Which sides are added.")
    ] = options.Sides.BOTH,
    upsert: Annotated[bool, typer.Option("--upsert", help="Replace documents of the same ids.")] = False,
    skip_existing: Annotated[
        bool,
        typer.Option("--skip-existing", help="Leave out ids that are there already: goes on after Ctrl-C."),
    ] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Documents per commit.")] = 20_000,
    image_encoder: options.ImageEncoder = None,
    text_encoder: options.TextEncoder = None,
    image_column: options.ImageColumn = None,
    text_column: options.TextColumns = None,
    id_column: options.IdColumn = None,
    thumbnails: options.Thumbnails = True,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> int:
    """Add documents to an index, batch by batch.

    Pictures and captions are encoded as the index's own were. Every batch is on the disk when the next
    begins. Ids of features come from the dataset, or from --ids; without either they are the row numbers.

    Example:
      crossbyte add photos.cb new_photos --skip-existing
      crossbyte add photos.cb photos.npz --model model.cbm
      crossbyte add photos.cb --images new.npy --payloads new.csv --ids name --upsert
    """
    if upsert and skip_existing:
        raise InvalidInput("expected --upsert or --skip-existing, got both; give one of them")
    given = Given(data, split, images, texts, payloads, ids, groups)
    raw = RawGiven(image_column, text_column, id_column, image_encoder, text_encoder)
    wanted = Wanted(side, upsert, skip_existing, batch, thumbnails, jobs, quiet, cluster)
    if is_raw_data(given, raw):
        if model is not None:
            raise InvalidInput(
                "--model makes an index for features; make one of pictures with `crossbyte fit`"
            )
        if cluster is not None:
            raise InvalidInput("--cluster codes features; pictures are encoded on this machine: leave it out")
        return add_files(path, given, raw, wanted, as_json=as_json)
    return _add_features(path, given, model, wanted, as_json)


def _add_features(path: Path, given: Given, model: Path | None, wanted: Wanted, as_json: bool) -> int:
    documents = _of_side(read_documents(given, stored=True), wanted.side)
    added = 0
    with (
        _opened(path, model, documents, wanted.jobs) as index,
        connected(wanted.cluster, wanted.jobs),
        shown("add", quiet=wanted.quiet) as callback,
    ):
        began, rows = time.perf_counter(), _wanted(index, documents, wanted.skip_existing)
        try:
            for done, block in _blocks(documents, rows, wanted.batch):
                write = index.upsert if wanted.upsert else index.add
                added += write(**block, callback=_overall(callback, done, len(rows)), cluster=wanted.cluster)
        except KeyboardInterrupt:
            return _interrupted(added, len(rows), wanted.upsert)
        total = len(index)
    seconds = time.perf_counter() - began
    document = {"index": path, "added": added, "skipped": len(documents) - added, "documents": total}
    document["seconds"] = round(seconds, 3)
    emit(document, _text(document), as_json=as_json)
    return ExitCode.FINE


@contextmanager
def _opened(path: Path, model: Path | None, documents: Dataset, jobs: int | None) -> Iterator[Searchable]:
    """Open the index, or make it; one that was made and got no documents for an error goes again."""
    from crossbyte.gallery.opening import open_index
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.search.index import Index

    wanted = None if model is None else CMCQ.load(model)
    if path.exists():
        with closing(open_index(path, "rw", model=wanted, n_jobs=jobs)) as index:
            yield index
        return
    if wanted is None:
        raise InvalidInput(f"{path}: there is no such index; give --model FILE to make it")
    if path.suffix == ".cbs":
        raise InvalidInput(
            f"{path}: folders of shards are made by `crossbyte shard`; add to one, or to a file"
        )
    _judge_widths(wanted, documents)
    with Index.create(path, wanted, n_jobs=jobs) as index:
        try:
            yield index
        except Exception:
            if not len(index):
                index.close()  # before its file goes, which some systems ask for
                path.unlink(missing_ok=True)
            raise


def _judge_widths(model: CMCQ, documents: Dataset) -> None:
    """Refuse what is no features of the model before there is an index."""
    from crossbyte.validation import check_features

    widths = {"images": model.n_features_in_, "texts": model.n_text_features_}
    for name, width in widths.items():
        features = getattr(documents, name)
        if features is not None:
            check_features(features[:1], name, width)


def _of_side(documents: Dataset, side: options.Sides) -> Dataset:
    from dataclasses import replace

    if side is options.Sides.BOTH:
        return documents
    if getattr(documents, f"{side}s") is None:
        raise InvalidInput(f"--side {side}: the documents have no {side}s; give another --side")
    return replace(documents, **{"texts" if side is options.Sides.IMAGE else "images": None})


def _wanted(index: Searchable, documents: Dataset, skip_existing: bool) -> list[int]:
    """Rows that are to be added."""
    rows = range(len(documents))
    if not skip_existing:
        return list(rows)
    there = set(index.ids())
    names = rows if documents.ids is None else documents.ids
    return [row for row, name in zip(rows, names, strict=True) if name not in there]


def _blocks(documents: Dataset, rows: list[int], size: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield how many rows came before, and the arguments of ``Index.add`` for the next ones."""
    for first in range(0, len(rows), size):
        chosen = rows[first : first + size]
        block: dict[str, Any] = {"ids": chosen if documents.ids is None else _picked(documents.ids, chosen)}
        block |= {name: _picked(getattr(documents, name), chosen) for name in ("payloads", "groups")}
        block |= {name: _rows(getattr(documents, name), chosen) for name in ("images", "texts")}
        yield first, block


def _picked(values: Any, rows: list[int]) -> list[Any] | None:
    return None if values is None else [values[row] for row in rows]


def _rows(features: Any, rows: list[int]) -> Any:
    return None if features is None else features[rows]


def _overall(callback: ProgressCallback, done: int, total: int) -> ProgressCallback:
    """Make the steps of one batch steps of the whole."""
    return lambda step: callback(Progress(step.stage, step.detail, done + step.done, total))


def _interrupted(added: int, total: int, upsert: bool) -> int:
    how = "--upsert" if upsert else "--skip-existing"
    say(
        f"interrupted: the batches so far are in the index, {added:,} of {total:,} documents at least",
        f"to go on, run the same command with {how}",
    )
    return ExitCode.INTERRUPTED


def _text(document: dict[str, Any]) -> list[str]:
    rate = document["added"] / max(document["seconds"], 1e-9)
    took = readable_seconds(document["seconds"])
    skipped = f", {document['skipped']:,} were there already" if document["skipped"] else ""
    added = plural(document["added"], "document")
    said = f"{document['index']}: {added} added in {took} ({rate:,.0f} per second)"
    return [f"{said}{skipped}; it has {document['documents']:,} now"]
