"""Start the children that parse MATLAB files and Parquet from one that has their libraries at hand.

Importing SciPy or PyArrow takes a hundred times longer than parsing a small file. So one process of each form
imports them as a child does, and then forks for every file: its forks run the same program under the same
limits, and may crash as any child. Only for Linux.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from crossbyte.data import sandbox
from crossbyte.data.safe_open import OpenFile

_LIBRARIES = {
    "mat": ("scipy.io", "scipy.sparse"),
    "parquet": ("pyarrow", "pyarrow.compute", "pyarrow.parquet"),
}
"""What parsers import when they are called, in a process that only forks and starts no threads."""
_ENDED = struct.Struct("<id")  # exit code, seconds of CPU
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from crash.warm_children import serve; serve(sys.argv[2], int(sys.argv[3]))"
)

used_seconds = 0.0
"""CPU time of all children that have ended."""


def serve(form: str, descriptor: int) -> None:
    """Fork for each request; it comes with the file to be parsed and the pipe for the answer."""
    sandbox._import_parser(form)
    for library in _LIBRARIES[form]:
        import_module(library)
    with socket.socket(fileno=descriptor) as requests:
        while True:
            request, descriptors, _, _ = socket.recv_fds(requests, 2**16, 2)
            if not request:  # nobody can ask any more
                return
            file, answer = descriptors
            child = os.fork()
            if child == 0:
                _run(request.decode(), file, answer)
            os.close(file)
            os.close(answer)
            handle = os.pidfd_open(child)
            socket.send_fds(requests, [b"."], [handle])
            os.close(handle)
            _, status, used = os.wait4(child, 0)
            requests.send(_ENDED.pack(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))


def _run(request: str, file: int, answer: int) -> None:
    code = 1
    try:
        os.dup2(file, 0)
        os.dup2(answer, 1)
        os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))
        sandbox.run_child(request)
        code = 0
    finally:
        os._exit(code)


class WarmChild:
    """A fork that parses one file; what the sandbox needs of a ``Popen``."""

    def __init__(self, requests: socket.socket, request: dict[str, Any], file: int) -> None:
        answers, answer = os.pipe()
        socket.send_fds(requests, [json.dumps(request).encode()], [file, answer])
        os.close(answer)
        self.stdout = os.fdopen(answers, "rb")
        self._requests, self._code = requests, None
        _, (self._handle,), _, _ = socket.recv_fds(requests, 1, 1)

    def kill(self) -> None:
        """End it; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> int:
        """Give its exit code."""
        global used_seconds
        if self._code is None:
            self._code, seconds = _ENDED.unpack(self._requests.recv(_ENDED.size))
            used_seconds += seconds
        return self._code

    def close(self) -> None:
        """Give back what it took of this process."""
        self.stdout.close()
        os.close(self._handle)


@contextmanager
def start_child(opened: OpenFile, request: dict[str, Any]) -> Iterator[WarmChild]:
    """Take the place of the sandbox's function of this name."""
    child = WarmChild(requests_of(request["form"]), request, opened.file.fileno())
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.close()


_servers: dict[str, tuple[subprocess.Popen[bytes], socket.socket]] = {}


def stop() -> None:
    """End the processes that fork; they also end with this one."""
    while _servers:
        _, (server, requests) = _servers.popitem()
        requests.close()
        server.wait()


def requests_of(form: str) -> socket.socket:
    """Give where to ask for forks of a form."""
    if form not in _servers:
        _servers[form] = _start_server(form)
    return _servers[form][1]


def _start_server(form: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = json.dumps([entry for entry in sys.path if entry])
    command = [sys.executable, "-I", "-c", _PROGRAM, path, form, str(there.fileno())]
    server = subprocess.Popen(
        command,
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | sandbox._CHILD_ENVIRONMENT,
    )
    there.close()
    return server, here
