"""What every test may rely on: reproducible examples and a seeded generator."""

from __future__ import annotations

import importlib.util
import os
import sys

import hypothesis
import numpy as np
import pytest

# Machines differ in speed, so no example has a deadline. In CI the examples are the same in each run.
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def load_extension(path: str) -> None:
    """Let this extension take the place of the installed one; `make test-sanitizers` has its own."""
    spec = importlib.util.spec_from_file_location("crossbyte._native", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["crossbyte._native"] = module
    spec.loader.exec_module(module)


if os.environ.get("CROSSBYTE_TEST_EXTENSION"):
    load_extension(os.environ["CROSSBYTE_TEST_EXTENSION"])


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the networks that the user of this machine has downloaded: they would be chosen by default."""
    monkeypatch.setenv("CROSSBYTE_CACHE", str(tmp_path_factory.getbasetemp() / "no-networks"))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with the same seed in each test."""
    return np.random.default_rng(0)
