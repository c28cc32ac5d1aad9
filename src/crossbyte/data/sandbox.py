"""Parse files in a child process, because their readers may crash, or fill the memory, on damaged files.

The child answers in records, each with a tag and its length:

====  ===========================================================================================
tag   body
====  ===========================================================================================
D     JSON: the entries of the file, ``[[name, dtype, shape, problem], …]``; always first
A     2 bytes: length of the name; the name in UTF-8; the array in ``.npy`` form
V     JSON: ``[name, [value, …]]``, some more rows of a column that is no array
E     JSON: ``[kind, message]``: the file was refused (``refused``) or memory ran out (``memory``)
Z     nothing: the end of the answer
====  ===========================================================================================
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.contents import Contents, Entry
from crossbyte.data.npz import Stream, fill_buffer, read_array
from crossbyte.data.safe_open import Limits, OpenFile
from crossbyte.errors import DataFileError

_RECORD = struct.Struct("<cQ")
_NAME = struct.Struct("<H")
_MAX_JSON = 2**28


class ChildEnded(Exception):
    """The child ended before its answer was complete."""


class ChildRefused(Exception):
    """The child refused the file, with a kind and a message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind, self.message = kind, message


def send_record(out: BinaryIO, tag: bytes, body: bytes = b"") -> None:
    """Write one record."""
    out.write(_RECORD.pack(tag, len(body)))
    out.write(body)


def send_json(out: BinaryIO, tag: bytes, value: Any) -> None:
    """Write one record of JSON."""
    send_record(out, tag, json.dumps(value, allow_nan=False).encode())


def send_array(out: BinaryIO, name: str, values: NDArray[Any]) -> None:
    """Write one array, of at most two dimensions, without a copy where it is contiguous."""
    fortran = values.ndim == 2 and values.flags.f_contiguous and not values.flags.c_contiguous
    stored = np.ascontiguousarray(values.T if fortran else values).reshape(-1)
    head, title = io.BytesIO(), name.encode()
    described = {"descr": values.dtype.str, "fortran_order": fortran, "shape": values.shape}
    np.lib.format.write_array_header_1_0(head, described)
    out.write(_RECORD.pack(b"A", _NAME.size + len(title) + head.tell() + stored.nbytes))
    out.write(_NAME.pack(len(title)) + title + head.getvalue())
    out.write(stored.view(np.uint8).data)


def read_frames(pipe: Stream, max_bytes: int, max_text: int) -> Contents:
    """Read all records, trusting none of them.

    Parameters
    ----------
    pipe : Stream
    max_bytes : int
        Limit of all records together.
    max_text : int
        Limit of those in JSON, whose values take many times their bytes in memory.

    Raises
    ------
    ChildEnded, ChildRefused, DataFileError
    """
    entries: dict[str, Entry] = {}
    loaded: dict[str, NDArray[Any] | list[Any]] = {}
    left, text_left = max_bytes, max_text
    while True:
        tag, length = _RECORD.unpack(_read_exactly(pipe, _RECORD.size))
        left -= length
        text_left -= 0 if tag == b"A" else length
        if left < 0 or text_left < 0:
            raise DataFileError(
                f"expected at most {max_bytes} bytes when unpacked, and {max_text} of text, "
                "it gives more; split the file, or save large arrays as .npy"
            )
        if tag == b"Z":
            return Contents(entries, loaded.__getitem__)
        _receive_record(pipe, tag, length, entries, loaded)


def _receive_record(
    pipe: Stream, tag: bytes, length: int, entries: dict[str, Entry], loaded: dict[str, Any]
) -> None:
    if tag == b"A":
        name, values = _read_named_array(pipe, length)
        loaded[name] = values
    elif tag == b"V":
        name, rows = _read_json(pipe, length)
        loaded.setdefault(str(name), []).extend(rows)
    elif tag == b"D":
        entries.update((name, _parse_entry(name, *rest)) for name, *rest in _read_json(pipe, length))
    elif tag == b"E":
        raise ChildRefused(*map(str, _read_json(pipe, length)))
    else:
        raise ChildEnded


def _parse_entry(name: Any, dtype: Any, shape: Any, problem: Any) -> Entry:
    return Entry(str(name), str(dtype), None if shape is None else tuple(map(int, shape)), str(problem))


def _read_named_array(pipe: Stream, length: int) -> tuple[str, NDArray[Any]]:
    (n_name,) = _NAME.unpack(_read_exactly(pipe, _NAME.size))
    name = _read_exactly(pipe, n_name).decode()
    size = length - _NAME.size - n_name
    return name, read_array(pipe, size, size)


def _read_json(pipe: Stream, length: int) -> Any:
    if length > _MAX_JSON:
        raise ChildEnded
    return json.loads(_read_exactly(pipe, length))


def _read_exactly(pipe: Stream, n_bytes: int) -> bytes:
    taken = bytearray(n_bytes)
    try:
        fill_buffer(pipe, memoryview(taken))
    except DataFileError as error:
        raise ChildEnded from error
    return bytes(taken)


_Parser = Callable[[BinaryIO, dict[str, Any], BinaryIO], None]


