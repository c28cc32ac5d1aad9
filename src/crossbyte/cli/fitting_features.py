"""``crossbyte fit`` of features: from pairs to a model, perhaps an index, and what is said of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte._format import readable_seconds
from crossbyte.cli.fitting_files import Fitted, described
from crossbyte.cli.inputs import Given, read_pairs
from crossbyte.cli.progress import shown
from crossbyte.cli.sampling import Sample, part_of, take_sample
from crossbyte.errors import FitInterrupted, InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crossbyte.data.files.reading import Dataset
    from crossbyte.gallery.learning import FitOptions
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.progress import ProgressCallback
    from crossbyte.report.model_report import Report
    from crossbyte.search.index import Index

__all__ = ["fit_features"]

_BLOCK = 20_000  # documents that are coded and written at a time
_CLUSTER_BLOCK = 100_000  # several shares of rows, so that every worker has one


class _Parts(NamedTuple):
    """All pairs, and those to learn from: some of their rows, or all, where ``rows`` is None."""

    pairs: Dataset
    rows: NDArray[np.intp] | None
    training: Dataset

    @classmethod
    def of(cls, pairs: Dataset, rows: NDArray[np.intp] | None) -> _Parts:
        return cls(pairs, rows, pairs if rows is None else part_of(pairs, rows))


def fit_features(
    given: Given,
    options: FitOptions,
    sample_size: str | int,
    index: Path | None,
    output: Path | None,
    *,
    min_recall: float | None,
    quiet: bool,
) -> Fitted:
    """Learn from pairs of features, all or a sample, and save the model; and make an index, if asked."""
    if output is None:
        raise InvalidInput("expected -o FILE, where the model of these features is saved, got none; give it")
    pairs = read_pairs(given, stored=True, payloads=index is not None)
    _judge(pairs, options, min_recall, for_index=index is not None)
    began = time.perf_counter()
    with shown("fit", quiet=quiet) as callback:
        sample = take_sample(sample_size, pairs, options, callback)
        parts = _Parts.of(pairs, sample.rows)
        _judge_groups(parts.training, options)
        model = _fitted(parts.training, options, callback)
        identity = model.save(output)
        if index is not None:
            _make_index(index, model, parts, options.cluster, callback)
    report = model.report_ if options.curve is not None else None
    document: dict[str, Any] = {"model": output, "identity": identity, "index": index}
    document |= {"pairs": len(parts.training), "sample": sample.to_dict()} | described(model, report)
    document["seconds"] = round(time.perf_counter() - began, 3)
    return Fitted(document, _text(document, sample, report), report)


# Judging


def _judge(pairs: Dataset, options: FitOptions, min_recall: float | None, *, for_index: bool) -> None:
    """Refuse before the fit what would only be refused after it."""
    from crossbyte.model.parameters import MAX_BITS
    from crossbyte.validation import check_integer, check_number

    if min_recall is not None:
        check_number(min_recall, "min_recall", 0.0, 1.0)
    for width in options.curve or []:
        check_integer(width, "curve", 1, MAX_BITS // 8)
    _judge_groups(pairs, options)
    if for_index:
        _judge_documents(pairs)


def _judge_groups(pairs: Dataset, options: FitOptions) -> None:
    from crossbyte.model.selection import check_enough_groups
    from crossbyte.validation import check_groups

    groups = check_groups(pairs.groups, len(pairs))
    if options.curve is not None:
        check_enough_groups(
            int(groups.max(initial=-1)) + 1,
            "measuring holds out a tenth of the groups",
            "give more pairs, or --no-calibrate",
        )


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


# Fitting


def _fitted(pairs: Dataset, options: FitOptions, callback: ProgressCallback) -> CMCQ:
    model = options.model(callback)
    model.fit(pairs.images, pairs.texts, groups=pairs.groups, **options.fit_arguments())
    if options.curve is not None:
        with _saying_what_is_lost():
            model.calibrate(pairs.images, pairs.texts, groups=pairs.groups, curve=options.curve)
    return model


@contextmanager
def _saying_what_is_lost() -> Iterator[None]:
    """Say that the fitted model is lost when its calibration is interrupted: nothing half done is saved."""
    lost = "nothing was saved, not even the fitted model"
    try:
        yield
    except FitInterrupted as error:
        raise FitInterrupted(f"{str(error).partition(';')[0]}; {lost}") from None
    except MemoryError as error:
        raise MemoryError(f"measuring the quality did not fit into memory; {lost}") from error


# The index


def _make_index(
    path: Path, model: CMCQ, parts: _Parts, cluster: str | None, callback: ProgressCallback
) -> None:
    """Make an index of all documents; those that were not fitted on are coded as pairs."""
    from crossbyte.search.index import Index

    rows, training = parts.rows, parts.training
    ids = training.ids if rows is None else _ids_of(training, rows)
    made = Index.from_training(
        path, model, ids, training.payloads, groups=training.groups, n_jobs=model.n_jobs
    )
    try:
        with made as index:
            if rows is not None:
                _add_others(index, parts.pairs, rows, cluster, callback)
    except BaseException:
        path.unlink(missing_ok=True)  # part of the documents is no index of them
        raise


def _add_others(
    index: Index, pairs: Dataset, rows: NDArray[np.intp], cluster: str | None, callback: ProgressCallback
) -> None:
    import numpy as np

    from crossbyte.progress import Progress

    inside = np.zeros(len(pairs), dtype=bool)
    inside[rows] = True
    others = np.flatnonzero(~inside)
    size = _BLOCK if cluster is None else _CLUSTER_BLOCK
    for first in range(0, len(others), size):
        chosen = others[first : first + size]
        block = part_of(pairs, chosen)
        index.add(
            _ids_of(block, chosen),
            images=block.images,
            texts=block.texts,
            payloads=block.payloads,
            groups=block.groups,
            cluster=cluster,
        )
        callback(Progress("code", "other documents", first + len(block), len(others)))


def _ids_of(part: Dataset, rows: NDArray[np.intp]) -> list[Any]:
    """The ids of some rows, if only their numbers."""
    return rows.tolist() if part.ids is None else part.ids


# Words


def _text(document: dict[str, Any], sample: Sample, report: Report | None) -> list[str]:
    took, n_bytes = readable_seconds(document["seconds"]), document["bits"] // 8
    space = f"{document['mapping']} space of {document['components']} dimensions"
    said = [
        f"{document['model']}: learned from {document['pairs']:,} pairs in {took}; "
        f"{n_bytes} bytes per item, {space}",
        *sample.lines(),
    ]
    if document["index"] is not None:
        which = (
            "the" if sample.rows is None else f"all {sample.of:,} documents, with the learned codes of the"
        )
        said.append(f"{document['index']}: an index of {which} {document['pairs']:,} training documents")
    if report is None:
        return [*said, "Quality was not measured (--no-calibrate)."]
    return [*said, "", str(report)]
