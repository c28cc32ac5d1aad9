"""Run ``crossbyte fit``: learn a model from features or from pictures with captions, measure it, save it.

First the command itself, then fitting on pictures with captions, then fitting on features, then the sample of
pairs to fit on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    check_free,
    describe_kinds,
    describe_skipped,
    drop_unread,
    is_raw_data,
    list_skipped,
    parse_bytes,
    parse_parameters,
    parse_size,
    read_pairs,
    read_raw_documents,
    read_word_settings,
)
from crossbyte.cli.output import connect_cluster, describe_bytes, describe_words, emit, show_progress
from crossbyte.errors import FitInterrupted, InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crossbyte.data.captions.raw_documents import RawDocuments
    from crossbyte.data.dataset import Dataset
    from crossbyte.gallery.build import BuildResult, FitOptions
    from crossbyte.index.index import Index
    from crossbyte.model.estimator import CMCQ
    from crossbyte.progress import ProgressCallback
    from crossbyte.report.model_report import Report


_LONGEST_EXAMPLE = 48
_SIDES = {"image": "Pictures", "text": "Texts"}
_BLOCK = 20_000  # documents that are coded and written at a time
_CLUSTER_BLOCK = 100_000  # several shares of rows, so that every worker has one
_OWN_OPTIONS = {"n_bits": "--bytes", "mapping": "--mapping", "random_state": "--seed", "n_jobs": "--jobs"}


class FitResult(NamedTuple):
    """The result of ``fit``: as JSON, as lines of text, and its measured quality (None if not measured)."""

    document: dict[str, Any]
    lines: list[str]
    report: Report | None


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
    item_bytes: Annotated[
        int | None,
        typer.Option(
            "--bytes",
            help="Bytes per item; not given: 4 of features, of pictures as many as help held-out captions.",
        ),
    ] = None,
    bits: Annotated[int | None, typer.Option("--bits", help="The same in bits; 8 make a byte.")] = None,
    mapping: Annotated[
        options.Mapping | None,
        typer.Option(
            "--mapping",
            help="The common space: cca, or joint where one encoder of both sides shares it; auto tries "
            "preparations, sparse is the paper's.",
        ),
    ] = None,
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
    codes: options.DocumentCodes = None,
    encoder: options.Encoders = None,
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
    says how captions may be given. With a network of both sides (CLIP), captions are not needed.
    Of features, row i of the images belongs to row i of the texts.
    Of more than 100,000 pairs, a pilot says how many are enough to learn from: see --sample.
    Quality and probabilities are measured on held-out pairs. Nothing is at the output path before the end.

    Example:
      crossbyte fit photos
      crossbyte fit photos --encoder clip-folder
      crossbyte fit photos --encoder efficientnet.onnx --index album.cb --bytes 8
      crossbyte fit photos.npz -o model.cbm
      crossbyte fit --images clip.npy --texts bert.npy -o model.cbm --bytes 8
      crossbyte fit embeddings -o model.cbm --sample all --max-memory 2GB
      crossbyte fit embeddings -o model.cbm --cluster 10.0.0.1:6379
    """
    from crossbyte.gallery.build import FitOptions

    if min_recall is not None and not calibrate:
        raise InvalidInput("--min-recall needs the measured quality; leave out --no-calibrate")
    given = InputOptions(data, split, images, texts, payloads, ids, groups)
    raw = RawInputOptions(image_column, text_column, id_column, image_encoder, text_encoder, encoder)
    check_free(output, overwrite=overwrite)
    _check_free_index(index)
    widths = parse_bytes(curve) if calibrate else None
    parameters, sample_size = _parse_model_parameters(param or []), parse_sample(sample)
    n_bytes = parse_size(max_memory, "--max-memory")
    n_bits = _choose_bits(item_bytes, bits)
    space = None if mapping is None else mapping.value
    fit_options = FitOptions(n_bits, space, parameters, seed, jobs, widths, n_bytes, cluster, codes)
    if is_raw_data(given, raw):
        _refuse_feature_options({"--sample": sample, "--max-memory": max_memory, "--cluster": cluster})
        fitted = fit_files(given, raw, fit_options, index, output, thumbnails=thumbnails, quiet=quiet)
    else:
        with connect_cluster(cluster, jobs):
            fitted = fit_features(
                given, fit_options, sample_size, index, output, min_recall=min_recall, quiet=quiet
            )
    emit(fitted.document, fitted.lines, as_json=as_json)
    return _check_min_recall(fitted.report, min_recall)


