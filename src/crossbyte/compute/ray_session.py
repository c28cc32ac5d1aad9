"""Connect to a Ray cluster, watch over it, and raise its errors as errors of ours."""

from __future__ import annotations

import logging
import os
import re
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

from crossbyte.errors import ClusterError, CrossbyteError, StorageFull, TaskDied
from crossbyte.extras import import_extra

LOCAL = "local"
RETRIES = 20  # of a task whose worker or machine is lost; errors of ours are not tried again

_SECONDS_TO_PROBE = 5.0  # a port that is there answers in milliseconds
_SECONDS_TO_CONNECT = 60.0
_SECONDS_BETWEEN_CHECKS = 5.0
_SECONDS_CHECKED = 0.1
_NO_LINGER = struct.pack("ii", 1, 0)  # probes that linger after they are closed would use up the local ports
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What a warning or an error of Ray says: "[2026-11-17 03:12:42,527 W 15 15] gcs_client.cc:210: text".
_WARNING = re.compile(r"^\[[^\]]* [WEC] \d+ \d+\] .*?\.cc:\d+: ([A-Za-z].*)$", re.MULTILINE)
_REFUSED = re.compile(r"unauthenticated|authentication token", re.IGNORECASE)
# Ray itself waits for a wrong address for minutes, and cannot be interrupted meanwhile; another process can.
_TRIAL_PROGRAM = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
except BaseException as error:
    print(" ".join(str(error).split())[:300] or type(error).__name__)
    sys.exit(1)
