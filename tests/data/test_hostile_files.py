"""Hostile and damaged files are refused by name: no crash, no hang, no gigabyte."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crossbyte.data.readers import describe, read_dataset, read_features, read_rows
from crossbyte.errors import DataFileError
from support import hostile
from support.mutations import mutated
from support.paths import with_tests


def test_the_corpus_is_refused_by_one_living_process(tmp_path: Path) -> None:
    """The time limit is there against hangs only."""
    paths = hostile.write_corpus(tmp_path)
    assert len(paths) > 200
    program = [sys.executable, "-m", "support.hostile", *map(str, paths)]
    answer = subprocess.run(program, env=with_tests(), stdout=subprocess.PIPE, timeout=300, check=True)
    told = json.loads(answer.stdout)
    wanted = {path.name: "read" if path.name.startswith("ok-") else "refused" for path in paths}
    assert told["outcomes"] == wanted
    assert told["grown_bytes"] < 2**30


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_what_is_unusual_but_right_is_read_right(tmp_path: Path, form: str) -> None:
    right = {name: data for name, data in hostile.MAKERS[form]() if name.startswith("ok-")}
    assert len(right) >= 3
    for name, data in right.items():
        (tmp_path / name).write_bytes(data)
        read = read_features(tmp_path / name)
        dense = read if isinstance(read, np.ndarray) else read.toarray()
        if "no-rows" not in name and "of-ones" not in name:
            assert np.array_equal(dense, hostile.MATRIX), name


def answers(path: Path) -> int:
    """Read in every way, count the answers; anything but an answer or a refusal escapes."""
    count = 0
    for reader in (read_features, read_rows, read_dataset, describe):
        try:
            count += reader(path) is not None
        except DataFileError as error:
            assert str(error).startswith(f"{path}: ")
    return count


def seeds(form: str) -> list[bytes]:
    return [data for name, data in hostile.MAKERS[form]() if name.startswith("ok-") and len(data) < 5000]


@pytest.mark.parametrize("form", ["npy", "npz", "csv", "jsonl"])
def test_mutations_give_an_answer_or_a_refusal(tmp_path: Path, form: str) -> None:
    chance, path, good = random.Random(0), tmp_path / f"a.{form}", seeds(form)
    counts = []
    for _ in range(500):
        path.write_bytes(mutated(chance, chance.choice(good)))
        counts.append(answers(path))
    assert 0 in counts and max(counts) > 0  # the mutations are neither too mild nor too wild


def test_mutations_inside_a_whole_archive(tmp_path: Path) -> None:
    """With right checksums, so that the damage gets past them."""
    chance, path, good = random.Random(1), tmp_path / "a.npz", seeds("npy")
    for _ in range(200):
        members = {
            "images": mutated(chance, chance.choice(good)),
            "ids": mutated(chance, chance.choice(good)),
        }
        path.write_bytes(hostile.npz(members))
        answers(path)


@pytest.mark.long
@pytest.mark.parametrize("form", ["mat", "parquet"])
def test_mutations_never_reach_the_parent(tmp_path: Path, form: str) -> None:
    """Each costs a process, so each is read in one way."""
    chance, path, good = random.Random(2), tmp_path / f"a.{form}", seeds(form)
    outcomes = set()
    for reader in (read_features, read_dataset, describe) * 20:
        path.write_bytes(mutated(chance, chance.choice(good)))
        try:
            outcomes.add(reader(path) is not None)
        except DataFileError as error:
            outcomes.add(str(error).startswith(f"{path}: "))
    assert outcomes == {True}


@pytest.mark.long
def test_every_data_type_that_a_matlab_file_can_claim(tmp_path: Path) -> None:
    """SciPy's reader dies of many of them."""
    path, crashes = tmp_path / "a.mat", 0
    for number in range(256):
        path.write_bytes(hostile.with_data_type(number))
        try:
            read = read_features(path)
        except DataFileError as error:
            crashes += "crashed" in str(error)
        else:
            assert number != 9 or np.array_equal(read, hostile.MATRIX)
    assert crashes > 0
