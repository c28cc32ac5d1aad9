"""An index file, open for writing and for reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbyte.index.storage.store import Store
from support.store_samples import MODEL


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "photos.cb")


@pytest.fixture
def writer(path: str) -> Iterator[Store]:
    with_writer = Store.create(path, [MODEL])
    yield with_writer
    with_writer.close()


@pytest.fixture
def reader(writer: Store) -> Iterator[Store]:
    store = Store.open(writer.path, writable=False)
    yield store
    store.close()