def run_child(request_text: str) -> None:
    """Parse standard input as the request says, and answer on what was standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    request = json.loads(request_text)
    # Imports first, before the limits: libraries are trusted, and take address space and time.
    parser = _import_parser(request["form"])
    out = _reserve_stdout()
    limit_resources(int(request["memory"]), int(request["seconds"]))
    with os.fdopen(0, "rb", closefd=False) as file, out:
        _send_answer(parser, file, request, out)


def limit_resources(memory: int, seconds: int) -> None:
    """Cap address space and further CPU time and forbid writing files, as far as the system can."""
    try:
        import resource
    except ImportError:  # Windows: the parent's clock is the only limit
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + 1 + seconds
    for kind, amount in (("AS", memory), ("CPU", cpu), ("FSIZE", 0), ("CORE", 0)):
        _lower_limit(resource, getattr(resource, f"RLIMIT_{kind}", None), amount)


def _lower_limit(resource: Any, kind: int | None, amount: int) -> None:
    if kind is None:
        return
    _, hard = resource.getrlimit(kind)
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    try:
        resource.setrlimit(kind, (amount, amount))
    except (ValueError, OSError):  # macOS refuses some; the others still hold
        return


def _import_parser(form: str) -> _Parser:
    if form == "mat":
        from crossbyte.data.mat import parse_mat

        return parse_mat
    from crossbyte.data.parquet import parse_parquet

    return parse_parquet


def _reserve_stdout() -> BinaryIO:
    """Keep the pipe for answers, and discard what libraries print."""
    sys.stdout.flush()
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return os.fdopen(answers, "wb")


def _describe_failure(error: Exception) -> str:
    return f"its reader says {type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _send_answer(parser: _Parser, file: BinaryIO, request: dict[str, Any], out: BinaryIO) -> None:
    try:
        parser(file, request, out)
        send_record(out, b"Z")
    except MemoryError:
        send_json(out, b"E", ["memory", ""])
    except DataFileError as error:
        send_json(out, b"E", ["refused", str(error)])
    except Exception as error:  # the parent is told whatever the reader raised
        send_json(out, b"E", ["refused", _describe_failure(error)])


# -I keeps the environment and the current folder out; libraries are where the parent found them.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {run_child.__module__} import {run_child.__name__}; {run_child.__name__}(sys.argv[2])"
)
# One thread each: the address space of a thread counts too, and pools reserve it by the gigabyte.
_CHILD_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
_STARTING_SECONDS = 20  # a cold disk may take long to import libraries; nothing of the file is read meanwhile
_CPU_SIGNAL = getattr(signal, "SIGXCPU", None)


def parse_in_child(opened: OpenFile, form: str, limits: Limits, *, headers_only: bool = False) -> Contents:
    """Parse a file in a process of its own.

    Parameters
    ----------
    opened : OpenFile
        The file becomes the child's standard input.
    form : {"mat", "parquet"}
    limits : Limits
    headers_only : bool, default False
        List the entries only.

    Returns
    -------
    Contents
        With everything loaded, unless ``headers_only``.

    Raises
    ------
    DataFileError
        The file was refused, or its reader crashed or passed a limit.
    """
    request = _build_request(opened, form, limits, headers_only)
    os.lseek(opened.file.fileno(), 0, os.SEEK_SET)  # a seek of the buffered file may stay in its buffer
    with _start_child(opened, request) as process, _kill_after(process, request):
        return _read_answer(process, request, limits)


def _build_request(opened: OpenFile, form: str, limits: Limits, headers_only: bool) -> dict[str, Any]:
    return {
        "form": form,
        "headers_only": headers_only,
        "memory": limits.mat_memory if form == "mat" else limits.parquet_memory,
        # Small files get less time.
        "seconds": min(limits.child_seconds, 3 + opened.size // 2**22),
        "unpacked": limits.unpacked(opened.size),
        "rows": limits.rows,
        "members": limits.archive_members if form == "mat" else limits.columns,
    }


@contextmanager
def _start_child(opened: OpenFile, request: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child; end and reap it whatever happens, Ctrl-C included."""
    path = json.dumps([entry for entry in sys.path if entry and isinstance(entry, str)])
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, path, json.dumps(request)],
        stdin=opened.file,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _CHILD_ENVIRONMENT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _kill_after(process: subprocess.Popen[bytes], request: dict[str, Any]) -> Iterator[None]:
    """Kill the child after a time: for systems that cannot limit CPU time, and a child that only waits."""
    timer = threading.Timer(_STARTING_SECONDS + request["seconds"], process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _read_answer(process: subprocess.Popen[bytes], request: dict[str, Any], limits: Limits) -> Contents:
    assert process.stdout is not None
    try:
        return read_frames(cast("BufferedReader", process.stdout), request["unpacked"], limits.text_bytes)
    except ChildRefused as refusal:
        if refusal.kind == "memory":
            raise DataFileError(_memory_message(request)) from None
        raise DataFileError(f"refused: {refusal.message}") from None
    except ChildEnded:
        process.stdout.close()
        raise DataFileError(_describe_exit(process.wait(), request)) from None


def _memory_message(request: dict[str, Any]) -> str:
    return (
        f"refused: the reader wanted more memory than {request['memory'] >> 20} MiB; "
        "it is damaged, or too large: save its arrays as .npy"
    )


def _describe_exit(code: int, request: dict[str, Any]) -> str:
    """Describe how the child ended."""
    if _CPU_SIGNAL is not None and code == -_CPU_SIGNAL or code == -getattr(signal, "SIGKILL", 9):
        return (
            f"refused: the reader took longer than {request['seconds']} s; the file is damaged: write it anew"
        )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"refused: the reader crashed ({how}); the file is damaged: write it anew, or save arrays as .npy"
