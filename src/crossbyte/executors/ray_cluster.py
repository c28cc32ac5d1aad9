"""A Ray cluster: found or started, watched while we wait for it, and left as it was found."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from scipy import sparse

from crossbyte.errors import ClusterError, StorageFull
from crossbyte.extras import require

__all__ = ["LOCAL", "Cluster", "kept_open", "ray_module", "translated"]

LOCAL = "local"

_SECONDS_TO_KNOCK = 5.0  # a port that is there answers in milliseconds
_SECONDS_TO_CONNECT = 60.0
_SECONDS_BETWEEN_LOOKS = 5.0
_SECONDS_OF_TRUST = 0.1
_CLOSED_AT_ONCE = struct.pack("ii", 1, 0)  # a port that lingers after each knock would soon be the last one
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Ray itself waits for a wrong address for minutes, and cannot be interrupted meanwhile; another process can.
_TRIAL = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
except BaseException as error:
    print(" ".join(str(error).split())[:300] or type(error).__name__)
    sys.exit(1)
"""


def ray_module() -> Any:
    """Import Ray.

    Raises
    ------
    MissingExtra
        It is not installed.
    """
    with _environment():
        return require("ray", "a cluster needs")


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
        _ours.join(self.address, self._n_cpus)
        try:
            self._doors = self._find_doors()
        except BaseException:
            _ours.leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave Ray as it was found."""
        _ours.leave()

    @property
    def n_cpus(self) -> int:
        """Tasks that run at the same time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

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
            if (trouble := _knock(*door)) and (trouble := _knock(*door)):
                raise self.lost(trouble)

    def lost(self, why: str) -> ClusterError:
        """Say that the cluster went away."""
        where = "the Ray started here" if self.address == LOCAL else f"the Ray cluster at {self.address}"
        return ClusterError(f"{where} was lost in the middle ({why}); start it again, and run this again")

    def get(self, reference: Any) -> Any:
        """Get a result, or raise what its task raised; its arrays are ours, and can be written to."""
        with translated(self):
            if time.monotonic() > self._looked + _SECONDS_OF_TRUST:
                self.check_alive()
            while True:
                try:
                    return _owned(self._ray.get(reference, timeout=_SECONDS_BETWEEN_LOOKS))
                except self._ray.exceptions.GetTimeoutError:
                    self.check_alive()

    def put(self, value: Any) -> Any:
        """Put a value where every task can reach it."""
        with translated(self):
            self.check_alive()
            return self._ray.put(value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Inside a task, Ray is there already."""
        return Cluster, (self.address,)

    def _find_doors(self) -> list[tuple[str, int]]:
        """Addresses of the head, and of the part of Ray on this machine."""
        context = self._ray.get_runtime_context()
        here = context.get_node_id()
        nodes = [node for node in self._ray.nodes() if node["NodeID"] == here]
        host, _, port = context.gcs_address.rpartition(":")
        return [(host, int(port))] + [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]


@contextmanager
def kept_open(cluster: str | None, n_jobs: int | None = None) -> Iterator[None]:
    """Stay connected to a cluster through several calls that name it; without one, do nothing."""
    if not isinstance(cluster, str) or not cluster:  # what is none at all, the calls refuse
        yield
        return
    with Cluster(cluster, None if n_jobs is None or n_jobs < 0 else max(1, n_jobs)):
        yield


class _Connection:
    """The one connection that a process has to Ray: made for the first of us, and closed after the last.

    One that was there before is used, and left.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users, self._is_made, self._address = 0, False, ""
        self._terminating: Any = None

    def join(self, address: str, n_cpus: int | None) -> None:
        """Connect, or check that we are connected to what is asked for."""
        ray = ray_module()
        with self._lock:
            if ray.is_initialized():
                self._check_same(address, ray.get_runtime_context().gcs_address)
            else:
                self._connect(ray, address, n_cpus)
            self._users += 1

    def leave(self) -> None:
        """Close the connection if it was made for us, and nobody else of us is there."""
        with self._lock:
            self._users -= 1
            if self._users or not self._is_made:
                return
            self._is_made = False
            ray_module().shutdown()
            if self._terminating is not None:
                signal.signal(signal.SIGTERM, self._terminating)

    def _connect(self, ray: Any, address: str, n_cpus: int | None) -> None:
        started: dict[str, Any] = {"num_cpus": n_cpus, "include_dashboard": False}
        if address != LOCAL:
            _try_out(address)
            started = {}
        is_main = threading.current_thread() is threading.main_thread()
        self._terminating = signal.getsignal(signal.SIGTERM) if is_main else None  # Ray puts its own there
        try:
            with _environment(), _silent():
                ray.init(address=address, **started, **_QUIET)
        except Exception as error:
            raise _no_cluster(address, str(error)) from error
        self._is_made, self._address = True, address

    def _check_same(self, address: str, known: str) -> None:
        """Refuse to work elsewhere than was asked."""
        if address not in (LOCAL, "auto", known) and not (self._is_made and address == self._address):
            raise ClusterError(
                f"cluster: expected to connect to {address}, but this process is connected to {known}; "
                f"give cluster={known!r}, or call ray.shutdown() first"
            )


_ours = _Connection()


@contextmanager
def translated(cluster: Cluster) -> Iterator[None]:
    """Raise the error of a task as itself, and every error of Ray as one of ours."""
    kinds = ray_module().exceptions
    try:
        yield
    except (kinds.OutOfDiskError, kinds.ObjectStoreFullError) as error:
        raise StorageFull(
            "Ray's object store and the disk that it spills to are full; nothing was changed; make room, or "
            "start Ray with another --object-spilling-directory"
        ) from error
    except kinds.RayTaskError as error:
        if isinstance(error.cause, Exception) and not isinstance(error.cause, kinds.RayError):
            raise error.cause from None
        raise cluster.lost(_first_line(error)) from error
    except (kinds.RayError, ConnectionError, BrokenPipeError) as error:
        raise cluster.lost(_first_line(error)) from error


def _owned(result: Any) -> Any:
    """Copy arrays out of the object store, where they are read-only; if it dies, so does who holds them."""
    if type(result) is tuple:
        return tuple(map(_owned, result))
    if isinstance(result, sparse.csr_matrix):
        return result.copy()
    return result.copy() if isinstance(result, np.ndarray) and not result.flags.writeable else result


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _no_cluster(address: str, why: str) -> ClusterError:
    said = " ".join(why.split())[:300]
    if address == LOCAL:
        return ClusterError(
            f"cluster: Ray could not be started here ({said}); look at its logs, or free memory"
        )
    return ClusterError(
        f"cluster: expected a Ray cluster at {address}, got none ({said}); start one with "
        "`ray start --head`, join this machine to it, or give 'local'"
    )


def _try_out(address: str) -> None:
    """Refuse an address where Ray is not, in seconds."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdecimal() and (trouble := _knock(host, int(port))):
        raise _no_cluster(address, trouble)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRIAL, address],
            env=os.environ | _ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS_TO_CONNECT,
        )
    except subprocess.TimeoutExpired as error:
        raise _no_cluster(address, f"no answer in {_SECONDS_TO_CONNECT:.0f} seconds") from error
    if tried.returncode:
        raise _no_cluster(address, tried.stdout or f"exit code {tried.returncode}")


def _knock(host: str, port: int) -> str:
    """Say what is wrong with a door, or nothing."""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS_TO_KNOCK) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSED_AT_ONCE)
            return ""
    except (OSError, OverflowError) as error:  # a port above 65535
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"


@contextmanager
def _environment() -> Iterator[None]:
    """Ray reads these when it is imported and started; no other value of the user's is touched."""
    missing = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            with suppress(KeyError):
                del os.environ[name]


@contextmanager
def _silent() -> Iterator[None]:
    """Without Ray's notes to the user, who has asked us."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
