"""The process that parses ``.mat`` and Parquet files: their readers crash, or swell, on damaged ones.

Runs as ``python -c … REQUEST`` with the file as standard input and answers on standard output in `frames`.
The limits are set before the first byte of the file is read. It may die at any moment; the parent is told.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from crossbyte.data.files.frames import send, send_json
from crossbyte.errors import DataFileError

__all__ = ["main"]

_Parser = Callable[[BinaryIO, dict[str, Any], BinaryIO], None]


def main(request_text: str) -> None:
    """Parse standard input as the request says, and answer on what was standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, who ends us
    request = json.loads(request_text)
    parser = _parser(request["form"])  # imports first: libraries are trusted, and take address space and time
    out = _only_answers()
    limit_resources(int(request["memory"]), int(request["seconds"]))
    with os.fdopen(0, "rb", closefd=False) as file, out:
        _answer(parser, file, request, out)


def limit_resources(memory: int, seconds: int) -> None:
    """Cap address space and further CPU time and forbid writing files, as far as the system can."""
    try:
        import resource
    except ImportError:  # Windows: the parent's clock is the only limit
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + 1 + seconds
    for kind, amount in (("AS", memory), ("CPU", cpu), ("FSIZE", 0), ("CORE", 0)):
        _lower(resource, getattr(resource, f"RLIMIT_{kind}", None), amount)


def _lower(resource: Any, kind: int | None, amount: int) -> None:
    if kind is None:
        return
    _, hard = resource.getrlimit(kind)
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    try:
        resource.setrlimit(kind, (amount, amount))
    except (ValueError, OSError):  # macOS refuses some; the others still hold
        return


def _parser(form: str) -> _Parser:
    if form == "mat":
        from crossbyte.data.files.mat import parse_mat

        return parse_mat
    from crossbyte.data.files.parquet import parse_parquet

    return parse_parquet


def _only_answers() -> BinaryIO:
    """Keep the pipe for answers; what libraries print goes nowhere."""
    sys.stdout.flush()
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return os.fdopen(answers, "wb")


def _one_line(error: Exception) -> str:
    return f"its reader says {type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _answer(parser: _Parser, file: BinaryIO, request: dict[str, Any], out: BinaryIO) -> None:
    try:
        parser(file, request, out)
        send(out, b"Z")
    except MemoryError:
        send_json(out, b"E", ["memory", ""])
    except DataFileError as error:
        send_json(out, b"E", ["refused", str(error)])
    except Exception as error:  # whatever the reader raised, the parent shall know
        send_json(out, b"E", ["refused", _one_line(error)])
