"""From a manifest to shards that answer: the one model of all of them, and who holds them."""

from __future__ import annotations

from crossbyte.cluster.holding import Holder, LocalShards
from crossbyte.cluster.manifest import Manifest, model_of
from crossbyte.model.cmcq import CMCQ
from crossbyte.search import loading
from crossbyte.search.storage.store import Store

__all__ = ["hold", "load_model"]


def load_model(manifest: Manifest, given: CMCQ | None = None) -> CMCQ:
    """Read the model, if it is the same in all shards, and the one given; no documents are read.

    Raises
    ------
    WrongModel
    """
    model: CMCQ | None = None
    for name, path in zip(manifest.shards, manifest.paths, strict=True):
        store = Store.open(path, writable=False)
        try:
            manifest.check_model(name, model_of(store)[1])
            model = model or loading.load_model(store, given)
        finally:
            store.close()
    assert model is not None  # there is a shard
    return model


def hold(
    manifest: Manifest, mode: str, model: CMCQ, cluster: str | None, n_jobs: int | None, timeout: float
) -> Holder:
    """Open all shards, in this process or in the actors of a cluster."""
    if cluster is None:
        return LocalShards(manifest, mode, model, n_jobs)
    from crossbyte.cluster.actors import ActorShards

    return ActorShards(manifest, mode, cluster, n_jobs, timeout)
