"""The script that counts files on the way of a call, and the limits of the layout that it measures."""

from __future__ import annotations

import importlib.util
import re
import threading
from types import ModuleType

import numpy as np
import pytest

from crossbyte import CMCQ
from support.paths import ROOT

MOST_FILES = 290
MOST_IMPORTS = 0.06
MOST_SINGLE_IMPORTERS = 59
MOST_FILES_OF_A_FIT = 18


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Load the script from its file: scripts are no package."""
    spec = importlib.util.spec_from_file_location("walk", ROOT / "scripts" / "walk.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_map_stays_within_its_limits(script: ModuleType) -> None:
    found = script.measure_map()
    assert 0 < found.n_files <= MOST_FILES
    assert 0 < found.import_share <= MOST_IMPORTS
    assert len(found.single_importers) <= MOST_SINGLE_IMPORTERS, found.single_importers
    assert found.repeated_names == []


def test_the_map_is_described(script: ModuleType) -> None:
    assert re.fullmatch(
        r"\d+ files, [\d,]+ lines; import and __all__ lines \d\.\d%; \d+ modules with a single importer; "
        r"names in three folders: none",
        script.describe_map(),
    )


@pytest.mark.parametrize("mapping", ["cca", "sparse"])
def test_a_fit_passes_through_few_files(script: ModuleType, mapping: str) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((80, 4))
    sides = hidden @ rng.standard_normal((4, 12)), hidden @ rng.standard_normal((4, 10))
    small = {"n_bits": 8, "n_components": 4, "n_atoms": 8, "max_iter": 1, "random_state": 0, "n_jobs": 1}
    model = CMCQ(mapping=mapping, **small)  # type: ignore[arg-type]
    found = script.walk(lambda: model.fit(*sides))
    names = sorted(path.removeprefix(str(script.PACKAGE)) for path in found.files)
    assert 1 < len(names) <= MOST_FILES_OF_A_FIT, names
    assert len(found.functions) >= len(names)
    assert found.changes > 0 and found.depth > 1


def test_threads_are_counted_and_only_while_asked(script: ModuleType) -> None:
    def check() -> None:
        CMCQ(n_bits=8).get_params()

    with script.Walk().profiling() as found:
        check()
        assert not found.files
        with found.counting():
            thread = threading.Thread(target=check)
            thread.start()
            thread.join()
    check()
    assert any(path.endswith("estimator.py") for path in found.files)
    assert found.describe().split()[0] == str(len(found.files))
