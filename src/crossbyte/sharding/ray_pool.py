"""Hold shards in the actors of a Ray cluster, which places them by their memory and restarts lost ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from crossbyte.compute.ray_session import RayCluster, ray_module, translate_ray_errors
from crossbyte.errors import ClusterError
from crossbyte.index.ivf.state import KIND as CELLS
from crossbyte.index.storage.store import Store
from crossbyte.sharding import wire
from crossbyte.sharding.liveness import LivenessMonitor
from crossbyte.sharding.manifest import Manifest
from crossbyte.sharding.shard import Shard

# A process with an open index over its file, as docs/scale.md computes it: with cells, codes are there twice.
_OVER_FILE, _OVER_FILE_WITH_CELLS = 1.2, 2.2
_AT_ONCE = 8  # questions that an actor answers at the same time, so that a long one blocks no other
_WATCH = "watch"  # concurrency group of pings: a thread of their own
_SECONDS_TO_START = 60.0  # in which at least one more actor must have found a place and started
_SECONDS_TO_CLOSE = 10.0
_NUMBER = 8  # bytes of a generation


class RayShardPool:
    """Hold every shard in an actor of its own.

    Ray does not retry calls, so that the loss of a shard is noticed at once. A lost shard is not asked until
    it has answered in the background, so that nobody waits for it twice.

    Parameters
    ----------
    manifest : Manifest
        Of a folder that all machines see.
    mode : {"r", "rw"}
    address : str
        ``"local"``, or that of a Ray cluster.
    n_jobs : int or None
        Threads of each actor; None for one.
    timeout : float
        Seconds after which an actor that does not even say that it is there counts as lost.

    Raises
    ------
    ClusterError, MissingExtra
    The errors of :meth:`crossbyte.Index.open`.
    """

    def __init__(
        self, manifest: Manifest, mode: str, address: str, n_jobs: int | None, timeout: float
    ) -> None:
        self.names: Sequence[str] = manifest.shards
        self._ray = ray_module()
        self._actors: list[Any] = []
        self._closed = False
        self._cluster = RayCluster(address).__enter__()
        self._liveness = LivenessMonitor(self._ray, self._cluster, timeout, manifest.shards)
        try:
            with translate_ray_errors(self._cluster):
                self._start(manifest, mode, n_jobs or 1)
                self._open(manifest)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> Mapping[int, wire.ShardLost]:
        """Shards that did not answer the last question, and why."""
        return self._liveness.lost

    def _start(self, manifest: Manifest, mode: str, n_jobs: int) -> None:
        """Start all actors, and wait until each has found a place."""
        needed = [estimate_memory(path) for path in manifest.paths]
        check_memory(self._ray, manifest, needed)
        for place, memory in enumerate(needed):
            actor = self._remote(memory).remote(manifest, place, mode, n_jobs)
            self._actors.append(actor)
        waiting = {self._ping(place): place for place in range(len(needed))}
        while waiting:
            started, _ = self._ray.wait(list(waiting), timeout=_SECONDS_TO_START)
            if not started:
                self._cluster.check_alive()
                for place in waiting.values():
                    self._ray.kill(self._actors[place])
                raise make_no_room_error(self._ray, manifest, list(waiting.values()), needed)
            for reference in started:
                del waiting[reference]

    def _remote(self, memory: int) -> Any:
        return self._ray.remote(concurrency_groups={_WATCH: 1})(_ActorShard).options(
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_AT_ONCE,
            num_cpus=0,  # it waits for questions most of the time; what it takes is memory
            memory=memory,
            enable_task_events=False,  # for a dashboard that is not there; half a millisecond per search
            scheduling_strategy="SPREAD",
        )

    def _open(self, manifest: Manifest) -> None:
        """Have all actors open their files; raise the error of one that cannot."""
        calls = self._call("open", dict.fromkeys(range(len(self._actors)), ()))
        _, lost = self._liveness.gather(calls, self._ping, patient=True)
        for shard, why in lost.items():
            if isinstance(why, wire.ShardUnopened):
                raise why.cause
            raise ClusterError(f"{manifest.paths[shard]}: the shard could not be opened: {why}")

    def ask(
        self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False
    ) -> dict[int, Any]:
        """Call a method of some shards, all at the same time; lost ones are left out."""
        if not self._ray.is_initialized():  # Ray would quietly start another one
            raise self._cluster.lost_error("this process is no longer connected to it")
        with translate_ray_errors(self._cluster):
            lost_before = self._liveness.find_still_lost(
                calls, lambda shard: self._actors[shard].summary.remote()
            )
            references = self._call(
                method, {each: calls[each] for each in sorted(calls.keys() - lost_before)}
            )
            answers, lost = self._liveness.gather(references, self._ping, patient)
        self._liveness.record(references, lost)
        if method == "rank":
            return {shard: wire.unpack_found(data) for shard, data in answers.items()}
        return answers

    def close(self) -> None:
        """Close all files and end the actors; may be called again."""
        actors, self._actors = self._actors, []
        if actors and self._ray.is_initialized():
            closing = [actor.close.remote() for shard, actor in enumerate(actors) if shard not in self.lost]
            if closing:
                self._ray.wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_CLOSE)
            for actor in actors:
                self._ray.kill(actor)
        if not self._closed:
            self._closed = True
            self._cluster.__exit__()

    def _ping(self, shard: int) -> Any:
        """Ask whether an actor is there, and its file open; it answers while it does other work."""
        return self._actors[shard].is_open.options(concurrency_group=_WATCH).remote()

    def _call(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        if method == "rank" and calls:  # the same question to all, but for the generation
            method, data = "rank_packed", wire.pack_query(*next(iter(calls.values()))[1:])
            calls = {
                shard: (generation.to_bytes(_NUMBER, "little") + data,)
                for shard, (generation, *_) in calls.items()
            }
        return {
            shard: getattr(self._actors[shard], method).remote(*arguments)
            for shard, arguments in calls.items()
        }


class _ActorShard(Shard):
    """A shard that Ray may restart: it opens its file by itself, and until then says that it is not open."""

    def __init__(self, manifest: Manifest, place: int, mode: str, n_jobs: int) -> None:
        super().__init__(manifest, place, mode, None, n_jobs)
        threading.Thread(target=self._open_early, daemon=True).start()

    def open(self) -> None:
        """Open the file, unless it is open.

        Raises
        ------
        ShardUnopened
        """
        try:
            super().open()
        except Exception as error:
            raise wire.ShardUnopened(error) from None

    def _open_early(self) -> None:
        with suppress(wire.ShardUnopened):  # the next question tries again, and says it
            self.open()

    def is_open(self) -> bool:
        """Say at once whether the file is open."""
        return self._opened is not None

    def rank_packed(self, data: bytes) -> bytes:
        """Answer :meth:`rank` from bytes, with bytes."""
        query, rest = wire.unpack_query(data[_NUMBER:])
        return wire.pack_found(self.rank(int.from_bytes(data[:_NUMBER], "little"), query, *rest))


def estimate_memory(path: str) -> int:
    """Estimate the bytes in memory of a process that holds a shard."""
    factor = _OVER_FILE_WITH_CELLS if _has_cells(path) else _OVER_FILE
    return int(factor * os.path.getsize(path))


def _has_cells(path: str) -> bool:
    store = Store.open(path, writable=False)
    try:
        with store.reading():
            built = [record.document for record in store.records() if record.kind == CELLS]
    finally:
        store.close()
    return bool(built) and built[-1]["digest"] is not None  # none: they were dropped


def check_memory(ray: Any, manifest: Manifest, needed: Sequence[int]) -> None:
    """Refuse to start actors that Ray could never place.

    Raises
    ------
    ClusterError
        The cluster has too little memory for all shards, or each of its machines for the largest one.
    """
    there, largest = ray.cluster_resources().get("memory", 0), _find_largest_machine(ray)
    if sum(needed) > there:
        raise ClusterError(
            f"{manifest.folder}: its shards need {sum(needed)} bytes of memory, the cluster has {there:.0f}; "
            "add machines, or open it in this process with cluster=None"
        )
    if max(needed) > largest:
        raise ClusterError(
            f"{manifest.folder}: its largest shard needs {max(needed)} bytes of memory, the largest machine "
            f"of the cluster has {largest:.0f}; cut the index into more shards, or add a larger machine"
        )


def make_no_room_error(
    ray: Any, manifest: Manifest, waiting: Sequence[int], needed: Sequence[int]
) -> ClusterError:
    """Make the error that these shards found no place, or that their processes did not start."""
    names = ", ".join(manifest.shards[shard] for shard in waiting)
    sizes, free = [needed[shard] for shard in waiting], ray.available_resources().get("memory", 0)
    return ClusterError(
        f"{manifest.folder}: no actor has started for {names}: they need {sum(sizes)} bytes of memory, up to "
        f"{max(sizes)} on one machine, and {free:.0f} are free in the whole cluster; close what else is open "
        "there, or add machines"
    )


def _find_largest_machine(ray: Any) -> float:
    """Find the memory of the largest machine, in bytes."""
    return max((node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]), default=0)
