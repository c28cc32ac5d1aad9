"""Names and numbers in words, the same in every table and sentence."""

from __future__ import annotations

from collections.abc import Sequence

from crossbyte.evaluation.report.study import Estimate, Scope, System
from crossbyte.model.report.phrases import count, plural

__all__ = [
    "PROTOCOLS",
    "TASK_NAMES",
    "n_bits",
    "data_name",
    "difference",
    "fewer_seeds",
    "figure_text",
    "joined",
    "key_of",
    "lengths_text",
    "n_bytes",
    "row_name",
    "seconds_text",
    "setting",
    "with_spread",
]

TASK_NAMES = {
    "image-to-text": "Image to text",
    "text-to-image": "Text to image",
    "text-to-text": "Text to text",
}
"""Tasks as headings."""

PROTOCOLS = {
    "A": "protocol A (the paper's: the database is the training documents with their learned codes)",
    "B": "protocol B (unseen documents, coded from the searched side alone)",
    "C": "protocol C (unseen documents, folded in as pairs, asked by other captions of them)",
    "D": "protocol D (new classes: documents of classes that nothing was learned from)",
    "V": "protocol V (a validation part of the training documents asks the rest)",
    "P": "protocol P (true pairs within a validation part of the training documents)",
}
"""What each protocol is, in words."""

_DATA_NAMES = {
    "wiki": "Wiki",
    "mirflickr": "FLICKR25K",
    "nus-wide": "NUS-WIDE",
    "flickr8k": "Flickr8k",
    "fashion": "Fashion",
}
_MINUS = "\u2212"


def data_name(data: str) -> str:
    """A data set's name as it is written in text."""
    return _DATA_NAMES.get(data, data)


def figure_text(value: float) -> str:
    """A figure with four decimals, as in the paper."""
    return f"{value:.4f}"


def with_spread(found: Estimate) -> str:
    """Mean ± spread; of one seed, the figure alone."""
    return figure_text(found.mean) + ("" if found.spread is None else f" ± {found.spread:.4f}")


def difference(value: float, other: float) -> str:
    """How far a value is above (+) or below (−) another, between the figures as printed."""
    gap = round(value, 4) - round(other, 4)
    return f"{'+' if gap >= 0 else _MINUS}{abs(gap):.4f}"


def n_bytes(bits: int) -> str:
    """A code length in bytes."""
    whole, rest = divmod(bits, 8)
    return f"{bits / 8:g} bytes" if rest else plural(whole, "byte")


def n_bits(bits: int) -> str:
    """A code length in bits."""
    return f"{bits} bit" if bits == 1 else f"{bits} bits"


def lengths_text(lengths: Sequence[int], *, as_bytes: bool) -> str:
    """Code lengths as a list with one unit."""
    shown = [f"{bits / 8:g}" if as_bytes else str(bits) for bits in lengths]
    unit = "byte" if as_bytes else "bit"
    return f"{joined(shown)} {unit}{'' if shown == ['1'] else 's'}"


def joined(parts: Sequence[str]) -> str:
    """Parts as a list in a sentence."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def row_name(scope: Scope, system: System) -> str:
    """What a row is called: the system, and "labels" if that is what it was taught with."""
    return scope.name(system) + (f" [{system.similarity}]" if system.similarity != "pairs" else "")


def setting(scope: Scope, n_seeds: int | None = None) -> str:
    """Data set, protocol and number of seeds, the most of any system if not said, for captions."""
    said = plural(scope.n_seeds if n_seeds is None else n_seeds, "seed")
    return f"{data_name(scope.data)}, protocol {scope.protocol}, {said}"


def fewer_seeds(found: Estimate, n_seeds: int) -> str:
    """Say of a figure that it has fewer seeds than its caption; nothing if it has not."""
    return f"{found.n_seeds} of {n_seeds} seeds" if found.n_seeds < n_seeds else ""


def seconds_text(value: float) -> str:
    """A time to two or three digits."""
    if value >= 100:
        return count(round(value))
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"


def key_of(*parts: str) -> str:
    """Make a name for a file and a page from anything: letters, digits and hyphens."""
    words = "-".join(parts).lower()
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in words)
