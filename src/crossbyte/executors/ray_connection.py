"""The connection of this process to Ray: tried out, made, shared, and closed."""

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from crossbyte.errors import ClusterError
from crossbyte.extras import require

__all__ = ["LOCAL", "knock", "ours", "plain", "ray_module"]

LOCAL = "local"

_SECONDS_TO_KNOCK = 5.0  # a port that is there answers in milliseconds
_SECONDS_TO_CONNECT = 60.0
_CLOSED_AT_ONCE = struct.pack("ii", 1, 0)  # a port that lingers after each knock would soon be the last one
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What a warning or an error of Ray says: "[2026-11-17 03:12:42,527 W 15 15] gcs_client.cc:210: text".
_WARNING = re.compile(r"^\[[^\]]* [WEC] \d+ \d+\] .*?\.cc:\d+: ([A-Za-z].*)$", re.MULTILINE)
_REFUSED = re.compile(r"unauthenticated|authentication token", re.IGNORECASE)
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


def plain(text: str) -> str:
    """Text without the codes that colour it in a terminal."""
    return _TERMINAL_CODE.sub("", text)


def knock(host: str, port: int) -> str:
    """Say what is wrong with a door, or nothing."""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS_TO_KNOCK) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSED_AT_ONCE)
            return ""
    except (OSError, OverflowError) as error:  # a port above 65535
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"


class _Termination:
    """What SIGTERM does, where Ray puts a handler of its own and leaves it.

    Only the main thread may change that. If the last of us leaves in another thread, Ray's handler stays
    until the main thread comes by.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._of_ray: Any = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remember what was there, while Ray puts its own there."""
        if not _is_main_thread():  # where Ray puts none
            yield
            return
        self._before = signal.getsignal(signal.SIGTERM)
        try:
            yield
        finally:
            self._of_ray = signal.getsignal(signal.SIGTERM)

    def restore(self) -> None:
        """Put back what was there, unless somebody else has put something there since."""
        if self._before is None or not _is_main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is self._of_ray:
            signal.signal(signal.SIGTERM, self._before)
        self._before = self._of_ray = None


class _Connection:
    """The one connection that a process has to Ray: made for the first of us, and closed after the last.

    One that was there before is used, and left.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users, self._is_made, self._address = 0, False, ""
        self._termination = _Termination()

    def join(self, address: str, n_cpus: int | None) -> None:
        """Connect, or check that we are connected to what is asked for."""
        ray = ray_module()
        with self._lock:
            if ray.is_initialized():
                self._check_same(address, ray.get_runtime_context().gcs_address)
            else:
                self._termination.restore()
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
            self._termination.restore()

    def _connect(self, ray: Any, address: str, n_cpus: int | None) -> None:
        started: dict[str, Any] = {"num_cpus": n_cpus, "include_dashboard": False}
        if address != LOCAL:
            _try_out(address)
            started = {}
        try:
            with self._termination.watched(), _environment(), _silent():
                ray.init(address=address, **started, **_QUIET)
        except Exception as error:
            self._termination.restore()
            raise _no_cluster(address, str(error)) from error
        self._is_made, self._address = True, address

    def _check_same(self, address: str, known: str) -> None:
        """Refuse to work elsewhere than was asked."""
        if address not in (LOCAL, "auto", known) and not (self._is_made and address == self._address):
            raise ClusterError(
                f"cluster: expected to connect to {address}, but this process is connected to {known}; "
                f"give cluster={known!r}, or call ray.shutdown() first"
            )


ours = _Connection()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _no_cluster(address: str, why: str) -> ClusterError:
    said = " ".join(plain(why).split())[:300]
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


def _try_out(address: str) -> None:
    """Refuse an address where Ray is not, in seconds."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdecimal() and (trouble := knock(host, int(port))):
        raise _no_cluster(address, trouble)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRIAL, address],
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=_SECONDS_TO_CONNECT,
        )
    except subprocess.TimeoutExpired as error:
        raise _no_cluster(address, f"no answer in {_SECONDS_TO_CONNECT:.0f} seconds") from error
    if tried.returncode:
        said = tried.stdout.strip() or f"exit code {tried.returncode}"
        raise _no_cluster(address, ": ".join([said, *_WARNING.findall(plain(tried.stderr))[-1:]]))


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
