"""What an index will cost: as a value, as plain numbers, and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from crossbyte._format import readable_bytes, readable_seconds

__all__ = ["ALWAYS_ALL", "Enough", "Plan", "Width"]

ALWAYS_ALL = 100_000
"""pairs that are always fitted on, all of them: that takes no longer than a pilot and a minute"""

_UNTRIED = {
    "all": f"up to {ALWAYS_ALL:,} pairs, all are taken",
    "unknown": "too few pairs or groups were given to try whether fewer are enough",
}


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
class Enough:
    """How many pairs to fit on, and why.

    Attributes
    ----------
    pairs : int
    why : {"all", "gain", "least", "time", "unknown"}
        All there are; more would gain too little; fewer are never taken; more would take too long; or there
        were too few pairs, or groups, to try it, and all are taken.
    gain : float or None
        Recall@10 that twice as many pairs are expected to find more; None where nothing was tried.
    tried : list of (int, float)
        Pairs of each pilot fit, and its recall@10 among held-out pairs.
    """

    pairs: int
    why: str
    gain: float | None
    tried: list[tuple[int, float]]

    @classmethod
    def all_of(cls, n_pairs: int) -> Enough:
        """Say that all pairs are to be fitted on, and that nothing was tried."""
        return cls(n_pairs, "all" if n_pairs <= ALWAYS_ALL else "unknown", None, [])

    def __str__(self) -> str:
        if self.gain is None:
            return _UNTRIED[self.why]
        found = " and ".join(f"{recall:.3f} from {n_pairs:,}" for n_pairs, recall in self.tried)
        expected = f"twice as many are expected to add {self.gain:.3f} to recall@10 (pilots found {found})"
        limits = {
            "least": f"never fewer than {ALWAYS_ALL:,} are taken",
            "time": "more would take over an hour",
        }
        return "; ".join(filter(None, [limits.get(self.why), expected]))


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
        To fit on all these pairs, and to add all documents in one call.
    widths : list of Width
        Every code length that was looked at.
    enough : Enough
        How many pairs are enough to fit on, and why; ``fit_pairs`` is their number.
    sample_seconds : float
        To fit on so many.
    """

    items: int
    train: int
    sides: str
    chosen: Width
    fit_seconds: float
    add_seconds: float
    widths: list[Width]
    enough: Enough
    sample_seconds: float

    @property
    def fit_pairs(self) -> int:
        """Pairs that are enough to fit on: a sample of them, or all."""
        return self.enough.pairs

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
        shown = asdict(self) | asdict(self.chosen) | {"fit_pairs": self.fit_pairs}
        del shown["chosen"]
        return shown

    def __str__(self) -> str:
        lines = [
            f"{self.items:,} documents ({'images and texts' if self.sides == 'both' else self.sides + 's'}) "
            f"of {self.n_bits} bits a side, from a model of {self.train:,} pairs:",
            f"  on disk    {readable_bytes(self.disk['total'])}  ({_parts(self.disk)})",
            f"  in memory  {readable_bytes(self.memory['total'])}  ({_parts(self.memory)})",
            f"  to fit     about {readable_seconds(self.fit_seconds)}",
            *self._sample(),
            f"  to add     about {readable_seconds(self.add_seconds)}",
        ]
        if self.recall is not None:
            lines.append(f"  recall@10  about {self.recall:.2f}")
        return "\n".join([*lines, "", *self._table()])

    def _sample(self) -> list[str]:
        """Say that fewer pairs are enough, or why nobody can tell; nothing where all are few."""
        if self.fit_pairs == self.train:
            return (
                [] if self.enough.why == "all" and not self.enough.tried else [f"    on all:  {self.enough}"]
            )
        took = readable_seconds(self.sample_seconds)
        return [f"    enough:  {self.fit_pairs:,} of these pairs, about {took}: {self.enough}"]

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
