"""Plan an index: what it will cost before it is built, and how many bits it can have or needs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte._not_fitted import NotFitted
from crossbyte.data.ondisk import coerce_rows
from crossbyte.errors import InvalidInput, NoPlan, NotCalibrated
from crossbyte.index.docids import check_ids
from crossbyte.index.mutations import Payloads, check_payloads
from crossbyte.index.plan import pilot, size_model
from crossbyte.index.plan.pilot import decide_sample_size, pilot_settings, run_pilot_fits
from crossbyte.index.plan.size_model import Contents, Plan, Sizes, Width
from crossbyte.model.estimator import CMCQ
from crossbyte.model.params import MAX_BITS, check_parameters
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.report.measurements import CurvePoint
from crossbyte.validation import check_choice, check_groups, check_integer, check_number, check_pairs

WIDTHS = (16, 32, 64, 128)
_SIDES = {"both": ("image", "text"), "image": ("image",), "text": ("text",)}
_PAIRS_AT_LEAST = 20


class _PlanRequest(NamedTuple):
    """Limits that the user gives; None for no limit."""

    n_bits: int | None
    max_memory: int | None
    max_disk: int | None
    min_recall: float | None

    def fits(self, width: Width) -> bool:
        """Say whether a code length is within the budgets."""
        return all(excess <= 0 for excess in self.excesses(width).values())

    def excesses(self, width: Width) -> dict[str, int]:
        """Compute the bytes above each budget, by its name."""
        limits = {"max_memory": (self.max_memory, width.memory), "max_disk": (self.max_disk, width.disk)}
        return {name: sizes["total"] - limit for name, (limit, sizes) in limits.items() if limit is not None}


def plan(
    images: Any,
    texts: Any,
    *,
    items: int,
    model: CMCQ | None = None,
    train: int | None = None,
    n_bits: int | None = None,
    max_memory: int | None = None,
    max_disk: int | None = None,
    min_recall: float | None = None,
    curve: Sequence[CurvePoint] | None = None,
    sides: str = "both",
    payloads: Any = None,
    ids: Any = None,
    groups: Any = None,
    n_jobs: int | None = None,
    callback: ProgressCallback | None = None,
) -> Plan:
    """Say what an index will cost, from a pilot of some seconds on the pairs given; nothing is kept of it.

    With ``n_bits``, its cost; with ``max_memory`` or ``max_disk``, the most bits that they hold; with
    ``min_recall``, the fewest bits that reach it; with none of them, the model's own bits.

    Parameters
    ----------
    images, texts
        Pairs as for :meth:`CMCQ.fit`, all of them or a sample.
    items : int
        Documents that the index will have.
    model : CMCQ, optional
        Gives the parameters, and if it is calibrated its measured quality; None for the defaults.
    train : int, optional
        Pairs to fit on; None for as many as are given.
    n_bits : int, optional
        Bits per item and side.
    max_memory, max_disk : int, optional
        Bytes, the model's included.
    min_recall : float, optional
        Recall@10, mean of both directions.
    curve : sequence of CurvePoint, optional
        Measured quality by bytes; None for that of the model.
    sides : {"both", "image", "text"}
        What every document has.
    payloads : sequence of dict or None, optional
        One per pair given; None for documents without.
    ids : sequence of str or int, optional
        A sample of ids, for their length; None for integers.
    groups : sequence of labels, optional
        One per pair given: the pilot's recall is never measured on a group that it was fitted on.
    n_jobs : int or None
        Threads; None for all cores.
    callback : callable, optional
        Called with a :class:`crossbyte.progress.Progress` after every step.

    Raises
    ------
    InvalidInput
        Before any long work starts.
    NotCalibrated
        ``min_recall`` needs a calibrated model or a curve.
    NoPlan
        Nothing meets what was asked; the message says the nearest.
    """
    images, texts = check_pairs(coerce_rows(images, "images"), coerce_rows(texts, "texts"))
    _check_pilot_rows(images.shape[0])
    given = _parameters(model)
    points = _curve(given, curve, needed=min_recall is not None)
    wish = _check_request(given, n_bits, max_memory, max_disk, min_recall)
    contents = _contents(items, train, images.shape[0], sides)
    rows = None if payloads is None else check_payloads(payloads, images.shape[0])
    names = None if ids is None else check_ids(ids)
    if groups is not None:
        check_groups(groups, images.shape[0])
    pilots = pilot_settings(given, n_jobs)
    report = callback or ignore_progress
    with tempfile.TemporaryDirectory(prefix="crossbyte-plan-") as folder:
        place = Path(folder)
        contents, widths = _cost_widths(
            pilots, given, (images, texts), wish, contents, points, names, rows, place
        )
        report(Progress("plan", "sizes", 1, 4))
        chosen = _choose(widths, wish, contents.items, points)
        pilots.set_params(n_bits=chosen.n_bits)
        fits, fitted = run_pilot_fits(pilots, images, texts, groups, contents.train, report)
        features = {"image": ("images", images), "text": ("texts", texts)}
        adding = pilot.time_adding(fitted, dict(features[side] for side in _SIDES[sides]), rows, place)
        report(Progress("plan", "add", 4, 4))
    enough = decide_sample_size(fits, contents.train, adding)
    return Plan(
        items=contents.items,
        train=contents.train,
        sides=sides,
        n_codes=contents.n_codes,
        chosen=chosen,
        fit_seconds=fits.seconds_at(contents.train, adding),
        add_seconds=adding.seconds_at(contents.items),
        widths=widths,
        enough=enough,
        sample_seconds=fits.seconds_at(enough.pairs, adding),
    )


def _check_pilot_rows(n_rows: int) -> None:
    if n_rows < _PAIRS_AT_LEAST:
        raise InvalidInput(
            f"a pilot needs pairs to run on: expected at least {_PAIRS_AT_LEAST}, got {n_rows}"
        )


def _parameters(model: CMCQ | None) -> CMCQ:
    """Give the model, checked, or one with the defaults."""
    if model is None:
        return CMCQ()
    if not isinstance(model, CMCQ):
        raise InvalidInput(f"model: expected a CMCQ, got {type(model).__name__}")
    check_parameters(model)
    return model


def _curve(model: CMCQ, curve: Sequence[CurvePoint] | None, *, needed: bool) -> dict[int, CurvePoint]:
    """Collect the measured quality by bits; empty where there is none and none is needed."""
    if curve is None:
        try:
            curve = model.report_.curve
        except (NotCalibrated, NotFitted):
            if needed:
                raise NotCalibrated(
                    "min_recall: expected a model with a quality report, got none; call calibrate(images, "
                    "texts) on a fitted model first, or give n_bits, max_memory or max_disk instead"
                ) from None
            return {}
    return {8 * point.n_bytes: point for point in curve}


def _check_request(model: CMCQ, n_bits: Any, max_memory: Any, max_disk: Any, min_recall: Any) -> _PlanRequest:
    asked = (n_bits, max_memory, max_disk, min_recall)
    bits = model.n_bits if all(value is None for value in asked) else n_bits
    if bits is not None and check_integer(bits, "n_bits", 8, MAX_BITS) % 8:
        raise InvalidInput(f"n_bits: expected a multiple of 8 (one byte per codebook), got {bits}")
    return _PlanRequest(
        None if bits is None else int(bits),
        None if max_memory is None else check_integer(max_memory, "max_memory", 1),
        None if max_disk is None else check_integer(max_disk, "max_disk", 1),
        None if min_recall is None else check_number(min_recall, "min_recall", 0.0, 1.0),
    )


def _contents(items: Any, train: Any, n_given: int, sides: Any) -> Contents:
    n_codes = len(_SIDES[check_choice(sides, "sides", _SIDES)])
    n_train = n_given if train is None else check_integer(train, "train", 2)
    return Contents(check_integer(items, "items", 1), n_train, n_codes, WIDTHS[0])


def _cost_widths(
    model: CMCQ,
    given: CMCQ,
    pairs: tuple[Any, Any],
    wish: _PlanRequest,
    contents: Contents,
    points: Mapping[int, CurvePoint],
    names: Sequence[Any] | None,
    payloads: Payloads | None,
    folder: Path,
) -> tuple[Contents, list[Width]]:
    """Compute the cost of every code length from one small model, which also says the number of codes."""
    small = pilot.pilot_model(model, wish.n_bits or WIDTHS[0], *pairs)
    if small.fitted_.has_document_codes:
        contents = contents._replace(n_codes=1)
    of_model = size_model.measure_model(small, model.max_iter, like=given)
    each = size_model.measure_documents(small, names, payloads, folder)

    def width(n_bits: int) -> Width:
        sizes: Sizes = size_model.index_sizes(contents._replace(n_bits=n_bits), of_model, each)
        point = points.get(n_bits)
        return Width(n_bits, *sizes, None if point is None else point.recall_at(contents.items))

    asked = set() if wish.n_bits is None else {wish.n_bits}
    return contents, [width(n_bits) for n_bits in sorted({*WIDTHS, *points, *asked})]


def _choose(
    widths: Sequence[Width], wish: _PlanRequest, items: int, points: Mapping[int, CurvePoint]
) -> Width:
    """Choose the fewest bits that reach the recall, or else the most within the budgets."""
    candidates = [width for width in widths if wish.n_bits in (None, width.n_bits)]
    if wish.min_recall is not None:
        candidates = _smallest_sufficient(candidates, wish.min_recall, items, points)
    possible = [width for width in candidates if wish.fits(width)]
    if not possible:
        raise NoPlan(_over_budget(candidates[0], wish))
    return possible[0] if wish.min_recall is not None else possible[-1]


def _smallest_sufficient(
    widths: Sequence[Width], wanted: float, items: int, points: Mapping[int, CurvePoint]
) -> list[Width]:
    measured = [(width.recall, width) for width in widths if width.recall is not None]
    if not measured:
        raise NoPlan(_unknown_recall(widths, items, points))
    enough = [width for recall, width in measured if recall >= wanted]
    if not enough:
        best, width = max(measured, key=lambda one: one[0])
        raise NoPlan(
            f"no code length reaches recall@10 {wanted:g} among {items:,} items; the nearest is "
            f"{width.n_bits} bits with {best:.3f}, which needs {_describe_needs(width)}; ask for "
            f"min_recall={_round_down(best):.2f} or less, or try another mapping"
        )
    return enough


def _unknown_recall(widths: Sequence[Width], items: int, points: Mapping[int, CurvePoint]) -> str:
    """Say why the recall of these code lengths is not known, and how to measure it."""
    here = [points[width.n_bits] for width in widths if width.n_bits in points]
    if here:
        sizes = [size for point in here for size, _ in point.by_size]
        return (
            f"the measured curve reaches from {min(sizes):,} to {max(sizes):,} items, so no recall is known "
            f"among {items:,}; calibrate with more pairs, plan for at most {max(sizes):,} items, or leave "
            "min_recall out"
        )
    if points:
        lengths = ", ".join(str(n_bits) for n_bits in sorted(points))
        return (
            f"no recall was measured with {widths[0].n_bits} bits, only with {lengths}; leave n_bits out, or "
            "min_recall, or calibrate with a curve that has these bits"
        )
    return (
        "the quality report has no curve of recall by bytes; calibrate with a curve, or leave min_recall out"
    )


def _round_down(recall: float) -> float:
    """Round a recall down to two figures."""
    near = round(recall, 2)
    return near if near <= recall else near - 0.01


def _over_budget(least: Width, wish: _PlanRequest) -> str:
    """Say what the smallest possible code length needs beyond the budgets."""
    over = {name: size for name, size in wish.excesses(least).items() if size > 0}
    recall = "" if wish.min_recall is None else f" with recall@10 {wish.min_recall:g}"
    raised = " and ".join(f"{name} by {size:,} bytes" for name, size in over.items())
    return (
        f"no code length{recall} fits into the budget; the nearest is {least.n_bits} bits, which needs "
        f"{_describe_needs(least)}; raise {raised}, or index fewer items"
    )


def _describe_needs(width: Width) -> str:
    return f"{width.disk['total']:,} bytes on disk and {width.memory['total']:,} in memory"
