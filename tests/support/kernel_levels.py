"""The levels at which a kernel can run here, and the way from one to another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crossbyte.compute import kernels

NATIVE = kernels._native


def _levels() -> list[str]:
    """Levels of the extension that this machine has; NumPy alone where it is switched off."""
    found = []
    for level in ("portable", "avx2", "avx512") if NATIVE is not None else ():
        NATIVE.limit_level(level)
        found += [level] if NATIVE.level() == level else []
    return [*found, "numpy"]


LEVELS = _levels()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    kernels._native = NATIVE
    if NATIVE is not None:
        NATIVE.limit_level("avx512")


def at_level(level: str) -> None:
    kernels._native = None if level == "numpy" else NATIVE
    if level != "numpy":
        NATIVE.limit_level(level)
