"""Run a decoding process: start it, send it files, end it, and start another when it dies.

The messages about pictures that cannot be read are here too: what was expected, what came, what to do.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import cast

from crossbyte.data.images.formats import PictureLimits
from crossbyte.data.images.protocol import READY, DecodedImage, read_answer, read_exactly, send_request
from crossbyte.data.sandbox import ChildEnded, ChildRefused
from crossbyte.errors import InvalidInput, PictureError


def bytes_message(n_bytes: int, limits: PictureLimits) -> str:
    """Make the message for a file that is too large."""
    return (
        f"expected a picture of at most {_format_size(limits.max_bytes)}, got {_format_size(n_bytes)}; "
        "save it smaller, or as JPEG"
    )


def refusal_message(kind: str, reason: str, limits: PictureLimits) -> str:
    """Make the message for a refusal of the child: ``pixels``, ``memory``, or ``damaged`` and the reason."""
    if kind == "pixels":
        return (
            f"expected at most {limits.max_pixels / 1e6:g} million pixels, the picture declares {reason}; "
            "save a smaller copy"
        )
    if kind == "memory":
        return (
            f"expected a picture decoded within {_format_size(limits.memory)} of memory, "
            "this one wants more; save a smaller copy"
        )
    if any(word in reason.lower() for word in ("truncated", "eof", "end of file")):
        return f"the picture ends too early ({reason}); copy or download it again"
    return f"the picture is damaged ({reason}); open and save it in a picture editor, or download it again"


def slow_message(limits: PictureLimits) -> str:
    """Make the message for a decoding that took too long."""
    return (
        f"expected a picture that is decoded in {limits.seconds:g} s, this one took longer and was given up; "
        "open and save it in a picture editor"
    )


def crash_message(code: int) -> str:
    """Make the message for a decoder that crashed twice."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the picture crashed its decoder ({how}); open and save it in a picture editor"


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB" if n_bytes >= 10 * 2**20 else f"{n_bytes:,} bytes"


# -I keeps the environment and the current folder out; libraries are where the parent found them.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from crossbyte.data.images.decoder_child import main; main(sys.argv[2])"
)
# One thread and one arena: the address space of each would count against the limit.
_CHILD_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}
_STARTING_SECONDS = 30  # a cold disk may take long to import libraries
_PICTURES_PER_CHILD = 1000  # a new process drops leaks and memory that was overwritten unnoticed
_WALL_FACTOR = 3
_TIMEOUT_SIGNALS = tuple(-getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name))


class _ChildFailed(Exception):
    """The child died or had to be ended; the message is for the caller."""


class _ChildSlow(Exception):
    """The picture took longer than allowed."""


class Decoder:
    """One child process at a time, started when needed. One thread at a time may decode; any may `stop`."""

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()  # between a start and a stop
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._quota = 0

    def decode(self, data: bytes) -> DecodedImage:
        """Decode the bytes of one file.

        A child that dies may have been damaged by an earlier file: a new one gets a second try.

        Raises
        ------
        PictureError
        """
        try:
            try:
                return self._attempt(data)
            except _ChildFailed:
                return self._attempt(data)
        except (_ChildFailed, _ChildSlow) as failure:
            raise PictureError(str(failure)) from None

    def stop(self) -> None:
        """Kill the child and start no other; a decoding that is under way fails at once."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def end(self) -> None:
        """Kill and reap the child; only for the thread that may decode."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _attempt(self, data: bytes) -> DecodedImage:
        process = self._ensure_child()
        try:
            with _kill_after(process, _WALL_FACTOR * self._limits.seconds) as timed_out:
                send_request(cast("FileIO", process.stdin), data)
                return read_answer(cast("FileIO", process.stdout), self._limits)
        except ChildRefused as refusal:
            raise self._handle_refusal(refusal) from None
        except (ChildEnded, OSError):
            raise self._explain_death(timed_out) from None
        except BaseException:  # Ctrl-C: the rest of this answer must never be taken for the next one
            self.end()
            raise

    def _handle_refusal(self, refusal: ChildRefused) -> Exception:
        message = refusal_message(refusal.kind, refusal.message, self._limits)
        if refusal.kind != "memory":
            return PictureError(message)
        self.end()  # earlier pictures may have used the memory: a new process gets a second try
        return _ChildFailed(message)

    def _explain_death(self, timed_out: threading.Event) -> Exception:
        process = self._process
        assert process is not None
        self.end()
        if self._stopped:
            return InvalidInput("the PictureReader was closed while it read this picture")
        if timed_out.is_set() or process.returncode in _TIMEOUT_SIGNALS:
            return _ChildSlow(slow_message(self._limits))
        return _ChildFailed(crash_message(process.returncode))

    def _ensure_child(self) -> subprocess.Popen[bytes]:
        """Return a living child with pictures left to its quota; start one if need be."""
        if self._process is None or self._process.poll() is not None or self._quota == 0:
            self.end()
            self._start()
        self._quota -= 1
        assert self._process is not None
        return self._process

    def _start(self) -> None:
        with self._lock:
            if self._stopped:
                raise InvalidInput("expected an open PictureReader, this one was closed; make another")
            try:
                self._process = process = _spawn_child(self._limits)
            except OSError as error:  # no process or no memory left
                raise _make_start_error(error.strerror or str(error)) from None
        self._quota = _PICTURES_PER_CHILD
        try:
            with _kill_after(process, _STARTING_SECONDS):
                if read_exactly(cast("FileIO", process.stdout), len(READY)) != READY:
                    raise ChildEnded
        except ChildEnded:
            self.end()
            raise _make_start_error(f"exit code {process.returncode}") from None
        except BaseException:
            self.end()
            raise


def _make_start_error(why: str) -> _ChildFailed:
    return _ChildFailed(
        f"the process that decodes pictures did not start ({why}); "
        "free some memory, or install crossbyte again"
    )


def _spawn_child(limits: PictureLimits) -> subprocess.Popen[bytes]:
    path = json.dumps([entry for entry in sys.path if entry and isinstance(entry, str)])
    # Reached only where some picture passes its own limit.
    life_seconds = math.ceil(_PICTURES_PER_CHILD * limits.seconds)
    request = json.dumps({"limits": limits._asdict(), "life_seconds": life_seconds})
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, path, request],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _CHILD_ENVIRONMENT,
        start_new_session=True,  # Ctrl-C in a terminal goes to the parent alone
    )


@contextmanager
def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kill the child after a time; the event says whether that happened."""
    timed_out = threading.Event()

    def kill() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()
