"""Share between fits of several code lengths, on the very same pairs, what does not depend on the length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse

T = TypeVar("T")


class _Step(NamedTuple):
    """What a step was given, what it has learned, and the generator after it."""

    sources: tuple[Any, ...]
    choices: Any
    before: Any
    value: Any
    after: Any


class SharedFits:
    """Keeps the last result of every step of a fit, for the next fit that begins it in the same way.

    The models are the same to the last bit as those of fits on their own: a step is taken over only where it
    is given the very same arrays, equal choices, and a generator in the same state, which is then set to
    where the step has left it.
    """

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}

    def once(
        self,
        step: str,
        sources: tuple[Any, ...],
        choices: Any,
        rng: np.random.Generator,
        learn: Callable[[], T],
    ) -> T:
        """Do a step, or give what it has learned before.

        Parameters
        ----------
        step : str
            Its name.
        sources : tuple of arrays and other objects
            What it learns from: compared by identity, and never written to.
        choices : Any
            What else decides: compared by value.
        rng : Generator
        learn : callable
            Does the step.
        """
        held, before = tuple(map(_hold, sources)), rng.bit_generator.state
        known = self._steps.get(step)
        if (
            known is None
            or known.choices != choices
            or not _are_same(known.before, before)
            or not all(mine is other for mine, other in zip(known.sources, held, strict=True))
        ):
            value = learn()
            known = _Step(held, choices, before, value, rng.bit_generator.state)
            self._steps[step] = known
        rng.bit_generator.state = known.after
        learned: T = known.value
        return learned


def _hold(source: Any) -> Any:
    """Give what tells a source apart: of a sparse matrix its values, as checks make new matrices of them."""
    return source.data if isinstance(source, sparse.csr_matrix) else source


def _are_same(one: Any, other: Any) -> bool:
    """Compare two states of a generator: some hold arrays."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_same(one[name], other[name]) for name in one)
    return bool(np.array_equal(one, other))
