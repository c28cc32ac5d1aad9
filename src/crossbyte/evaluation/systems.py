"""Systems as runs ask for them: with the limits of those that take too long, and what each one needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from crossbyte.errors import InvalidInput
from crossbyte.evaluation.own_quantizers import OWN_QUANTIZERS
from crossbyte.evaluation.runs import Run
from crossbyte.methods import registry
from crossbyte.methods.protocol import Method

__all__ = ["MOST_BITS", "needs_faiss", "similarity_of", "system_of"]

MOST_BITS: Mapping[str, int] = MappingProxyType({"mlbe": 64})
"""Longest codes of systems whose time grows too fast; ``--full`` lifts it."""

_FULL: Mapping[str, Mapping[str, Any]] = MappingProxyType({"mlbe": {"max_documents": 10**9}})
"""Parameters that lift a system's own limits."""


def system_of(run: Run) -> Method:
    """Make the system of a run; it has learned nothing yet."""
    if run.method in OWN_QUANTIZERS:
        return OWN_QUANTIZERS[run.method](n_bits=run.bits, random_state=run.seed, **run.parameters)
    lifted = _FULL.get(run.method, {}) if run.full else {}
    return registry.make(
        run.method,
        run.bits,
        seed=run.seed,
        similarity=run.similarity,
        parameters={**lifted, **run.parameters},
        n_jobs=1,
    )


def needs_faiss(key: str) -> bool:
    """Whether a system is FAISS's."""
    return key in registry.GROUPS["quantizers"]


def similarity_of(key: str, asked: str | None, *, has_labels: bool) -> str:
    """What a system will be taught with: what was asked for if it knows that, else the first it can do.

    Raises
    ------
    InvalidInput
        It learns from labels alone, and there are none.
    """
    about = registry.about(key)
    usable = [each for each in about.similarities if has_labels or each != "labels"]
    if not usable:
        raise InvalidInput(f"{about.name} learns from labels, and these data have none; leave it out")
    return asked if asked in usable else usable[0]
