"""One Ray for all tests of this folder, with two workers; tests that kill theirs start their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbyte.compute.ray_session import RayCluster
from support.asked_for import is_asked_for

_HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out unless it, or something in it, was asked for by name."""
    return None if is_asked_for(_HERE, config) else True


@pytest.fixture(scope="session", autouse=True)
def _prompt_workers() -> Iterator[None]:
    """Have Ray's workers run like other programs; else they starve on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # not 15
        yield


@pytest.fixture(scope="session")
def cluster(_prompt_workers: None) -> Iterator[str]:
    """Start Ray; give what ``cluster=`` takes."""
    with RayCluster("local", 2):
        yield "local"
