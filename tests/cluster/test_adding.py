"""Documents coded on Ray: the codes of threads, one commit, and an index as it was if anything fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbyte import CMCQ, Index
from crossbyte.errors import DuplicateId, InvalidInput
from crossbyte.progress import Progress
from support.cluster_samples import killing, pairs

N_NEW = 40_000  # three tasks


@pytest.fixture(scope="module")
def model() -> CMCQ:
    images, texts = pairs(2_000)
    return CMCQ(n_bits=16, mapping="sparse", n_atoms=32, max_iter=2, random_state=0).fit(images, texts)


@pytest.mark.parametrize("sides", [("images", "texts"), ("images",), ("texts",)])
def test_gives_the_codes_of_threads(
    cluster: str, model: CMCQ, tmp_path: Path, sides: tuple[str, ...]
) -> None:
    both = dict(zip(("images", "texts"), pairs(N_NEW, seed=1), strict=True))
    documents = {side: both[side] for side in sides}
    steps: list[Progress] = []
    with (
        Index.create(tmp_path / "here.cb", model) as here,
        Index.create(tmp_path / "there.cb", model) as there,
    ):
        here.add(range(N_NEW), **documents)
        assert there.add(range(N_NEW), **documents, cluster=cluster, callback=steps.append) == N_NEW
        assert there.generation == here.generation
    assert (tmp_path / "here.cb").read_bytes() == (tmp_path / "there.cb").read_bytes()
    assert [step.done for step in steps] == [16_384, 32_768, N_NEW]


def test_gives_the_one_code_of_threads(cluster: str, tmp_path: Path) -> None:
    images, texts = pairs(N_NEW, seed=1)
    model = CMCQ(n_bits=16, max_iter=1, random_state=0).fit(images[:2_000], texts[:2_000])
    for name, where in (("here", None), ("there", cluster)):
        with Index.create(tmp_path / f"{name}.cb", model) as index:
            index.add(range(N_NEW), images=images, texts=texts, cluster=where)
            assert index.stats()["codings"] == {"document": N_NEW}
    assert (tmp_path / "here.cb").read_bytes() == (tmp_path / "there.cb").read_bytes()


def test_a_killed_worker_changes_nothing(cluster: str, model: CMCQ, tmp_path: Path) -> None:
    images, texts = pairs(N_NEW, seed=1)
    with (
        Index.create(tmp_path / "here.cb", model) as here,
        Index.create(tmp_path / "there.cb", model) as there,
    ):
        here.add(range(N_NEW), images=images, texts=texts)
        with killing(2) as killer:
            there.add(range(N_NEW), images=images, texts=texts, cluster=cluster)
    assert killer.killed == 2
    assert (tmp_path / "here.cb").read_bytes() == (tmp_path / "there.cb").read_bytes()


def test_blocks_and_upserts_go_there_too(cluster: str, model: CMCQ, tmp_path: Path) -> None:
    images, texts = pairs(300, seed=2)
    blocks = ({"ids": range(at, at + 100), "images": images[at : at + 100]} for at in (0, 100, 200))
    with Index.create(tmp_path / "there.cb", model) as index:
        assert index.add(blocks, cluster=cluster) == 300
        assert index.upsert([5, 7], texts=texts[[5, 7]], cluster=cluster) == 2
        assert len(index) == 300
        with pytest.raises(DuplicateId):
            index.add([7], texts=texts[:1], cluster=cluster)
        with pytest.raises(InvalidInput, match="cluster: expected None"):
            index.add([1000], texts=texts[:1], cluster=3)  # type: ignore[arg-type]
        assert len(index) == 300
