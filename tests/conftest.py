"""What every test may rely on: reproducible examples and a seeded generator."""

from __future__ import annotations

import os

import hypothesis
import numpy as np
import pytest

from support.other_extension import load_extension

# Machines differ in speed, so no example has a deadline. In CI the examples are the same in each run.
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


load_extension()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the networks that the user of this machine has downloaded: they would be chosen by default."""
    monkeypatch.setenv("CROSSBYTE_CACHE", str(tmp_path_factory.getbasetemp() / "no-networks"))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with the same seed in each test."""
    return np.random.default_rng(0)
