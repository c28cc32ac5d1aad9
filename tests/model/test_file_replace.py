"""The model file on disk: replaced in one step or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte.errors import InvalidInput
from crossbyte.model.file_format import model_bytes, read_model_file, write_model_file
from support.model_files import (
    ARRAYS,
    DOCUMENT,
    same,
)

# The file system


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """A model that must survive: alone in its folder, and unchanged."""
    path = tmp_path / "m.cbm"
    write_model_file(path, {"old": np.ones(3)}, {})
    before = path.read_bytes()
    yield path
    assert os.listdir(tmp_path) == ["m.cbm"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("call", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), OSError("odd"), KeyboardInterrupt()]
)
def test_a_failure_while_writing_leaves_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        assert len(os.listdir(old.parent)) == 2  # the temporary file is in the same folder
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)) as caught:
        write_model_file(old, ARRAYS, DOCUMENT)
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert isinstance(caught.value, OSError)
        assert caught.value.errno == error.errno and caught.value.filename == str(old)
        assert "before the old file was touched" in str(caught.value)


def test_a_refused_model_leaves_the_old_file(old: Path) -> None:
    with pytest.raises(InvalidInput):
        write_model_file(old, ARRAYS, {"a": float("nan")})


def test_a_new_file_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EACCES, "no")))
    with pytest.raises(PermissionError):
        write_model_file(tmp_path / "m.cbm", ARRAYS, DOCUMENT)
    assert os.listdir(tmp_path) == []


def test_bytes_are_flushed_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        events.append("folder" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")
        fsync(descriptor)

    def recorded_replace(source: str, target: str) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_model_file(tmp_path / "m.cbm", ARRAYS, DOCUMENT)
    assert events == [f"{len(model_bytes(ARRAYS, DOCUMENT))} bytes", "rename", "folder"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL])
def test_a_folder_that_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """An input-output error is told, with the new file whole; a file system that cannot do it is fine."""
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "folder")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EIO:
        with pytest.raises(OSError, match="after the new file was put in place"):
            write_model_file(tmp_path / "m.cbm", ARRAYS, DOCUMENT)
    else:
        write_model_file(tmp_path / "m.cbm", ARRAYS, DOCUMENT)
    assert same(read_model_file(tmp_path / "m.cbm").arrays, ARRAYS)
    assert os.listdir(tmp_path) == ["m.cbm"]


@pytest.mark.parametrize(("shared", "mode"), [("", 0o600), ("1", 0o640)])
def test_overwriting_replaces_and_keeps_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, mode: int
) -> None:
    monkeypatch.setenv("CROSSBYTE_SHARED_FILES", shared)
    path = tmp_path / "m.cbm"
    umask = os.umask(0o027)
    try:
        first = write_model_file(path, ARRAYS, {"n": 1})
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.chmod(0o604)
        second = write_model_file(path, ARRAYS, {"n": 2})
    finally:
        os.umask(umask)
    assert first != second == read_model_file(path).digest
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert os.listdir(tmp_path) == ["m.cbm"]


def test_a_reader_of_the_old_file_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "m.cbm"
    write_model_file(path, ARRAYS, {"n": 1})
    before = path.read_bytes()
    with path.open("rb") as stream:
        write_model_file(path, {}, {"n": 2})
        assert stream.read() == before


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "m.cbm", tmp_path / "link.cbm"
    link.symlink_to(Path("real") / "m.cbm")
    for n in (1, 2):  # dangling at first
        write_model_file(link, ARRAYS, {"n": n})
        assert link.is_symlink() and not target.is_symlink()
        assert read_model_file(target).document == read_model_file(link).document == {"n": n}
    assert os.listdir(tmp_path / "real") == ["m.cbm"]


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("folder", "pipe", "circle"):
        with pytest.raises(InvalidInput, match="regular file"):
            write_model_file(tmp_path / name, ARRAYS, DOCUMENT)
    assert sorted(os.listdir(tmp_path)) == ["circle", "folder", "pipe"]
    assert (tmp_path / "circle").is_symlink() and (tmp_path / "pipe").is_fifo()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"writing the model failed .*nowhere/m\.cbm"):
        write_model_file(tmp_path / "nowhere" / "m.cbm", ARRAYS, DOCUMENT)


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A folder that this process may not write to; root may do everything and becomes somebody else."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_a_read_only_folder_is_named(read_only_folder: Path) -> None:
    with pytest.raises(PermissionError, match=r"writing the model failed .*m\.cbm") as caught:
        write_model_file(read_only_folder / "m.cbm", ARRAYS, DOCUMENT)
    assert os.path.samefile(os.path.dirname(caught.value.filename), read_only_folder)
    assert os.listdir(read_only_folder) == []
