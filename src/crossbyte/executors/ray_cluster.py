"""A Ray cluster: watched while we wait for it, and left as it was found."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse

from crossbyte.errors import ClusterError
from crossbyte.executors.ray_connection import LOCAL, knock, ours, ray_module
from crossbyte.executors.ray_errors import translated

__all__ = ["LOCAL", "Cluster", "ray_module", "translated"]

_SECONDS_BETWEEN_LOOKS = 5.0
_SECONDS_OF_TRUST = 0.1


class Cluster:
    """A connection of this process to Ray; a context.

    Parameters
    ----------
    address : str
        ``"local"`` for the Ray that this process is connected to, or a new one here; else an address.
    n_cpus : int or None
        Tasks at a time of a Ray that is started here; None for one per core.

    Raises
    ------
    ClusterError
        On entering: nobody is at the address, or this process is connected elsewhere.
    """

    def __init__(self, address: str, n_cpus: int | None = None) -> None:
        self.address, self._n_cpus = address, n_cpus
        self._ray = ray_module()
        self._doors: list[tuple[str, int]] = []
        self._looked = 0.0

    def __enter__(self) -> Cluster:
        ours.join(self.address, self._n_cpus)
        try:
            self._doors = self._find_doors()
        except BaseException:
            ours.leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave Ray as it was found."""
        ours.leave()

    @property
    def n_cpus(self) -> int:
        """Tasks that run at the same time.

        Raises
        ------
        ClusterError
            None: Ray would wait for a CPU without end.
        """
        found = int(self._ray.cluster_resources().get("CPU", 0))
        if not found:
            raise ClusterError(
                "cluster: expected a Ray with a CPU for tasks, got one without; join a machine that has some "
                "to it, or start it with --num-cpus"
            )
        return found

    # Watching

    def check_alive(self) -> None:
        """Knock where the cluster was when we came.

        Raises
        ------
        ClusterError
            Nobody answers any more. Ray itself would end this process: at the next object if its part on this
            machine is gone, and after a minute if its head is.
        """
        self._looked = time.monotonic()
        if not self._ray.is_initialized():  # Ray would quietly start another one
            raise self.lost("this process is no longer connected to it")
        for door in self._doors:
            if (trouble := knock(*door)) and (trouble := knock(*door)):
                raise self.lost(trouble)

    def lost(self, why: str) -> ClusterError:
        """Say that the cluster went away."""
        where = "the Ray started here" if self.address == LOCAL else f"the Ray cluster at {self.address}"
        return ClusterError(f"{where} was lost in the middle ({why}); start it again, and run this again")

    def get(self, reference: Any) -> Any:
        """Get a result, or raise what its task raised; its arrays are ours, and can be written to."""
        with translated(self):
            self._check_now_and_then()
            while True:
                try:
                    return _owned(self._ray.get(reference, timeout=_SECONDS_BETWEEN_LOOKS))
                except self._ray.exceptions.GetTimeoutError:
                    self.check_alive()

    def first_of(self, references: list[Any]) -> Any:
        """Wait until the task of one of these has ended; return that one."""
        with translated(self):
            self._check_now_and_then()
            while True:
                ended, _ = self._ray.wait(references, num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
                if ended:
                    return ended[0]
                self.check_alive()

    def put(self, value: Any) -> Any:
        """Put a value where every task can reach it."""
        with translated(self):
            self.check_alive()
            return self._ray.put(value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Inside a task, Ray is there already."""
        return Cluster, (self.address,)

    def _check_now_and_then(self) -> None:
        if time.monotonic() > self._looked + _SECONDS_OF_TRUST:
            self.check_alive()

    def _find_doors(self) -> list[tuple[str, int]]:
        """Addresses of the head, and of the part of Ray on this machine."""
        context = self._ray.get_runtime_context()
        here = context.get_node_id()
        nodes = [node for node in self._ray.nodes() if node["NodeID"] == here]
        host, _, port = context.gcs_address.rpartition(":")
        return [(host, int(port))] + [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]


def _owned(result: Any) -> Any:
    """Copy arrays out of the object store, where they are read-only; if it dies, so does who holds them."""
    if type(result) is tuple:
        return tuple(map(_owned, result))
    if isinstance(result, sparse.csr_matrix):
        return result.copy()
    return result.copy() if isinstance(result, np.ndarray) and not result.flags.writeable else result
