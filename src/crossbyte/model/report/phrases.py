"""Numbers of a quality report in words. A no-break space keeps a number and its unit in one line."""

from __future__ import annotations

from crossbyte.model.report.report import DIRECTIONS, Estimate

__all__ = ["count", "interval", "mean", "more", "n_bytes", "n_pairs", "of_100", "percent", "plural"]


def percent(share: float) -> str:
    """A share as so many of 100, with one decimal."""
    return f"{100 * share:.1f}"


def of_100(share: float) -> str:
    """So many of 100; with a decimal only where a whole number would hide something."""
    shown = 100 * share
    if 0 < shown < 0.05:
        return "under 0.1"
    return f"{shown:.1f}" if 0 < shown < 0.95 or 99 < shown < 99.95 else f"{shown:.0f}"


def more(difference: float) -> str:
    """A difference of shares as so many of 100 more or fewer."""
    shown = percent(abs(difference))
    if shown == "0.0":
        return shown
    return f"{shown} {'more' if difference > 0 else 'fewer'}"


def interval(gain: Estimate) -> str:
    """The interval of a difference; which way it goes is said only where it goes both ways."""
    if gain.low <= 0 <= gain.high:
        return f"95\u00a0% interval: {more(gain.low)} to {more(gain.high)}"
    low, high = sorted((abs(gain.low), abs(gain.high)))
    return f"95\u00a0% interval: {percent(low)} to {percent(high)}"


def mean(by: dict[str, Estimate]) -> float:
    """Mean of both directions."""
    return sum(by[each].value for each in DIRECTIONS) / len(DIRECTIONS)


def count(number: float) -> str:
    """A number of things, with thousands set apart; halves (of median ranks) are kept."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def plural(number: int, noun: str) -> str:
    """So many of a thing."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def n_bytes(number: int) -> str:
    """So many bytes."""
    return plural(number, "byte")


def n_pairs(number: int, kind: str = "") -> str:
    """So many pairs (of a kind)."""
    return plural(number, f"{kind}pair")
