"""Verbs that write to a folder of shards: they do there what they do to one file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, Index, ShardedIndex, split_index
from crossbyte.cli import app
from crossbyte.data.synthetic import make_pairs

N_FIRST, N_MORE = 40, 20
IMAGES, TEXTS, _ = make_pairs(N_FIRST + N_MORE, 8, 12, n_topics=5, random_state=0)


@cache
def learned(seed: int) -> CMCQ:
    return CMCQ(n_bits=16, mapping="cca", n_components=4, max_iter=2, random_state=seed).fit(IMAGES, TEXTS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One index and the same in two shards, new documents in a file, the model and another one."""
    monkeypatch.chdir(tmp_path)
    learned(0).save("model.cbm")
    learned(1).save("other.cbm")
    with Index.create("one.cb", learned(0)) as index:
        index.add(range(N_FIRST), images=IMAGES[:N_FIRST], texts=TEXTS[:N_FIRST])
    split_index("one.cb", "many.cbs", n_shards=2)
    ids = np.arange(100, 100 + N_MORE)
    np.savez("new.npz", images=IMAGES[N_FIRST:], texts=TEXTS[N_FIRST:].toarray(), ids=ids)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert app.run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert app.run(list(arguments)) == code
    return capsys.readouterr().err


def test_a_history_leaves_both_with_the_same_answers(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        ("add", "{}", "new.npz", "--quiet"),
        ("add", "{}", "new.npz", "--quiet", "--upsert"),
        ("delete", "{}", "3", "105"),
        ("add", "{}", "new.npz", "--quiet", "--skip-existing", "--model", "model.cbm"),
        ("compact", "{}"),
    ]
    for command, _, *rest in steps:
        said = [told(capsys, command, path, *rest) for path in ("one.cb", "many.cbs")]
        assert said[0].get("documents") == said[1].get("documents")
    with Index.open("one.cb") as one, ShardedIndex.open("many.cbs") as many:
        assert len(one) == len(many) == N_FIRST + N_MORE - 1
        expected, found = (each.search(texts=TEXTS, k=7) for each in (one, many))
        assert [hits.ids for hits in found] == [hits.ids for hits in expected]
        assert [hits.distances.tobytes() for hits in found] == [hits.distances.tobytes() for hits in expected]


def test_a_backup_of_shards_is_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "backup", "many.cbs", "copy.cbs")
    assert said["bytes"] == sum(file.stat().st_size for file in (home / "copy.cbs").iterdir())
    assert told(capsys, "verify", "copy.cbs")["documents"] == N_FIRST
    assert "copy.cbs" in refused(capsys, "backup", "many.cbs", "copy.cbs")


def test_cells_of_shards_are_told_and_dropped(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "cells", "many.cbs")["cells"] is None
    said = refused(capsys, "cells", "many.cbs", "new.npz")
    assert "build the cells in one file and cut it with `crossbyte shard`" in said
    assert app.run(["cells", "one.cb", "new.npz", "--cells", "3", "--quiet"]) == 0
    assert app.run(["shard", "one.cb", "-o", "celled.cbs", "--shards", "2", "--json"]) == 0
    capsys.readouterr()
    one, many = (told(capsys, "cells", path)["cells"] for path in ("one.cb", "celled.cbs"))
    assert many == one and many["n_cells"] == {"document": 3}
    assert told(capsys, "cells", "celled.cbs", "--drop")["cells"] is None


def test_what_cannot_be_is_said_and_nothing_changes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "another model" in refused(capsys, "add", "many.cbs", "new.npz", "--model", "other.cbm")
    assert "no document has the id" in refused(capsys, "delete", "many.cbs", "7", "999")
    assert "made by `crossbyte shard`" in refused(capsys, "add", "new.cbs", "new.npz", "--model", "model.cbm")
    assert "many shards" in refused(capsys, "shard", "many.cbs", "-o", "more.cbs", "--shards", "3", code=5)
    assert not (home / "new.cbs").exists() and not (home / "more.cbs").exists()
    with ShardedIndex.open("many.cbs") as index:
        assert index.ids() == list(range(N_FIRST))
