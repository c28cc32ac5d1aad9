"""Quality reports made by hand, for tests of their words and their page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from crossbyte.report.measurements import (
    DEPTHS,
    DIRECTIONS,
    CurvePoint,
    Estimate,
    Reliability,
    Scores,
    System,
)
from crossbyte.report.model_report import Report

SIZES = (100, 1_000, 10_000, 100_000)


def near(value: float, width: float = 0.03) -> Estimate:
    """A share with an interval around it, inside 0 and 1."""
    return Estimate(value, max(0.0, value - width), min(1.0, value + width))


def scores(recall: float, n_items: int = 700) -> Scores:
    """Scores around a recall@10."""
    at = {1: near(recall / 3), 10: near(recall), 100: near(min(1.0, 1.5 * recall))}
    median = 1.0 + (1 - recall) ** 3 * n_items / 2
    return Scores(at, Estimate(round(median), round(0.9 * median), round(1.1 * median)))


def system(
    name: str, n_bytes: int | None, text_to_image: float, image_to_text: float, n_items: int = 700
) -> System:
    """A system of the two recalls@10."""
    by = {"text_to_image": text_to_image, "image_to_text": image_to_text}
    return System(name, n_bytes, {each: scores(by[each], n_items) for each in DIRECTIONS})


def chance(n_items: int) -> System:
    """What guessing scores, without intervals."""
    at = {depth: near(min(1.0, depth / n_items), 0.0) for depth in DEPTHS}
    both = Scores(at, near(0.0, 0.0)._replace(value=(n_items + 1) / 2, low=n_items / 2, high=n_items / 2))
    return System("chance", None, dict.fromkeys(DIRECTIONS, both))


def point(n_bytes: int, recall: float) -> CurvePoint:
    """A point of the curve around a recall@10 of crossbyte."""
    found = {
        name: {"text_to_image": near(recall - less), "image_to_text": near(recall - less - 0.02)}
        for name, less in (("crossbyte", 0.0), ("cca_pq", 0.12), ("cca_rq", 0.015))
    }
    return CurvePoint(n_bytes, found, [(size, recall / (1 + place)) for place, size in enumerate(SIZES)])


def reliability(query: str, target: str) -> Reliability:
    """Fifteen bins of mostly small probabilities that are nearly true."""
    bins = [(0.9 * (place / 14) ** 3, 0.85 * (place / 14) ** 3, 467) for place in range(15)]
    return Reliability(query, target, bins, 0.012, 0.71, 0.64)


def sample_report() -> Report:
    """The usual case: compression costs a little, product quantization loses, residual is level."""
    return Report(
        n_pairs=7_000,
        n_held_out=700,
        n_bytes=4,
        mapping="cca",
        n_components=64,
        systems=(
            system("crossbyte", 4, 0.589, 0.571),
            system("uncompressed", 256, 0.602, 0.612),
            system("cca_pq", 4, 0.45, 0.44),
            system("cca_rq", 4, 0.57, 0.565),
            chance(700),
        ),
        gains={
            "uncompressed": Estimate(-0.027, -0.041, -0.011),
            "cca_pq": Estimate(0.135, 0.11, 0.16),
            "cca_rq": Estimate(0.0125, -0.004, 0.03),
            "chance": Estimate(0.566, 0.54, 0.59),
        },
        curve=tuple(point(n, recall) for n, recall in ((2, 0.47), (4, 0.58), (8, 0.62), (16, 0.625))),
        n_curve_pairs=7_000,
        reliability=(reliability("image", "text"), reliability("text", "image")),
    )


def with_recall(text_to_image: float, image_to_text: float) -> Report:
    """The usual report with other recalls of crossbyte."""
    report = sample_report()
    own = system("crossbyte", 4, text_to_image, image_to_text)
    return replace(report, systems=(own, *report.systems[1:]))


def with_gains(gains: Mapping[str, Estimate]) -> Report:
    """The usual report with other differences to the other systems."""
    report = sample_report()
    return replace(report, gains={**report.gains, **gains})


def tiny_report(n_held_out: int) -> Report:
    """Few held-out pairs, no curve, no probabilities."""
    systems = (system("crossbyte", 1, 0.9, 0.8, n_held_out), chance(n_held_out))
    return Report(10 * n_held_out, n_held_out, 1, "sparse", 8, systems, {}, (), 0, ())
