"""New files are their owner's alone, whatever the umask; or what the umask says, where that is asked for."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbyte import Index, split_index
from crossbyte.export import export_vectors, write_trec
from support.index_samples import sample


@pytest.fixture(params=["", "1"], ids=["private", "shared"])
def others_may(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What others than the owner may do with a file under this setting, and a umask of 0o022."""
    monkeypatch.setenv("CROSSBYTE_SHARED_FILES", request.param)
    umask = os.umask(0o022)
    try:
        yield 0o044 if request.param else 0
    finally:
        os.umask(umask)


def modes(folder: Path) -> dict[str, int]:
    """What others than the owner may do with each file."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) & 0o077
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_files_of_the_library(tmp_path: Path, others_may: int) -> None:
    index, _ = sample(tmp_path / "a.cb")
    with index:
        index.backup(tmp_path / "copy.cb")
        export_vectors(index, tmp_path / "vectors.npy", target="image")
        write_trec(tmp_path / "run.txt", index.search(like="p1"), ["q"])
        index.model.save(tmp_path / "model.cbm")
    split_index(tmp_path / "copy.cb", tmp_path / "a.cbs", 2)
    found = modes(tmp_path)
    assert {"a.cb", "copy.cb", "model.cbm", "run.txt", "vectors.npy"} <= set(found) and len(found) > 8
    assert set(found.values()) == {others_may}, found
    folder = stat.S_IMODE((tmp_path / "a.cbs").stat().st_mode)
    assert folder == (0o755 if others_may else 0o700)


def test_what_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    index.close()
    (tmp_path / "a.cb").chmod(0o640)
    with Index.open(tmp_path / "a.cb", "rw") as index:
        index.delete(["p1"])
        index.compact()
    assert modes(tmp_path)["a.cb"] == 0o040


def test_files_of_the_program(others_may: int) -> None:
    """Also what other libraries write for it."""
    code = "import os; from crossbyte.cli import app; app.run = lambda _: print(oct(os.umask(0))); app.main()"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.stdout.strip() == ("0o22" if others_may else "0o77")
