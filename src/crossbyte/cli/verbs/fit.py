"""``crossbyte fit``: learn a model, measure it, save it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.cluster import connected
from crossbyte.cli.failures import ExitCode, say
from crossbyte.cli.fitting_features import fit_features
from crossbyte.cli.fitting_files import fit_files
from crossbyte.cli.inputs import Given, check_free
from crossbyte.cli.output import emit
from crossbyte.cli.raw import RawGiven, is_raw_data
from crossbyte.cli.sampling import read_sample
from crossbyte.cli.values import parse_bytes, parse_parameters, parse_size
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.report.model_report import Report

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
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="auto|all|N",
            help="Fit on all pairs, or on so many; auto: as many as a pilot finds enough.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory", metavar="SIZE", help="Keep what the fit needs beyond this on disk, such as 1.5GB."
        ),
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
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> int:
    """Learn from pictures with texts, or from pairs of features, and measure it.

    From a folder of pictures with captions it makes an index that can be searched and served: docs/files.md
    says how captions may be given. Of features, row i of the images belongs to row i of the texts.
    Of more than 100,000 pairs, a pilot says how many are enough to learn from: see --sample.
    Quality and probabilities are measured on held-out pairs. Nothing is at the output path before the end.

    Example:
      crossbyte fit photos
      crossbyte fit photos --image-encoder efficientnet.onnx --index album.cb --bits 64
      crossbyte fit photos.npz -o model.cbm
      crossbyte fit --images clip.npy --texts bert.npy -o model.cbm --bits 64
      crossbyte fit embeddings -o model.cbm --sample all --max-memory 2GB
      crossbyte fit embeddings -o model.cbm --cluster 10.0.0.1:6379
    """
    from crossbyte.gallery.learning import FitOptions

    if min_recall is not None and not calibrate:
        raise InvalidInput("--min-recall needs the measured quality; leave out --no-calibrate")
    given = Given(data, split, images, texts, payloads, ids, groups)
    raw = RawGiven(image_column, text_column, id_column, image_encoder, text_encoder)
    check_free(output, overwrite=overwrite)
    _check_free_index(index)
    widths = parse_bytes(curve) if calibrate else None
    parameters, sample_size = _parameters(param or []), read_sample(sample)
    n_bytes = parse_size(max_memory, "--max-memory")
    asked = FitOptions(bits, mapping.value, parameters, seed, jobs, widths, n_bytes, cluster)
    if is_raw_data(given, raw):
        _refuse_for_pictures({"--sample": sample, "--max-memory": max_memory, "--cluster": cluster})
        fitted = fit_files(given, raw, asked, index, output, thumbnails=thumbnails, quiet=quiet)
    else:
        with connected(cluster, jobs):
            fitted = fit_features(
                given, asked, sample_size, index, output, min_recall=min_recall, quiet=quiet
            )
    emit(fitted.document, fitted.lines, as_json=as_json)
    return _judged(fitted.report, min_recall)


def _refuse_for_pictures(options: dict[str, Any]) -> None:
    """All pictures with texts are learned from, in memory."""
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(
                f"{name}: this option is for features, and DATA are pictures and captions; leave it out"
            )


def _check_free_index(path: Path | None) -> None:
    """An index holds documents: it is never replaced."""
    if path is not None and path.is_file():
        raise InvalidInput(
            f"{path}: expected a free name for the index, which is never overwritten, but a file is there; "
            "give another name, or remove it first"
        )
    check_free(path)


def _parameters(texts: list[str]) -> dict[str, Any]:
    """Read the parameters of CMCQ that have no option of their own."""
    from crossbyte.model.cmcq import CMCQ

    given = parse_parameters(texts)
    known = set(CMCQ().get_params()) - {"callback"}
    for name in given:
        if name in _OWN_OPTIONS:
            raise InvalidInput(f"--param: {name} has an option of its own; use {_OWN_OPTIONS[name]}")
        if name not in known:
            listed = ", ".join(sorted(known - set(_OWN_OPTIONS)))
            raise InvalidInput(f"--param: expected a parameter of CMCQ, got {name!r}; there are {listed}")
    return given


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
