"""A fork of a process that has its libraries reads as a child of its own does."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbyte.data import sandbox
from crossbyte.data.readers import read_features
from crossbyte.errors import DataFileError
from support import hostile
from support.mutations import mutated

from . import readers, warm_children


@pytest.fixture(autouse=True)
def servers() -> Iterator[None]:
    """None that forks outlives its test."""
    yield
    warm_children.stop()


def outcome(path: Path) -> str:
    """What is read, or why it is refused."""
    try:
        return repr(read_features(path))
    except DataFileError as error:
        return str(error)


@pytest.mark.parametrize("form", readers.COSTLY)
def test_a_fork_answers_as_a_child_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    chance, sound = random.Random(3), readers.sound_files(form)
    files = [sound[0], sound[0][: len(sound[0]) // 2], mutated(chance, sound[-1])]
    files += [hostile.with_data_type(number) for number in (1, 250)] if form == "mat" else []
    paths = [tmp_path / f"{i}.{form}" for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    expected = [outcome(path) for path in paths]
    assert len(set(expected)) > 1
    if sys.platform == "linux":
        before = warm_children.used_seconds
        monkeypatch.setattr(sandbox, "_start_child", warm_children.start_child)
        assert [outcome(path) for path in paths] == expected
        assert warm_children.used_seconds > before


def test_a_fork_that_hangs_is_killed(tmp_path: Path) -> None:
    if sys.platform != "linux":
        return
    path = tmp_path / "a.mat"
    path.write_bytes(readers.sound_files("mat")[0])
    with path.open("rb") as file:
        child = warm_children.WarmChild(warm_children.requests_of("mat"), {"form": "none"}, file.fileno())
        child.kill()
        child.kill()
        assert child.wait() != 0
        child.close()
