"""What of a calibration and its report goes into the model file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from crossbyte.errors import DamagedModelFile
from crossbyte.model.quality.calibration import Calibration, Key
from crossbyte.model.quality.likelihood import Likelihood
from crossbyte.model.quality.offsets import Line
from crossbyte.model.quality.sample import CODINGS, SIDES, TARGETS
from crossbyte.report.model_report import Report

__all__ = ["calibration_from", "quality_document", "report_from"]


def quality_document(calibration: Calibration | None, report: Report | None) -> dict[str, Any]:
    """The optional part of the document; nothing for a model that was not calibrated."""
    document: dict[str, Any] = {}
    if calibration is not None:
        document["calibration"] = {
            "offsets": _rows(calibration.offsets),
            "n_held_out": calibration.n_held_out,
        }
        if calibration.likelihoods:  # files of version 0.2 have none, and stay as they are
            document["calibration"]["likelihoods"] = _rows(calibration.likelihoods)
    if report is not None:
        document["report"] = report.to_dict()
    return document


def calibration_from(document: Mapping[str, Any], name: str) -> Calibration | None:
    """Rebuild the calibration, if there is one; one that makes no sense is refused as damaged."""
    if "calibration" not in document:
        return None
    try:
        return _calibration_from(**document["calibration"])
    except (OverflowError, TypeError, ValueError) as error:
        raise DamagedModelFile(f"{name}: the calibration of the model makes no sense ({error})") from error


def report_from(document: Mapping[str, Any], name: str) -> Report | None:
    """Rebuild the report, if there is one; one that makes no sense is refused as damaged."""
    if "report" not in document:
        return None
    try:
        return Report.from_dict(document["report"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedModelFile(f"{name}: the report of the model makes no sense ({error!r})") from error


def _rows(measured: Mapping[Key, Any]) -> list[list[Any]]:
    return [[*key, *values] for key, values in sorted(measured.items())]


def _calibration_from(
    *, offsets: list[list[Any]], n_held_out: int, likelihoods: list[list[Any]] | None = None
) -> Calibration:
    _require(type(n_held_out) is int and n_held_out > 0, "a number of held-out pairs that is no number")
    found = _entries([] if likelihoods is None else likelihoods, "a likelihood")
    ratios = {key: Likelihood(*values) for key, values in found.items()}
    _require(all(each.distance <= 0 for each in ratios.values()), "a likelihood that grows with the distance")
    lines = {key: Line(*values) for key, values in _entries(offsets, "an offset").items()}
    return Calibration(lines, n_held_out, ratios)


def _entries(rows: list[list[Any]], what: str) -> dict[Key, list[float]]:
    found: dict[Key, list[float]] = {}
    _require(type(rows) is list, f"{what} outside of a list")
    for query, target, coding, *values in rows:
        _require((query, target, coding) not in found, f"{what} that is there twice")
        _require(
            query in SIDES and target in TARGETS and coding in CODINGS, f"{what} of an unknown combination"
        )
        _require(target == "document" or coding not in SIDES or coding == target, f"{what} of no item")
        _require(all(type(v) in (int, float) and isfinite(v) for v in values), f"{what} that is no number")
        found[query, target, coding] = values
    return found


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