def _choose_bits(item_bytes: int | None, bits: int | None) -> int | None:
    """Read the length of codes; None where the user leaves it to us."""
    if item_bytes is None:
        return bits
    if bits is not None:
        raise InvalidInput(f"expected --bytes or --bits, got both ({item_bytes} and {bits}); leave one out")
    from crossbyte.model.params import MAX_BITS
    from crossbyte.validation import check_integer

    return 8 * check_integer(item_bytes, "--bytes", 1, MAX_BITS // 8)


def _parse_model_parameters(texts: list[str]) -> dict[str, Any]:
    """Read the parameters of CMCQ that have no option of their own."""
    from crossbyte.model.estimator import CMCQ

    given = parse_parameters(texts)
    known = set(CMCQ().get_params()) - {"callback"}
    for name in given:
        if name in _OWN_OPTIONS:
            raise InvalidInput(f"--param: {name} has an option of its own; use {_OWN_OPTIONS[name]}")
        if name not in known:
            listed = ", ".join(sorted(known - set(_OWN_OPTIONS)))
            raise InvalidInput(f"--param: expected a parameter of CMCQ, got {name!r}; there are {listed}")
    return given


def _check_free_index(path: Path | None) -> None:
    """Refuse a name that is taken: an index holds documents, and is never replaced."""
    if path is not None and path.is_file():
        raise InvalidInput(
            f"{path}: expected a free name for the index, which is never overwritten, but a file is there; "
            "give another name, or remove it first"
        )
    check_free(path)


def _refuse_feature_options(given: dict[str, Any]) -> None:
    """Refuse options that only features have: a fit on pictures takes all of them, in memory."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"{name}: this option is for features, and DATA are pictures and captions; leave it out"
            )


def _check_min_recall(report: Report | None, min_recall: float | None) -> int:
    if min_recall is None or report is None:
        return ExitCode.FINE
    reached = report.recall(10)
    if reached >= min_recall:
        return ExitCode.FINE
    print_error(
        f"recall@10 of held-out pairs is {reached:.3f}, not {min_recall:g} as asked; the model was saved",
        "try more bits, pairs or other features; `crossbyte report` shows the quality by bytes",
    )
    return ExitCode.QUALITY


def describe_model(model: CMCQ, report: Report | None, codes: str | None) -> dict[str, Any]:
    """Describe a model as in the JSON document of ``fit``, with the codes asked for; None for its own."""
    own = "document" if model.fitted_.has_document_codes else "sides"
    return {
        "bits": model.n_bits,
        "codes": codes or own,
        "mapping": model.mapping_,
        "components": model.n_components_,
        "report": None if report is None else report.to_dict(),
    }


# Pictures with captions


def fit_files(
    given: InputOptions,
    raw: RawInputOptions,
    fit_options: FitOptions,
    index: Path | None,
    output: Path | None,
    *,
    thumbnails: bool,
    quiet: bool,
) -> FitResult:
    """Build an index from a folder of pictures, or a table that names them; save its model where asked."""
    from crossbyte.gallery.build import build_at_free_path
    from crossbyte.index.storage.database import real_path

    assert given.data is not None
    path, began = index or _choose_index_path(given.data), time.perf_counter()
    documents = read_raw_documents(given.data, raw)
    specs = raw.specify_encoders()
    with show_progress("fit", quiet=quiet) as callback:
        built = build_at_free_path(
            documents, Path(real_path(path)), fit_options, specs, thumbnails=thumbnails, callback=callback
        )
    identity = None if output is None else built.model.save(output)
    report = built.model.report_ if built.model.calibration_ is not None else None
    document: dict[str, Any] = {"model": output, "identity": identity, "index": path, "pairs": built.n_pairs}
    kept = drop_unread(documents, built.skipped)
    document |= {
        "documents": built.n_documents,
        "without_text": kept.n_without_text,
        "without_picture": kept.n_without_picture,
        "form": documents.form,
        "skipped": list_skipped(built.skipped),
    }
    document |= describe_model(built.model, report, fit_options.codes) | {
        "seconds": round(time.perf_counter() - began, 3)
    }
    document["words"] = read_word_settings(path)
    document["encoders"] = {side: state.name for side, state in built.model.encoder_states_.items()}
    document["encoder_reasons"] = built.reasons
    document["grouping"] = built.grouping
    return FitResult(
        document,
        list(_describe_built(document, kept, built, report, fit_options.curve is not None)),
        report,
    )


def _choose_index_path(data: Path) -> Path:
    """Name the index after the folder, in the current directory, where the user gave no name."""
    from crossbyte.index.storage.database import real_path

    folder = data.resolve() if data.is_dir() else data.resolve().parent
    path = Path(f"{folder.name or 'photos'}.cb")
    if path.exists():
        raise InvalidInput(
            f"{path}: there is an index of this name already, and none is ever overwritten; give another "
            "name with --index FILE, add to it with `crossbyte add`, or remove it first"
        )
    check_free(Path(real_path(path)))
    return path


def _describe_built(
    document: dict[str, Any],
    documents: RawDocuments,
    built: BuildResult,
    report: Report | None,
    calibrated: bool,
) -> Iterator[str]:
    took = readable_seconds(document["seconds"])
    yield (
        f"{document['index']}: {plural(built.n_documents, 'document')}: {describe_kinds(documents)}, in "
        f"{took}; {describe_bytes(document)}, {document['mapping']} space of {document['components']} "
        "dimensions"
    )
    if document["model"] is not None:
        yield f"{document['model']}: its model"
    yield from describe_skipped(built.skipped)
    for side, reason in built.reasons.items():
        yield f"{_SIDES[side]}: {reason}"
    if built.grouping is not None:
        yield built.grouping
    if document["words"] is None:
        yield "Words are not searched: this SQLite was built without FTS5, so vectors alone find documents."
    if document["mapping"] == "joint":
        yield _explain_shared_space(built)
    yield ""
    if document["words"] is not None:
        for section in describe_words(document["words"]["measured"]):
            yield from (section, "")
    yield str(report) if report is not None else _explain_unmeasured(built, calibrated)
    yield ""
    yield "Next:"
    yield f'  crossbyte search {document["index"]} --text "{_choose_example_text(documents)}"'
    yield f"  crossbyte serve {document['index']}"


def _explain_shared_space(built: BuildResult) -> str:
    """Say what captions were needed for."""
    name = built.model.encoder_states_["image"].name
    if built.model.fitted_.settings.refinement is not None:
        told = (
            f"{plural(built.n_pairs, 'picture')} with texts moved it, as held-out ones were found better so"
        )
    elif built.n_pairs:
        told = "it was taken as it is: captions did not help held-out pairs, or are too few to tell"
    else:
        told = "no captions were needed"
    return f"Space: {name} puts pictures and texts into one space; {told}."


def _explain_unmeasured(built: BuildResult, calibrated: bool) -> str:
    if not calibrated:
        return "Quality was not measured (--no-calibrate)."
    from crossbyte.model.selection import MIN_GROUPS

    there = f"there are {built.n_pairs}"
    if built.n_groups < built.n_pairs:
        there += f", whose shared captions leave {built.n_groups} that are apart"
    return (
        f"Quality was not measured, and answers come without probabilities: that takes {MIN_GROUPS} pictures "
        f"with texts of their own, and {there}. About 1,000 make good answers."
    )


def _choose_example_text(documents: RawDocuments) -> str:
    """Choose words for a first query: the first short caption that needs no quoting in a shell."""
    for captions in documents.texts:
        for caption in captions:
            if 0 < len(caption) <= _LONGEST_EXAMPLE and not set(caption) & set('"\\$`!\n'):
                return caption
    return "a dog"


# Features


def fit_features(
    given: InputOptions,
    fit_options: FitOptions,
    sample_size: str | int,
    index: Path | None,
    output: Path | None,
    *,
    min_recall: float | None,
    quiet: bool,
) -> FitResult:
    """Fit on pairs of features, all or a sample, and save the model; build an index where asked."""
    if output is None:
        raise InvalidInput("expected -o FILE, where the model of these features is saved, got none; give it")
    if fit_options.codes is not None and index is None:
        raise InvalidInput(
            "--codes says what the documents of an index get; give --index FILE, or leave it out"
        )
    fit_options.check_codes(fit_options.model())
    pairs = read_pairs(given, stored=True, payloads=index is not None)
    _check_pairs(pairs, fit_options, min_recall, for_index=index is not None)
    began = time.perf_counter()
    with show_progress("fit", quiet=quiet) as callback:
        sample = take_sample(sample_size, pairs, fit_options, callback)
        split = _TrainingSplit.of(pairs, sample.rows)
        _check_pair_groups(split.training, fit_options)
        model = _fit_and_calibrate(split.training, fit_options, callback)
        identity = model.save(output)
        if index is not None:
            _make_index(index, model, split, fit_options, callback)
    report = model.report_ if fit_options.curve is not None else None
    document: dict[str, Any] = {"model": output, "identity": identity, "index": index}
    document |= {"pairs": len(split.training), "sample": sample.to_dict()} | describe_model(
        model, report, fit_options.codes
    )
    document["seconds"] = round(time.perf_counter() - began, 3)
    learned_codes = _has_learned_codes(model, fit_options)
    return FitResult(document, _describe_fit(document, sample, report, learned_codes=learned_codes), report)


def _check_pairs(
    pairs: Dataset, fit_options: FitOptions, min_recall: float | None, *, for_index: bool
) -> None:
    """Refuse, before the fit, what would otherwise be refused only after it."""
    from crossbyte.model.params import MAX_BITS
    from crossbyte.validation import check_integer, check_number

    if min_recall is not None:
        check_number(min_recall, "min_recall", 0.0, 1.0)
    for width in fit_options.curve or []:
        check_integer(width, "curve", 1, MAX_BITS // 8)
    _check_pair_groups(pairs, fit_options)
    if for_index:
        _check_documents(pairs)


def _check_pair_groups(pairs: Dataset, fit_options: FitOptions) -> None:
    from crossbyte.model.selection import check_enough_groups
    from crossbyte.validation import check_groups

    groups = check_groups(pairs.groups, len(pairs))
    if fit_options.curve is not None:
        check_enough_groups(
            int(groups.max(initial=-1)) + 1,
            "measuring holds out a tenth of the groups",
            "give more pairs, or --no-calibrate",
        )


def _check_documents(pairs: Dataset) -> None:
    from crossbyte.index.docids import check_id, check_ids
    from crossbyte.index.mutations import check_payloads

    if pairs.ids is not None:
        check_ids(pairs.ids)
    try:
        for label in pairs.groups or []:
            check_id(label)
    except InvalidInput as error:
        raise InvalidInput(f"groups: an index takes fewer kinds than a fit ({error}); use strings") from error
    if pairs.payloads is not None:
        check_payloads(pairs.payloads, len(pairs))


def _fit_and_calibrate(pairs: Dataset, fit_options: FitOptions, callback: ProgressCallback) -> CMCQ:
    model = fit_options.model(callback)
    model.fit(pairs.images, pairs.texts, groups=pairs.groups, **fit_options.fit_arguments())
    if fit_options.curve is not None:
        with _explain_lost_model():
            model.calibrate(pairs.images, pairs.texts, groups=pairs.groups, curve=fit_options.curve)
    return model


@contextmanager
def _explain_lost_model() -> Iterator[None]:
    """Say that the fitted model is lost when its calibration is interrupted: nothing half done is saved."""
    lost = "nothing was saved, not even the fitted model"
    try:
        yield
    except FitInterrupted as error:
        raise FitInterrupted(f"{str(error).partition(';')[0]}; {lost}") from None
    except MemoryError as error:
        raise MemoryError(f"measuring the quality did not fit into memory; {lost}") from error


def _make_index(
    path: Path, model: CMCQ, split: _TrainingSplit, fit_options: FitOptions, callback: ProgressCallback
) -> None:
    """Build an index of all documents; those whose wanted codes were not learned are coded like new ones."""
    from crossbyte.index.index import Index

    rows, training = split.rows, split.training
    if _has_learned_codes(model, fit_options):
        new_index = Index.from_training(
            path,
            model,
            training.ids if rows is None else _list_ids(training, rows),
            training.payloads,
            groups=training.groups,
            codes=fit_options.codes,
            n_jobs=model.n_jobs,
        )
    else:
        new_index = Index.create(path, model, n_jobs=model.n_jobs)
    try:
        with new_index as index:
            _add_others(index, split, fit_options, callback)
    except BaseException:
        path.unlink(missing_ok=True)  # part of the documents is no index of them
        raise


def _has_learned_codes(model: CMCQ, fit_options: FitOptions) -> bool:
    """Whether the fit has learned the codes that training documents get in an index."""
    return not (model.fitted_.has_document_codes and fit_options.codes == "sides")


def _add_others(
    index: Index, split: _TrainingSplit, fit_options: FitOptions, callback: ProgressCallback
) -> None:
    """Code and add the documents that the new index does not have yet."""
    import numpy as np

    from crossbyte.progress import Progress

    pairs = split.pairs
    is_added = np.zeros(len(pairs), dtype=bool)
    if len(index):
        is_added[slice(None) if split.rows is None else split.rows] = True
    others = np.flatnonzero(~is_added)
    size = _BLOCK if fit_options.cluster is None else _CLUSTER_BLOCK
    for first in range(0, len(others), size):
        chosen = others[first : first + size]
        block = take_rows(pairs, chosen)
        index.add(
            _list_ids(block, chosen),
            images=block.images,
            texts=block.texts,
            payloads=block.payloads,
            groups=block.groups,
            codes=fit_options.codes,
            cluster=fit_options.cluster,
        )
        callback(Progress("code", "documents", first + len(block), len(others)))


def _list_ids(part: Dataset, rows: NDArray[np.intp]) -> list[Any]:
    """List the ids of some rows: those of the dataset, or else the row numbers."""
    return rows.tolist() if part.ids is None else part.ids


def _describe_fit(
    document: dict[str, Any], sample: Sample, report: Report | None, *, learned_codes: bool
) -> list[str]:
    took = readable_seconds(document["seconds"])
    space = f"{document['mapping']} space of {document['components']} dimensions"
    said = [
        f"{document['model']}: learned from {document['pairs']:,} pairs in {took}; "
        f"{describe_bytes(document)}, {space}",
        *sample.lines(),
    ]
    if document["index"] is not None:
        which = f"all {sample.of:,} documents"
        if not learned_codes:
            which += ", each coded from its features: the model has learned one code of both halves, not two"
        elif sample.rows is None:
            which = f"the {document['pairs']:,} training documents"
        else:
            which += f", with the learned codes of the {document['pairs']:,} training documents"
        said.append(f"{document['index']}: an index of {which}")
    if report is None:
        return [*said, "Quality was not measured (--no-calibrate)."]
    return [*said, "", str(report)]


# The sample of pairs to fit on


class Sample(NamedTuple):
    """The rows to fit on; None for all of them.

    Attributes
    ----------
    rows : (m,) intp, ascending, or None
    wanted : int
        The number of pairs asked for; whole groups can make it a few fewer.
    of : int
        The number of all pairs.
    seed : int
    why : str
        The reason for this number; empty where there was nothing to decide.
    tried : list of (int, float)
        Pairs and recall@10 of the pilots.
    """

    rows: NDArray[np.intp] | None
    wanted: int
    of: int
    seed: int
    why: str = ""
    tried: list[tuple[int, float]] = []

    def to_dict(self) -> dict[str, Any] | None:
        """Describe the sample as in the JSON document of ``fit``; None where all pairs were taken."""
        if self.rows is None:
            return None
        asked = {"pairs": len(self.rows), "asked": self.wanted, "of": self.of, "seed": self.seed}
        return asked | {"why": self.why, "pilots": [list(one) for one in self.tried]}

    def lines(self) -> list[str]:
        """Describe the sample in words; no line where there is nothing to say."""
        why = f": {self.why}" if self.why else ""
        if self.rows is None:
            return [f"All {self.of:,} pairs were taken{why}."] if self.tried else []
        return [
            f"These are a sample of {self.of:,} pairs, drawn with seed {self.seed}{why}. "
            f"--sample {self.wanted} takes the same ones, --sample all every pair."
        ]


def parse_sample(text: str | None) -> str | int:
    """Parse ``--sample``: ``auto`` (also where it is not given), ``all``, or a number of pairs."""
    if text is None or text in ("auto", "all"):
        return text or "auto"
    if not text.isdecimal() or int(text) < 2:
        raise InvalidInput(
            f"--sample: expected auto, all, or a number of pairs from 2 on, got {text!r}; give one of these"
        )
    return int(text)


def take_sample(
    wanted: str | int, pairs: Dataset, fit_options: FitOptions, callback: ProgressCallback
) -> Sample:
    """Draw the rows to fit on; ``auto`` runs a pilot where there are many pairs."""
    n_pairs, seed = len(pairs), fit_options.seed
    if wanted == "all":
        return Sample(None, n_pairs, n_pairs, seed)
    if isinstance(wanted, int):
        return _draw_sample(Sample(None, wanted, n_pairs, seed), pairs)
    from crossbyte.index.plan.size_model import ALWAYS_ALL

    if n_pairs <= ALWAYS_ALL:
        return Sample(None, n_pairs, n_pairs, seed)
    found = _run_pilot(pairs, fit_options, callback)
    return _draw_sample(Sample(None, found.pairs, n_pairs, seed, str(found), found.tried), pairs)


def _draw_sample(sample: Sample, pairs: Dataset) -> Sample:
    from crossbyte.index.plan.pilot import draw_pairs

    if sample.wanted >= sample.of:
        return sample
    return sample._replace(rows=draw_pairs(sample.of, sample.wanted, pairs.groups, seed=sample.seed))


def _run_pilot(pairs: Dataset, fit_options: FitOptions, callback: ProgressCallback) -> Any:
    """Find the sample size by pilot fits; with CCA in place of ``auto``, whose pilot alone takes minutes."""
    from crossbyte.index.plan.pilot import find_sample_size

    if fit_options.mapping == "auto":
        fit_options = fit_options._replace(mapping="cca")
    model, n_jobs = fit_options.model(), fit_options.n_jobs
    try:
        return find_sample_size(
            pairs.images, pairs.texts, pairs.groups, model=model, n_jobs=n_jobs, callback=callback
        )
    except FitInterrupted:  # the user does not know of the pilot's model
        raise KeyboardInterrupt from None


class _TrainingSplit(NamedTuple):
    """All pairs, and those to fit on: some of their rows, or all where ``rows`` is None."""

    pairs: Dataset
    rows: NDArray[np.intp] | None
    training: Dataset

    @classmethod
    def of(cls, pairs: Dataset, rows: NDArray[np.intp] | None) -> _TrainingSplit:
        return cls(pairs, rows, pairs if rows is None else take_rows(pairs, rows))


def take_rows(pairs: Dataset, rows: NDArray[np.intp]) -> Dataset:
    """Take some rows of a dataset, ascending; features that are on disk stay there."""

    def pick(values: Any) -> Any:
        return None if values is None else [values[row] for row in rows.tolist()]

    return replace(
        pairs,
        images=_take_feature_rows(pairs.images, rows),
        texts=_take_feature_rows(pairs.texts, rows),
        ids=pick(pairs.ids),
        payloads=pick(pairs.payloads),
        groups=pick(pairs.groups),
    )


def _take_feature_rows(features: Any, rows: NDArray[np.intp]) -> Any:
    from crossbyte.data.ondisk import RowSubset
    from crossbyte.validation import is_stored

    return RowSubset(features, rows) if is_stored(features) else features[rows]
