"""The shim, compiled once for each file of tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash import shim
from crossbyte.compute import kernels


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="crossbyte-crash-", dir=shim.memory_folder()) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def library(scratch: Path) -> Path | None:
    """The compiled shim; None where nothing can be compiled."""
    if shim.compiler() is None:
        native = kernels.implementation() != "numpy"
        assert not native, "our extension was compiled here, so the shim must be too: set CC"
        return None
    return shim.build(scratch)
