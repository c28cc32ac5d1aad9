"""The parent's side of the parsing process: start it, listen within limits, and end it in every case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, cast

from crossbyte.data.files.child import main
from crossbyte.data.files.contents import Contents
from crossbyte.data.files.frames import ChildEnded, ChildRefused, read_frames
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.opening import Opened
from crossbyte.errors import DataFileError

__all__ = ["parse_apart"]

# -I keeps the environment and the current folder out; libraries are where the parent found them.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {main.__module__} import {main.__name__}; {main.__name__}(sys.argv[2])"
)
# One thread each: the address space of a thread counts too, and pools reserve it by the gigabyte.
_QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_STARTING_SECONDS = 20  # a cold disk may take long to import libraries; nothing of the file is read meanwhile
_CPU_SIGNAL = getattr(signal, "SIGXCPU", None)


def parse_apart(opened: Opened, form: str, limits: Limits, *, headers_only: bool = False) -> Contents:
    """Parse a file in a process of its own.

    Parameters
    ----------
    opened : Opened
        The file becomes the child's standard input.
    form : {"mat", "parquet"}
    limits : Limits
    headers_only : bool, default False
        Only say what is there.

    Returns
    -------
    Contents
        With everything loaded, unless ``headers_only``.

    Raises
    ------
    DataFileError
        The file was refused, or its reader crashed or passed a limit.
    """
    request = _request(opened, form, limits, headers_only)
    os.lseek(opened.file.fileno(), 0, os.SEEK_SET)  # a seek of the buffered file may stay in its buffer
    with _running(opened, request) as process, _clock(process, request):
        return _listen(process, request, limits)


def _request(opened: Opened, form: str, limits: Limits, headers_only: bool) -> dict[str, Any]:
    return {
        "form": form,
        "headers_only": headers_only,
        "memory": limits.mat_memory if form == "mat" else limits.parquet_memory,
        # small files have no business taking long
        "seconds": min(limits.child_seconds, 3 + opened.size // 2**22),
        "unpacked": limits.unpacked(opened.size),
        "rows": limits.rows,
        "members": limits.archive_members if form == "mat" else limits.columns,
    }


@contextmanager
def _running(opened: Opened, request: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child; end and reap it whatever happens, Ctrl-C included."""
    path = json.dumps([entry for entry in sys.path if entry and isinstance(entry, str)])
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, path, json.dumps(request)],
        stdin=opened.file,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _QUIET,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _clock(process: subprocess.Popen[bytes], request: dict[str, Any]) -> Iterator[None]:
    """End the child after a time, for systems without a limit of CPU time and for a child that only waits."""
    clock = threading.Timer(_STARTING_SECONDS + request["seconds"], process.kill)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _listen(process: subprocess.Popen[bytes], request: dict[str, Any], limits: Limits) -> Contents:
    assert process.stdout is not None
    try:
        return read_frames(cast("BufferedReader", process.stdout), request["unpacked"], limits.text_bytes)
    except ChildRefused as refusal:
        if refusal.kind == "memory":
            raise DataFileError(_memory_message(request)) from None
        raise DataFileError(f"refused: {refusal.message}") from None
    except ChildEnded:
        process.stdout.close()
        raise DataFileError(_obituary(process.wait(), request)) from None


def _memory_message(request: dict[str, Any]) -> str:
    return (
        f"refused: the reader wanted more memory than {request['memory'] >> 20} MiB; "
        "it is damaged, or too large: save its arrays as .npy"
    )


def _obituary(code: int, request: dict[str, Any]) -> str:
    """Say how the child ended."""
    if _CPU_SIGNAL is not None and code == -_CPU_SIGNAL or code == -getattr(signal, "SIGKILL", 9):
        return (
            f"refused: the reader took longer than {request['seconds']} s; the file is damaged: write it anew"
        )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"refused: the reader crashed ({how}); the file is damaged: write it anew, or save arrays as .npy"
