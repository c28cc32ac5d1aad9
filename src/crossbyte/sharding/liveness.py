"""Watch which shards answer: wait for slow ones, give up silent ones, notice when lost ones are back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from crossbyte.compute.ray_session import RayCluster
from crossbyte.sharding.wire import ShardLost, ShardUnopened

ShardCall = Callable[[int], Any]
"""Asks a shard something, and gives the reference of its answer."""
LostShards = dict[int, ShardLost]
"""Shards that do not answer, and why."""

_SECONDS_BETWEEN_LOOKS = 5.0  # at the cluster, while an answer does not come
_SECONDS_TO_COME_BACK = 0.2  # for a lost shard to answer while somebody waits; later in the background
_SECONDS_OF_PATIENCE = 60.0  # with a silent shard that reads or writes a whole file
_log = logging.getLogger("crossbyte.sharding")


class LivenessMonitor:
    """Gathers the answers of actors, and knows which of them are lost.

    Parameters
    ----------
    ray : module
    cluster : RayCluster
        Entered.
    timeout : float
        Seconds after which an actor that does not even say that it is there counts as lost.
    names : sequence of str
        Of the shards.

    Attributes
    ----------
    lost : dict of int to ShardLost
        Shards that did not answer the last question, and why. It is replaced, never changed.
    """

    def __init__(self, ray: Any, cluster: RayCluster, timeout: float, names: Sequence[str]) -> None:
        self.lost: LostShards = {}
        self.timeout = timeout
        self._ray, self._cluster, self._names = ray, cluster, names
        self._called: dict[int, tuple[float, Any]] = {}  # lost shards: when, and the answer to come
        self._lock = threading.Lock()

    def record(self, asked: Iterable[int], lost: LostShards) -> None:
        """Record which of the shards that were asked are lost; the others are not."""
        if not lost and not self.lost:
            return
        with self._lock:
            before, now = self.lost, set(asked)
            self.lost = {shard: why for shard, why in before.items() if shard not in now} | lost
        for shard, why in lost.items():
            if str(before.get(shard)) != str(why):
                _log.warning("%s is lost: %s", self._names[shard], why)

    # Lost shards

    def find_still_lost(self, shards: Iterable[int], call: ShardCall) -> set[int]:
        """Find the shards that are still lost; each is called once, and is back when it answers."""
        known = self.lost
        calls = {shard: self._call(shard, call) for shard in shards if shard in known}
        return {shard for shard, made in calls.items() if not self._is_back(shard, *made)}

    def _call(self, shard: int, call: ShardCall) -> tuple[float, Any]:
        with self._lock:
            if shard not in self._called:
                self._called[shard] = time.monotonic(), call(shard)
            return self._called[shard]

    def _is_back(self, shard: int, since: float, reference: Any) -> bool:
        left = max(0.0, since + _SECONDS_TO_COME_BACK - time.monotonic())
        ready, _ = self._ray.wait([reference], timeout=left)
        if not ready:
            return False
        with self._lock:
            self._called.pop(shard, None)
        _, lost, _ = self._collect({shard: reference})
        self.record([shard], lost)
        return not lost

    # Answers

    def gather(
        self, references: Mapping[int, Any], ping: ShardCall, patient: bool
    ) -> tuple[dict[int, Any], LostShards]:
        """Gather the answers, and the shards that are lost; then raise the error of a shard, if there is one.

        All at once is quickest. Where that fails, shards that do not even answer a ping are given up, and
        so are those that are still opening their files, unless ``patient``.
        """
        try:
            found = self._ray.get(list(references.values()), timeout=self.timeout / 2)
            return dict(zip(references, found, strict=True)), {}
        except self._ray.exceptions.RayError:
            silent = self._wait(references, ping, patient)
        rest = {shard: each for shard, each in references.items() if shard not in silent}
        answers, lost, failed = self._collect(rest)
        if failed:
            raise failed[0]
        return answers, silent | lost

    def _wait(self, references: Mapping[int, Any], ping: ShardCall, patient: bool) -> LostShards:
        """Wait until all have answered or failed; give those that are silent."""
        limit = max(self.timeout, _SECONDS_OF_PATIENCE) if patient else self.timeout
        silent: LostShards = {}
        waiting = self._wait_for(references, 0.0)
        while waiting:
            pings = {shard: ping(shard) for shard in waiting}
            waiting = self._wait_for(waiting, limit - self.timeout / 2)
            states, _, _ = self._collect({shard: pings[shard] for shard in waiting})
            silent |= _find_silent_shards(waiting, states, patient, limit)
            waiting = {shard: each for shard, each in waiting.items() if shard not in silent}
        return silent

    def _wait_for(self, references: Mapping[int, Any], seconds: float) -> dict[int, Any]:
        """Wait until all have answered or failed, or the time is over; give those that have not."""
        end, waiting = time.monotonic() + seconds, list(references.values())
        while waiting:
            some = max(0.0, min(_SECONDS_BETWEEN_LOOKS, end - time.monotonic()))
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=some)
            if time.monotonic() >= end:
                break
            self._cluster.check_alive()
        return {shard: each for shard, each in references.items() if each in waiting}

    def _collect(self, references: Mapping[int, Any]) -> tuple[dict[int, Any], LostShards, list[Exception]]:
        """Collect answers that have come, shards that are lost, and errors that shards have raised."""
        kinds, answers, lost, failed = self._ray.exceptions, {}, LostShards(), []
        for shard, reference in references.items():
            try:
                answers[shard] = self._ray.get(reference, timeout=0)
            except (kinds.RayActorError, kinds.OutOfMemoryError, kinds.GetTimeoutError) as error:
                lost[shard] = ShardLost(f"Ray has lost its actor ({type(error).__name__})")
            except kinds.RayTaskError as error:
                if isinstance(error.cause, ShardUnopened):
                    lost[shard] = error.cause
                else:
                    failed.append(error)
        return answers, lost, failed


def _find_silent_shards(
    asked: Iterable[int], is_open: Mapping[int, bool], patient: bool, seconds: float
) -> LostShards:
    """Find the shards that are not only slow, by their answers to a ping."""
    why = f"no answer in {seconds:g} seconds"
    silent = {shard: ShardLost(why) for shard in asked if shard not in is_open}
    if patient:
        return silent
    closed = [shard for shard, known in is_open.items() if not known]
    return silent | {shard: ShardLost("it is still opening its file") for shard in closed}
