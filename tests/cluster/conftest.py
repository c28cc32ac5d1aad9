"""One Ray for all tests of this folder, with two workers; tests that kill theirs start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crossbyte.executors.ray_cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Start Ray; give what ``cluster=`` takes."""
    with Cluster("local", 2):
        yield "local"
