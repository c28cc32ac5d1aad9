"""Run ``crossbyte add``: put documents into an index, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from crossbyte._format import plural, readable_seconds
from crossbyte.cli import options
from crossbyte.cli.exit_codes import ExitCode, print_error
from crossbyte.cli.inputs import (
    InputOptions,
    RawInputOptions,
    describe_kinds,
    describe_skipped,
    drop_unread,
    is_raw_data,
    list_skipped,
    read_documents,
    read_raw_documents,
)
from crossbyte.cli.options import Sides
from crossbyte.cli.output import connect_cluster, emit, show_progress
from crossbyte.errors import InvalidInput
from crossbyte.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from crossbyte.data.captions.raw_documents import RawDocuments, Skipped
    from crossbyte.data.dataset import Dataset
    from crossbyte.gallery.gallery import Gallery, Searchable
    from crossbyte.model.estimator import CMCQ


class AddOptions(NamedTuple):
    """Options of both kinds of documents, pictures with captions and features."""

    side: Sides
    upsert: bool
    skip_existing: bool
    batch: int
    thumbnails: bool
    jobs: int | None
    quiet: bool
    cluster: str | None = None
    codes: options.Codes | None = None


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
    codes: options.DocumentCodes = None,
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
    given = InputOptions(data, split, images, texts, payloads, ids, groups)
    raw = RawInputOptions(image_column, text_column, id_column, image_encoder, text_encoder)
    wanted = AddOptions(side, upsert, skip_existing, batch, thumbnails, jobs, quiet, cluster, codes)
    if is_raw_data(given, raw):
        if model is not None:
            raise InvalidInput(
                "--model makes an index for features; make one of pictures with `crossbyte fit`"
            )
        if cluster is not None:
            raise InvalidInput("--cluster codes features; pictures are encoded on this machine: leave it out")
        return add_files(path, given, raw, wanted, as_json=as_json)
    return _add_features(path, given, model, wanted, as_json)


# Pictures with captions


def add_files(
    path: Path, given: InputOptions, raw: RawInputOptions, wanted: AddOptions, *, as_json: bool
) -> int:
    """Encode pictures and captions like those of the index, and add them."""
    from crossbyte.gallery.build import add_documents

    assert given.data is not None
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such index; make it with `crossbyte fit {given.data}`")
    documents = _keep_side_of_files(read_raw_documents(given.data, raw), wanted.side)
    began = time.perf_counter()
    with (
        _open_gallery(path, raw, wanted.jobs) as gallery,
        show_progress("add", quiet=wanted.quiet) as callback,
    ):
        new = _drop_existing(gallery, documents) if wanted.skip_existing else documents
        try:
            added = add_documents(
                gallery,
                new,
                upsert=wanted.upsert,
                codes=wanted.codes,
                batch=wanted.batch,
                thumbnails=wanted.thumbnails,
                n_jobs=wanted.jobs,
                callback=callback,
            )
        except KeyboardInterrupt:
            return _report_interrupted_files(wanted.upsert)
        total = len(gallery)
    document = {"index": path, "added": added.n_added, "documents": total}
    kept = drop_unread(new, added.skipped)
    document |= {"without_text": kept.n_without_text, "without_picture": kept.n_without_picture}
    document |= {"already_there": len(documents) - len(new), "skipped": list_skipped(added.skipped)}
    document["seconds"] = round(time.perf_counter() - began, 3)
    emit(document, _describe_added_files(document, describe_kinds(kept), added.skipped), as_json=as_json)
    return ExitCode.FINE


def _open_gallery(path: Path, raw: RawInputOptions, jobs: int | None) -> Gallery:
    from crossbyte.gallery.gallery import Gallery

    encoders = raw.image_encoder, raw.text_encoder
    return Gallery.open(path, "rw", image_encoder=encoders[0], text_encoder=encoders[1], n_jobs=jobs)


def _keep_side_of_files(documents: RawDocuments, side: Sides) -> RawDocuments:
    from crossbyte.gallery.build import take_documents

    if side is Sides.IMAGE:
        documents = replace(documents, texts=[()] * len(documents))
    if side is Sides.TEXT:
        documents = replace(documents, pictures=[None] * len(documents))
    rows = [row for row in range(len(documents)) if documents.pictures[row] or any(documents.texts[row])]
    if not rows:
        raise InvalidInput(f"--side {side}: the documents have no {side}s; give another --side")
    return take_documents(documents, rows)


def _drop_existing(gallery: Gallery, documents: RawDocuments) -> RawDocuments:
    from crossbyte.gallery.build import take_documents

    return take_documents(documents, [row for row, id in enumerate(documents.ids) if id not in gallery.index])


def _report_interrupted_files(upsert: bool) -> int:
    how = "again" if upsert else "again with --skip-existing"
    print_error(
        "interrupted: what was encoded so far is kept, and the batches that were done are in the index",
        f"to go on from there, run the same command {how}",
    )
    return ExitCode.INTERRUPTED


def _describe_added_files(document: dict[str, Any], kinds: str, skipped: list[Skipped]) -> Iterator[str]:
    rate = document["added"] / max(document["seconds"], 1e-9)
    took, added = readable_seconds(document["seconds"]), plural(document["added"], "document")
    before = f", {document['already_there']:,} were there already" if document["already_there"] else ""
    what = f"{added} added: {kinds}," if kinds else f"{added} added"
    said = f"{document['index']}: {what} in {took} ({rate:,.3g} per second){before}"
    yield f"{said}; it has {document['documents']:,} now"
    yield from describe_skipped(skipped)


# Features


def _add_features(
    path: Path, given: InputOptions, model: Path | None, wanted: AddOptions, as_json: bool
) -> int:
    documents = _keep_side(read_documents(given, stored=True), wanted.side)
    added = 0
    with (
        _open_or_create_index(path, model, documents, wanted.jobs) as index,
        connect_cluster(wanted.cluster, wanted.jobs),
        show_progress("add", quiet=wanted.quiet) as callback,
    ):
        began, rows = time.perf_counter(), _select_rows(index, documents, wanted.skip_existing)
        try:
            for done, block in _iterate_blocks(documents, rows, wanted.batch):
                write = index.upsert if wanted.upsert else index.add
                added += write(
                    **block,
                    codes=wanted.codes,
                    callback=_scale_progress(callback, done, len(rows)),
                    cluster=wanted.cluster,
                )
        except KeyboardInterrupt:
            return _report_interrupted(added, len(rows), wanted.upsert)
        total = len(index)
    seconds = time.perf_counter() - began
    document = {"index": path, "added": added, "skipped": len(documents) - added, "documents": total}
    document["seconds"] = round(seconds, 3)
    emit(document, _describe_added(document), as_json=as_json)
    return ExitCode.FINE


@contextmanager
def _open_or_create_index(
    path: Path, model: Path | None, documents: Dataset, jobs: int | None
) -> Iterator[Searchable]:
    """Open the index, or create it; remove a created one again if an error left it without documents."""
    from crossbyte.gallery.gallery import open_index
    from crossbyte.index.index import Index
    from crossbyte.model.estimator import CMCQ

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
    _check_widths(wanted, documents)
    with Index.create(path, wanted, n_jobs=jobs) as index:
        try:
            yield index
        except Exception:
            if not len(index):
                index.close()  # some systems do not remove an open file
                path.unlink(missing_ok=True)
            raise


def _check_widths(model: CMCQ, documents: Dataset) -> None:
    """Refuse features that do not fit the model, before an index is created."""
    from crossbyte.validation import check_features

    widths = {"images": model.n_features_in_, "texts": model.n_text_features_}
    for name, width in widths.items():
        features = getattr(documents, name)
        if features is not None:
            check_features(features[:1], name, width)


def _keep_side(documents: Dataset, side: Sides) -> Dataset:
    if side is Sides.BOTH:
        return documents
    if getattr(documents, f"{side}s") is None:
        raise InvalidInput(f"--side {side}: the documents have no {side}s; give another --side")
    return replace(documents, **{"texts" if side is Sides.IMAGE else "images": None})


def _select_rows(index: Searchable, documents: Dataset, skip_existing: bool) -> list[int]:
    """Select the rows to add."""
    rows = range(len(documents))
    if not skip_existing:
        return list(rows)
    existing = set(index.ids())
    names = rows if documents.ids is None else documents.ids
    return [row for row, name in zip(rows, names, strict=True) if name not in existing]


def _iterate_blocks(documents: Dataset, rows: list[int], size: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of rows before each block, and the block's arguments for ``Index.add``."""
    for first in range(0, len(rows), size):
        chosen = rows[first : first + size]
        block: dict[str, Any] = {
            "ids": chosen if documents.ids is None else _pick_values(documents.ids, chosen)
        }
        block |= {name: _pick_values(getattr(documents, name), chosen) for name in ("payloads", "groups")}
        block |= {name: _pick_rows(getattr(documents, name), chosen) for name in ("images", "texts")}
        yield first, block


def _pick_values(values: Any, rows: list[int]) -> list[Any] | None:
    return None if values is None else [values[row] for row in rows]


def _pick_rows(features: Any, rows: list[int]) -> Any:
    return None if features is None else features[rows]


def _scale_progress(callback: ProgressCallback, done: int, total: int) -> ProgressCallback:
    """Report the steps of one batch as steps of the whole."""
    return lambda step: callback(Progress(step.stage, step.detail, done + step.done, total))


def _report_interrupted(added: int, total: int, upsert: bool) -> int:
    how = "--upsert" if upsert else "--skip-existing"
    print_error(
        f"interrupted: the batches so far are in the index, {added:,} of {total:,} documents at least",
        f"to go on, run the same command with {how}",
    )
    return ExitCode.INTERRUPTED


def _describe_added(document: dict[str, Any]) -> list[str]:
    rate = document["added"] / max(document["seconds"], 1e-9)
    took = readable_seconds(document["seconds"])
    skipped = f", {document['skipped']:,} were there already" if document["skipped"] else ""
    added = plural(document["added"], "document")
    said = f"{document['index']}: {added} added in {took} ({rate:,.0f} per second)"
    return [f"{said}{skipped}; it has {document['documents']:,} now"]
