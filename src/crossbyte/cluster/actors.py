"""Shards held by the actors of a Ray cluster: placed by their memory, restarted by Ray, missed until then."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from crossbyte.cluster.manifest import Manifest
from crossbyte.cluster.shards import Shard
from crossbyte.cluster.wire import pack_found, pack_query, unpack_found, unpack_query
from crossbyte.errors import ClusterError, CrossbyteError
from crossbyte.executors.ray_cluster import Cluster, ray_module, translated

__all__ = ["ActorShards"]

_SECONDS_BETWEEN_LOOKS = 5.0  # at the cluster, while an answer does not come
_AT_ONCE = 8  # questions that an actor answers at the same time: a long one holds up nobody
_SECONDS_TO_CLOSE = 10.0
_NUMBER = 8  # bytes of a generation


class _ActorShard(Shard):
    """A shard that Ray may start again: what fails at the start is tried, and said, at the next question."""

    def __init__(self, path: str, mode: str, n_jobs: int) -> None:
        super().__init__(path, mode, None, n_jobs)
        with suppress(CrossbyteError, OSError):
            self.open()

    def rank_packed(self, data: bytes) -> bytes:
        """Answer :meth:`rank` from bytes, with bytes."""
        query, rest = unpack_query(data[_NUMBER:])
        return pack_found(self.rank(int.from_bytes(data[:_NUMBER], "little"), query, *rest))


class ActorShards:
    """One actor for every shard.

    Calls are not tried again by Ray: that a shard is lost is seen at once, and said.

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
        Seconds after which an actor that has not answered counts as lost.

    Raises
    ------
    ClusterError, MissingExtra
    """

    def __init__(
        self, manifest: Manifest, mode: str, address: str, n_jobs: int | None, timeout: float
    ) -> None:
        self.names: Sequence[str] = manifest.shards
        self.lost: set[int] = set()
        self._timeout, self._ray = timeout, ray_module()
        self._actors: list[Any] = []
        self._cluster = Cluster(address).__enter__()
        try:
            self._check_memory(manifest)
            self._actors = [self._start(path, mode, n_jobs or 1) for path in manifest.paths]
        except BaseException:
            self._cluster.__exit__()
            raise

    def _check_memory(self, manifest: Manifest) -> None:
        """Refuse what Ray would wait for without end."""
        needed = sum(os.path.getsize(path) for path in manifest.paths)
        there = self._ray.cluster_resources().get("memory", 0)
        if needed > there:
            raise ClusterError(
                f"{manifest.folder}: its shards need {needed} bytes of memory, the cluster has {there:.0f}; "
                "add machines, or open it in this process with cluster=None"
            )

    def _start(self, path: str, mode: str, n_jobs: int) -> Any:
        actor = self._ray.remote(_ActorShard).options(
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_AT_ONCE,
            num_cpus=0,  # it waits for questions most of the time; what it takes is memory
            memory=os.path.getsize(path),
            enable_task_events=False,  # for a dashboard that is not there; half a millisecond per search
            scheduling_strategy="SPREAD",
        )
        return actor.remote(path, mode, n_jobs)

    def ask(
        self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False
    ) -> dict[int, Any]:
        """Call a method of some shards, all at the same time; without those that are lost."""
        with translated(self._cluster):
            references = self._call(method, calls)
            answers = self._gather(references, patient)
        self.lost = (self.lost | references.keys()) - answers.keys()
        if method == "rank":
            return {shard: unpack_found(data) for shard, data in answers.items()}
        return answers

    def close(self) -> None:
        """Close all files and end the actors; may be called again."""
        actors, self._actors = self._actors, []
        if actors and self._ray.is_initialized():
            closing = [actor.close.remote() for actor in actors]
            self._ray.wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_CLOSE)
            for actor in actors:
                self._ray.kill(actor)
        if actors:
            self._cluster.__exit__()

    def _call(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        if not self._ray.is_initialized():  # Ray would quietly start another one
            raise self._cluster.lost("this process is no longer connected to it")
        if method == "rank":  # the same question to all, but for the generation
            method, data = "rank_packed", pack_query(*next(iter(calls.values()))[1:])
            calls = {
                shard: (generation.to_bytes(_NUMBER, "little") + data,)
                for shard, (generation, *_) in calls.items()
            }
        return {
            shard: getattr(self._actors[shard], method).remote(*arguments)
            for shard, arguments in sorted(calls.items())
        }

    def _gather(self, references: Mapping[int, Any], patient: bool) -> dict[int, Any]:
        """Get all answers at once, which is quickest; one by one if that fails."""
        first = min(_SECONDS_BETWEEN_LOOKS, self._timeout)
        try:
            return dict(zip(references, self._ray.get(list(references.values()), timeout=first), strict=True))
        except self._ray.exceptions.RayError:
            self._wait(list(references.values()), None if patient else self._timeout - first)
        return self._each(references)

    def _wait(self, references: list[Any], seconds: float | None) -> None:
        """Wait until all have answered or failed, or the time is over."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        while references:
            some = max(0.0, min(_SECONDS_BETWEEN_LOOKS, end - time.monotonic()))
            _, references = self._ray.wait(references, num_returns=len(references), timeout=some)
            if time.monotonic() >= end:
                return
            if references:
                self._cluster.check_alive()

    def _each(self, references: Mapping[int, Any]) -> dict[int, Any]:
        """What has come; an error of a shard is raised when all of them have been heard."""
        kinds, answers, failed = self._ray.exceptions, {}, []
        for shard, reference in references.items():
            try:
                answers[shard] = self._ray.get(reference, timeout=0)
            except (kinds.RayActorError, kinds.GetTimeoutError):
                pass
            except kinds.RayTaskError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return answers
