"""``fit --sample``: all pairs, or a sample of them that is enough, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte.errors import FitInterrupted, InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crossbyte.data.files.reading import Dataset
    from crossbyte.gallery.learning import FitOptions
    from crossbyte.progress import ProgressCallback

__all__ = ["Sample", "part_of", "read_sample", "take_sample"]


class Sample(NamedTuple):
    """The rows to fit on; None for all of them.

    Attributes
    ----------
    rows : (m,) intp, ascending, or None
    wanted : int
        How many were wanted; whole groups can be a few less.
    of : int
        All pairs.
    seed : int
    why : str
        What decided; empty where nothing had to be.
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
        """What JSON has of it: None where all pairs were taken."""
        if self.rows is None:
            return None
        asked = {"pairs": len(self.rows), "asked": self.wanted, "of": self.of, "seed": self.seed}
        return asked | {"why": self.why, "pilots": [list(one) for one in self.tried]}

    def lines(self) -> list[str]:
        """What is said of it."""
        why = f": {self.why}" if self.why else ""
        if self.rows is None:
            return [f"All {self.of:,} pairs were taken{why}."] if self.tried else []
        return [
            f"These are a sample of {self.of:,} pairs, drawn with seed {self.seed}{why}. "
            f"--sample {self.wanted} takes the same ones, --sample all every pair."
        ]


def read_sample(text: str | None) -> str | int:
    """Read what was asked for: ``auto`` (also if nothing was), ``all``, or a number of pairs."""
    if text is None or text in ("auto", "all"):
        return text or "auto"
    if not text.isdecimal() or int(text) < 2:
        raise InvalidInput(
            f"--sample: expected auto, all, or a number of pairs from 2 on, got {text!r}; give one of these"
        )
    return int(text)


def take_sample(wanted: str | int, pairs: Dataset, options: FitOptions, callback: ProgressCallback) -> Sample:
    """Draw the rows to fit on; ``auto`` asks a pilot where the pairs are many."""
    n_pairs, seed = len(pairs), options.seed
    if wanted == "all":
        return Sample(None, n_pairs, n_pairs, seed)
    if isinstance(wanted, int):
        return _drawn(Sample(None, wanted, n_pairs, seed), pairs)
    from crossbyte.search.planning.costs import ALWAYS_ALL

    if n_pairs <= ALWAYS_ALL:
        return Sample(None, n_pairs, n_pairs, seed)
    found = _piloted(pairs, options, callback)
    return _drawn(Sample(None, found.pairs, n_pairs, seed, str(found), found.tried), pairs)


def _drawn(sample: Sample, pairs: Dataset) -> Sample:
    from crossbyte.search.planning.sampling import draw_pairs

    if sample.wanted >= sample.of:
        return sample
    return sample._replace(rows=draw_pairs(sample.of, sample.wanted, pairs.groups, seed=sample.seed))


def _piloted(pairs: Dataset, options: FitOptions, callback: ProgressCallback) -> Any:
    """Ask pilots with these options; not with ``auto``, of which one pilot alone takes minutes."""
    from crossbyte.model.parameters import AUTOMATIC
    from crossbyte.search.planning.trying import pairs_to_fit

    if options.mapping in AUTOMATIC:
        options = options._replace(mapping="cca")
    model, n_jobs = options.model(), options.n_jobs
    try:
        return pairs_to_fit(
            pairs.images, pairs.texts, pairs.groups, model=model, n_jobs=n_jobs, callback=callback
        )
    except FitInterrupted:  # of a pilot, of which nobody knows
        raise KeyboardInterrupt from None


def part_of(pairs: Dataset, rows: NDArray[np.intp]) -> Dataset:
    """Some rows of a dataset, ascending; features that are on disk stay there."""

    def picked(values: Any) -> Any:
        return None if values is None else [values[row] for row in rows.tolist()]

    return replace(
        pairs,
        images=_chosen(pairs.images, rows),
        texts=_chosen(pairs.texts, rows),
        ids=picked(pairs.ids),
        payloads=picked(pairs.payloads),
        groups=picked(pairs.groups),
    )


def _chosen(features: Any, rows: NDArray[np.intp]) -> Any:
    from crossbyte.data.stored.chosen import ChosenRows
    from crossbyte.validation import is_stored

    return ChosenRows(features, rows) if is_stored(features) else features[rows]
