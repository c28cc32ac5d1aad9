"""``crossbyte fit``: learn a model, measure it, save it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.failures import ExitCode, say
from crossbyte.cli.fitting_files import Fitted, described, fit_files
from crossbyte.cli.inputs import Given, check_free, read_pairs
from crossbyte.cli.output import emit, readable_seconds
from crossbyte.cli.progress import shown
from crossbyte.cli.raw import RawGiven, is_raw_data
from crossbyte.cli.values import parse_bytes, parse_parameters
from crossbyte.errors import FitInterrupted, InvalidInput

if TYPE_CHECKING:
    from crossbyte.data.files.reading import Dataset
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.model.report.report import Report

__all__ = ["fit"]


_OWN_OPTIONS = {"n_bits": "--bits", "mapping": "--mapping", "random_state": "--seed", "n_jobs": "--jobs"}


def fit(
    data: options.Data = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the model is saved; needed for features."),
    ] = None,
    split: options.Split = None,
    images: options.ImageFile = None,
    texts: options.TextFile = None,
    payloads: options.PayloadFile = None,
    ids: options.Ids = None,
    groups: options.GroupColumn = None,
    bits: Annotated[int, typer.Option("--bits", help="Bits per item; 8 make a byte.")] = 32,
    mapping: Annotated[
        options.Mapping,
        typer.Option("--mapping", help="The common space; auto tries them, sparse is the paper's."),
    ] = options.Mapping.AUTO,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same file.")] = 0,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="Another parameter of CMCQ; may be repeated."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Measure quality and probabilities on held-out pairs (a fit for each length).",
        ),
    ] = True,
    curve: Annotated[
        str,
        typer.Option("--curve", metavar="BYTES", help="Bytes per item to measure, too; '' is the quickest."),
    ] = "2,4,8,16",
    min_recall: Annotated[
        float | None,
        typer.Option("--min-recall", help="Exit code 3 if recall@10 of held-out pairs is below this."),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            "--index", metavar="FILE", help="Make an index here; of a folder, FOLDER.cb if not given."
        ),
    ] = None,
    image_encoder: options.ImageEncoder = None,
    text_encoder: options.TextEncoder = None,
    image_column: options.ImageColumn = None,
    text_column: options.TextColumns = None,
    id_column: options.IdColumn = None,
    thumbnails: options.Thumbnails = True,
    jobs: options.Jobs = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> int:
    """Learn from pictures with texts, or from pairs of features, and measure it.

    From a folder of pictures with captions it makes an index that can be searched and served: docs/files.md
    says how captions may be given. Of features, row i of the images belongs to row i of the texts.
    Quality and probabilities are measured on held-out pairs. Nothing is at the output path before the end.

    Example:
      crossbyte fit photos
      crossbyte fit photos --image-encoder efficientnet.onnx --index album.cb --bits 64
      crossbyte fit photos.npz -o model.cbm
      crossbyte fit --images clip.npy --texts bert.npy -o model.cbm --bits 64
    """
    if min_recall is not None and not calibrate:
        raise InvalidInput("--min-recall needs the measured quality; leave out --no-calibrate")
    given = Given(data, split, images, texts, payloads, ids, groups)
    raw = RawGiven(image_column, text_column, id_column, image_encoder, text_encoder)
    check_free(output, overwrite=overwrite)
    _check_free_index(index)
    widths = parse_bytes(curve) if calibrate else None
    parameters = _parameters(param or [], bits, mapping.value, seed, jobs)
    if is_raw_data(given, raw):
        fitted = fit_files(given, raw, parameters, widths, index, output, thumbnails=thumbnails, quiet=quiet)
    else:
        fitted = _fit_features(given, parameters, widths, min_recall, index, output, quiet)
    emit(fitted.document, fitted.lines, as_json=as_json)
    return _judged(fitted.report, min_recall)


def _fit_features(
    given: Given,
    parameters: dict[str, Any],
    widths: list[int] | None,
    min_recall: float | None,
    index: Path | None,
    output: Path | None,
    quiet: bool,
) -> Fitted:
    if output is None:
        raise InvalidInput("expected -o FILE, where the model of these features is saved, got none; give it")
    pairs = read_pairs(given)
    _judge(pairs, widths, min_recall, with_index=index is not None)
    began = time.perf_counter()
    with shown("fit", quiet=quiet) as callback:
        model = _fitted(pairs, parameters | {"callback": callback}, widths)
    identity = model.save(output)
    if index is not None:
        _make_index(index, model, pairs, parameters["n_jobs"])
    seconds = time.perf_counter() - began
    report = model.report_ if widths is not None else None
    document = {"model": output, "identity": identity, "index": index, "pairs": len(pairs)}
    document |= described(model, report) | {"seconds": round(seconds, 3)}
    return Fitted(document, _text(document, report), report)


def _check_free_index(path: Path | None) -> None:
    """An index holds documents: it is never replaced."""
    if path is not None and path.is_file():
        raise InvalidInput(
            f"{path}: expected a free name for the index, which is never overwritten, but a file is there; "
            "give another name, or remove it first"
        )
    check_free(path)


def _parameters(texts: list[str], bits: int, mapping: str, seed: int, jobs: int | None) -> dict[str, Any]:
    from crossbyte.model.cmcq import CMCQ

    given = parse_parameters(texts)
    known = set(CMCQ().get_params()) - {"callback"}
    for name in given:
        if name in _OWN_OPTIONS:
            raise InvalidInput(f"--param: {name} has an option of its own; use {_OWN_OPTIONS[name]}")
        if name not in known:
            listed = ", ".join(sorted(known - set(_OWN_OPTIONS)))
            raise InvalidInput(f"--param: expected a parameter of CMCQ, got {name!r}; there are {listed}")
    return given | {"n_bits": bits, "mapping": mapping, "random_state": seed, "n_jobs": jobs}


def _judge(pairs: Dataset, curve: list[int] | None, min_recall: float | None, *, with_index: bool) -> None:
    """Refuse before the fit what would only be refused after it."""
    from crossbyte.model.parameters import MAX_BITS
    from crossbyte.model.selection import check_enough_groups
    from crossbyte.validation import check_groups, check_integer, check_number

    if min_recall is not None:
        check_number(min_recall, "min_recall", 0.0, 1.0)
    groups = check_groups(pairs.groups, len(pairs))
    for width in curve or []:
        check_integer(width, "curve", 1, MAX_BITS // 8)
    if curve is not None:
        check_enough_groups(
            int(groups.max(initial=-1)) + 1,
            "measuring holds out a tenth of the groups",
            "give more pairs, or --no-calibrate",
        )
    if with_index:
        _judge_documents(pairs)


def _judge_documents(pairs: Dataset) -> None:
    from crossbyte.search.batch import check_payloads
    from crossbyte.search.ids import check_id, check_ids

    if pairs.ids is not None:
        check_ids(pairs.ids)
    try:
        for label in pairs.groups or []:
            check_id(label)
    except InvalidInput as error:
        raise InvalidInput(f"groups: an index takes fewer kinds than a fit ({error}); use strings") from error
    if pairs.payloads is not None:
        check_payloads(pairs.payloads, len(pairs))


def _fitted(pairs: Dataset, parameters: dict[str, Any], curve: list[int] | None) -> CMCQ:
    from crossbyte.model.cmcq import CMCQ

    model = CMCQ(**parameters).fit(pairs.images, pairs.texts, groups=pairs.groups)
    if curve is not None:
        with _saying_what_is_lost():
            model.calibrate(pairs.images, pairs.texts, groups=pairs.groups, curve=curve)
    return model


@contextmanager
def _saying_what_is_lost() -> Iterator[None]:
    """Own up that a fitted model goes when measuring it is broken off: nothing half done is saved."""
    lost = "nothing was saved, not even the fitted model"
    try:
        yield
    except FitInterrupted as error:
        raise FitInterrupted(f"{str(error).partition(';')[0]}; {lost}") from None
    except MemoryError as error:
        raise MemoryError(f"measuring the quality did not fit into memory; {lost}") from error


def _make_index(path: Path, model: CMCQ, pairs: Dataset, jobs: int | None) -> None:
    from crossbyte.search.index import Index

    Index.from_training(path, model, pairs.ids, pairs.payloads, groups=pairs.groups, n_jobs=jobs).close()


def _text(document: dict[str, Any], report: Report | None) -> list[str]:
    took, n_bytes = readable_seconds(document["seconds"]), document["bits"] // 8
    space = f"{document['mapping']} space of {document['components']} dimensions"
    said = [
        f"{document['model']}: learned from {document['pairs']:,} pairs in {took}; "
        f"{n_bytes} bytes per item, {space}"
    ]
    if document["index"] is not None:
        said.append(f"{document['index']}: an index of the {document['pairs']:,} training documents")
    if report is None:
        return [*said, "Quality was not measured (--no-calibrate)."]
    return [*said, "", str(report)]


def _judged(report: Report | None, min_recall: float | None) -> int:
    if min_recall is None or report is None:
        return ExitCode.FINE
    reached = report.recall(10)
    if reached >= min_recall:
        return ExitCode.FINE
    say(
        f"recall@10 of held-out pairs is {reached:.3f}, not {min_recall:g} as asked; the model was saved",
        "try more bits, pairs or other features; `crossbyte report` shows the quality by bytes",
    )
    return ExitCode.QUALITY