"""


class RayCluster:
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
        self._ports: list[tuple[str, int]] = []
        self._last_check = 0.0

    def __enter__(self) -> RayCluster:
        connection.join(self.address, self._n_cpus)
        try:
            self._ports = self._find_ports()
        except BaseException:
            connection.leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave Ray as it was found."""
        connection.leave()

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

    def check_alive(self) -> None:
        """Probe the ports at which the cluster was when this process connected.

        Raises
        ------
        ClusterError
            Nobody answers any more. Ray itself would end this process: at the next object if its part on this
            machine is gone, and after a minute if its head is.
        """
        self._last_check = time.monotonic()
        if not self._ray.is_initialized():  # Ray would quietly start another one
            raise self.lost_error("this process is no longer connected to it")
        for address in self._ports:
            if (trouble := _probe_port(*address)) and (trouble := _probe_port(*address)):
                raise self.lost_error(trouble)

    def lost_error(self, why: str) -> ClusterError:
        """Make the error that says that the cluster went away."""
        where = "the Ray started here" if self.address == LOCAL else f"the Ray cluster at {self.address}"
        return ClusterError(f"{where} was lost in the middle ({why}); start it again, and run this again")

    def get(self, reference: Any) -> Any:
        """Get a result, or raise what its task raised; its arrays are copies, and can be written to."""
        with translate_ray_errors(self):
            self._check_if_due()
            while True:
                try:
                    return _copy_arrays(self._ray.get(reference, timeout=_SECONDS_BETWEEN_CHECKS))
                except self._ray.exceptions.GetTimeoutError:
                    self.check_alive()

    def wait_for_first(self, references: list[Any]) -> Any:
        """Wait until the task of one of the references has ended; return that reference."""
        with translate_ray_errors(self):
            self._check_if_due()
            while True:
                ended, _ = self._ray.wait(references, num_returns=1, timeout=_SECONDS_BETWEEN_CHECKS)
                if ended:
                    return ended[0]
                self.check_alive()

    def put(self, value: Any) -> Any:
        """Put a value where every task can reach it."""
        with translate_ray_errors(self):
            self.check_alive()
            return self._ray.put(value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Inside a task, Ray is there already."""
        return RayCluster, (self.address,)

    def _check_if_due(self) -> None:
        if time.monotonic() > self._last_check + _SECONDS_CHECKED:
            self.check_alive()

    def _find_ports(self) -> list[tuple[str, int]]:
        """Find the hosts and ports of the head, and of the part of Ray on this machine."""
        context = self._ray.get_runtime_context()
        here = context.get_node_id()
        nodes = [node for node in self._ray.nodes() if node["NodeID"] == here]
        host, _, port = context.gcs_address.rpartition(":")
        return [(host, int(port))] + [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in nodes]


def _copy_arrays(result: Any) -> Any:
    """Copy arrays out of the object store, where they are read-only and die with it."""
    if type(result) is tuple:
        return tuple(map(_copy_arrays, result))
    if isinstance(result, sparse.csr_matrix):
        return result.copy()
    return result.copy() if isinstance(result, np.ndarray) and not result.flags.writeable else result


# Connecting


class _Connection:
    """The one connection that a process has to Ray: made for the first user here, and closed after the last.

    A connection that was there before is used, and left open.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users, self._is_ours, self._address = 0, False, ""
        self._termination = _Termination()

    def join(self, address: str, n_cpus: int | None) -> None:
        """Connect, or check that this process is connected to the address."""
        ray = ray_module()
        with self._lock:
            if ray.is_initialized():
                self._check_same(address, ray.get_runtime_context().gcs_address)
            else:
                self._termination.restore()
                self._connect(ray, address, n_cpus)
            self._users += 1

    def leave(self) -> None:
        """Close the connection if it was made here, and nobody here uses it any more."""
        with self._lock:
            self._users -= 1
            if self._users or not self._is_ours:
                return
            self._is_ours = False
            ray_module().shutdown()
            self._termination.restore()

    def _connect(self, ray: Any, address: str, n_cpus: int | None) -> None:
        started: dict[str, Any] = {"num_cpus": n_cpus, "include_dashboard": False}
        if address != LOCAL:
            _probe_cluster(address)
            started = {}
        try:
            with self._termination.watch(), _environment(), _mute_ray():
                ray.init(address=address, **started, **_QUIET)
        except Exception as error:
            self._termination.restore()
            raise _no_cluster_error(address, str(error)) from error
        self._is_ours, self._address = True, address

    def _check_same(self, address: str, known: str) -> None:
        """Refuse to work elsewhere than at the address."""
        if address not in (LOCAL, "auto", known) and not (self._is_ours and address == self._address):
            raise ClusterError(
                f"cluster: expected to connect to {address}, but this process is connected to {known}; "
                f"give cluster={known!r}, or call ray.shutdown() first"
            )


class _Termination:
    """The handler of SIGTERM, where Ray puts one of its own and leaves it.

    Only the main thread may change it. If the last user leaves in another thread, Ray's handler stays until
    the main thread connects or leaves again.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._of_ray: Any = None

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Remember the handler that was there, and the one that Ray puts there meanwhile."""
        if not _is_main_thread():  # where Ray puts none
            yield
            return
        self._before = signal.getsignal(signal.SIGTERM)
        try:
            yield
        finally:
            self._of_ray = signal.getsignal(signal.SIGTERM)

    def restore(self) -> None:
        """Put back the handler that was there, unless somebody else has put another one there since."""
        if self._before is None or not _is_main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is self._of_ray:
            signal.signal(signal.SIGTERM, self._before)
        self._before = self._of_ray = None


connection = _Connection()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _probe_cluster(address: str) -> None:
    """Refuse an address where Ray is not, in seconds."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdecimal() and (trouble := _probe_port(host, int(port))):
        raise _no_cluster_error(address, trouble)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRIAL_PROGRAM, address],
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=_SECONDS_TO_CONNECT,
        )
    except subprocess.TimeoutExpired as error:
        raise _no_cluster_error(address, f"no answer in {_SECONDS_TO_CONNECT:.0f} seconds") from error
    if tried.returncode:
        said = tried.stdout.strip() or f"exit code {tried.returncode}"
        raise _no_cluster_error(
            address, ": ".join([said, *_WARNING.findall(_strip_terminal_codes(tried.stderr))[-1:]])
        )


def _probe_port(host: str, port: int) -> str:
    """Return why a port does not answer; an empty string where it does."""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS_TO_PROBE) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            return ""
    except (OSError, OverflowError) as error:  # a port above 65535
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"


def _no_cluster_error(address: str, why: str) -> ClusterError:
    said = " ".join(_strip_terminal_codes(why).split())[:300]
    if address == LOCAL:
        return ClusterError(
            f"cluster: Ray could not be started here ({said}); look at its logs, or free memory"
        )
    if _REFUSED.search(said):
        return ClusterError(
            f"cluster: the Ray cluster at {address} did not let us in ({said}); set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to its token"
        )
    return ClusterError(
        f"cluster: expected a Ray cluster at {address}, got none ({said}); start one with "
        "`ray start --head`, join this machine to it, or give 'local'"
    )


def ray_module() -> Any:
    """Import Ray.

    Raises
    ------
    MissingExtra
        It is not installed.
    """
    with _environment():
        return import_extra("ray", "a cluster needs")


@contextmanager
def _environment() -> Iterator[None]:
    """Set the variables that Ray reads when it is imported and started, unless the user has set them."""
    missing = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            with suppress(KeyError):
                del os.environ[name]


@contextmanager
def _mute_ray() -> Iterator[None]:
    """Silence Ray's notes to the user, who has called crossbyte."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


# Errors of Ray as errors of ours


@contextmanager
def translate_ray_errors(cluster: RayCluster) -> Iterator[None]:
    """Raise the error of a task as itself, and every error of Ray as one of ours."""
    kinds = ray_module().exceptions
    try:
        yield
    except (kinds.RayError, ConnectionError) as error:
        cause = _find_cause(error)
        if cause is not error and isinstance(cause, Exception) and not isinstance(cause, kinds.RayError):
            raise cause from None
        raise _translate_error(cause, cluster) from error


def _find_cause(error: BaseException) -> BaseException:
    """Find what a task raised, or a task whose result it needed."""
    while isinstance(error, ray_module().exceptions.RayTaskError):
        error = error.cause
    return error


def _translate_error(error: BaseException, cluster: RayCluster) -> CrossbyteError:
    kinds = ray_module().exceptions
    if isinstance(error, kinds.OutOfDiskError | kinds.ObjectStoreFullError):
        return StorageFull(
            "Ray's object store and the disk that it spills to are full; nothing was changed; make room, or "
            "start Ray with another --object-spilling-directory"
        )
    if isinstance(error, kinds.WorkerCrashedError | kinds.OutOfMemoryError):
        return _task_died_error(error)
    unread = getattr(error, "client_exc", None)
    if isinstance(unread, ImportError | AttributeError):  # no such module, or an older one
        return ClusterError(
            f"cluster: a worker could not load what it was sent ({_first_line(unread)}); install the same "
            "crossbyte, and what it needs, on every machine"
        )
    return cluster.lost_error(_first_line(error))


def _task_died_error(error: BaseException) -> TaskDied:
    if isinstance(error, ray_module().exceptions.OutOfMemoryError):
        what = "Ray ended the process of a task, because its machine ran out of memory"
    else:
        what = f"the process of a task died {RETRIES + 1} times, perhaps for want of memory"
    return TaskDied(
        f"{what} ({_first_line(error)}); let fewer tasks run at a time, or use machines with more memory"
    )


def _first_line(error: BaseException) -> str:
    lines = _strip_terminal_codes(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _strip_terminal_codes(text: str) -> str:
    """Remove the codes that colour text in a terminal."""
    return _TERMINAL_CODE.sub("", text)
