"""Format numbers and lists as words: the same for the program, the reports and the plans."""

from __future__ import annotations

from collections.abc import Sequence


def count(number: float) -> str:
    """Format a number of things, with thousands set apart; halves (of median ranks) are kept."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Format a number and its noun; `nouns` is the plural where an s at the end does not make it."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def percent(share: float) -> str:
    """Format a share in units of 100, with one decimal."""
    return f"{100 * share:.1f}"


def of_100(share: float) -> str:
    """Format a share in units of 100; with a decimal only where a whole number would hide something."""
    shown = 100 * share
    if 0 < shown < 0.05:
        return "under 0.1"
    return f"{shown:.1f}" if 0 < shown < 0.95 or 99 < shown < 99.95 else f"{shown:.0f}"


def readable_bytes(n_bytes: float) -> str:
    """Format a size with three figures: ``1.23 MB`` (powers of 1000)."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def readable_seconds(seconds: float) -> str:
    """Format a time: ``0.8 s``, ``42 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes_rest = divmod(minutes, 60)
    return f"{hours} h {minutes_rest:02d} min" if hours else f"{minutes} min {rest:02d} s"


def join_words(parts: Sequence[str]) -> str:
    """Format parts as a list in a sentence."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
