"""Fits on Ray: the bytes of threads, also when workers are killed in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ
from crossbyte.errors import ClusterError, InvalidInput
from crossbyte.progress import Progress
from support.cluster_samples import killing, pairs

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"text_components": 10},
    "cca": {"mapping": "cca", "text_components": 10, "shared_codebooks": True},
    "sparse": {"mapping": "sparse", "n_atoms": 32, "query_map": "ridge"},
    "contrastive": {"mapping": "contrastive", "cross_term": "stored"},
}
N_PAIRS = {"sparse": 36_000}  # more than a sample teaches
FEW = 18_000  # two tasks for everything


def make(setting: str, **more: Any) -> CMCQ:
    return CMCQ(n_bits=16, max_iter=1, random_state=0, **SETTINGS[setting], **more)


@pytest.mark.parametrize("setting", SETTINGS)
def test_gives_the_bytes_of_threads(cluster: str, setting: str) -> None:
    images, texts = pairs(N_PAIRS.get(setting, FEW))
    steps: list[Progress] = []
    there = make(setting, callback=steps.append).fit(images, texts, cluster=cluster)
    assert there.to_bytes() == make(setting).fit(images, texts).to_bytes()
    assert steps[-1].stage == "alternate"


class Untouched:
    """Blocks that nobody may read."""

    def __iter__(self) -> Any:
        raise AssertionError("rows were read before the cluster was found")


def test_a_missing_cluster_is_said_before_rows_are_read() -> None:
    with pytest.raises(ClusterError):  # nobody is there; or this process is connected elsewhere
        make("cca").fit(Untouched(), Untouched(), cluster="127.0.0.1:9")


def test_killed_workers_change_nothing(cluster: str) -> None:
    images, texts = pairs(FEW)
    with killing(3) as killer:
        there = make("sparse").fit(images, texts, cluster=cluster)
    assert killer.killed == 3
    assert there.to_bytes() == make("sparse").fit(images, texts).to_bytes()


def test_fits_from_disk(cluster: str, tmp_path: Path) -> None:
    images, texts = pairs(FEW)
    np.save(tmp_path / "images.npy", images)
    there = make("cca").fit(tmp_path / "images.npy", texts, cluster=cluster)
    assert there.to_bytes() == make("cca").fit(images, texts).to_bytes()


def test_refuses_bad_pairs_as_ever(cluster: str) -> None:
    images, texts = pairs(100)
    with pytest.raises(InvalidInput, match="all 100 rows are equal"):
        make("cca").fit(np.ones_like(images), texts, cluster=cluster)
    with pytest.raises(InvalidInput, match="cluster: expected None, 'local' or the address"):
        make("cca").fit(images, texts, cluster="")
