"""What an index will cost: as a value, as plain numbers, and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Plan", "Width", "readable_bytes", "readable_seconds"]


@dataclass(frozen=True)
class Width:
    """What one code length costs.

    Attributes
    ----------
    n_bits : int
        Per item and side.
    disk, memory : dict of str to int
        Bytes by part, and their ``total``.
    recall : float or None
        Recall@10 to expect; None where it was not measured.
    """

    n_bits: int
    disk: dict[str, int]
    memory: dict[str, int]
    recall: float | None


@dataclass(frozen=True)
class Plan:
    """What was planned, and what it will cost.

    Attributes
    ----------
    items, train : int
        Documents to index, and pairs to fit on.
    sides : {"both", "image", "text"}
    chosen : Width
        Also among ``widths``.
    fit_seconds, add_seconds : float
        To fit, and to add all documents in one call.
    widths : list of Width
        Every code length that was looked at.
    """

    items: int
    train: int
    sides: str
    chosen: Width
    fit_seconds: float
    add_seconds: float
    widths: list[Width]

    @property
    def n_bits(self) -> int:
        """Bits per item and side."""
        return self.chosen.n_bits

    @property
    def disk(self) -> dict[str, int]:
        """Bytes of the file by part, and their ``total``."""
        return self.chosen.disk

    @property
    def memory(self) -> dict[str, int]:
        """Bytes in memory of an opened index by part, and their ``total``."""
        return self.chosen.memory

    @property
    def recall(self) -> float | None:
        """Recall@10 to expect, where it was measured."""
        return self.chosen.recall

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists."""
        shown = asdict(self) | asdict(self.chosen)
        del shown["chosen"]
        return shown

    def __str__(self) -> str:
        lines = [
            f"{self.items:,} documents ({'images and texts' if self.sides == 'both' else self.sides + 's'}) "
            f"of {self.n_bits} bits a side, from a model of {self.train:,} pairs:",
            f"  on disk    {readable_bytes(self.disk['total'])}  ({_parts(self.disk)})",
            f"  in memory  {readable_bytes(self.memory['total'])}  ({_parts(self.memory)})",
            f"  to fit     about {readable_seconds(self.fit_seconds)}",
            f"  to add     about {readable_seconds(self.add_seconds)}",
        ]
        if self.recall is not None:
            lines.append(f"  recall@10  about {self.recall:.2f}")
        return "\n".join([*lines, "", *self._table()])

    def _table(self) -> list[str]:
        lines = [f"  {'bits':>6}  {'on disk':>10}  {'in memory':>10}  {'recall@10':>9}"]
        for width in self.widths:
            recall = "–" if width.recall is None else f"{width.recall:.2f}"
            sizes = f"{readable_bytes(width.disk['total']):>10}  {readable_bytes(width.memory['total']):>10}"
            mark = "*" if width.n_bits == self.n_bits else " "
            lines.append(f"{mark} {width.n_bits:>6}  {sizes}  {recall:>9}")
        return lines


def _parts(sizes: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {readable_bytes(size)}" for name, size in sizes.items() if size and name != "total"
    )


def readable_bytes(n_bytes: float) -> str:
    """Give a size with three figures: ``1.23 MB`` (powers of 1000)."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def readable_seconds(seconds: float) -> str:
    """Give a time: ``0.8 s``, ``42 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes_rest = divmod(minutes, 60)
    return f"{hours} h {minutes_rest:02d} min" if hours else f"{minutes} min {rest:02d} s"
