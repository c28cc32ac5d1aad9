"""The process that decodes pictures, one after another, until its standard input ends.

It may die at any moment, or be ended; the parent knows which picture it had, and starts another.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import BinaryIO

from PIL import UnidentifiedImageError

from crossbyte.data.files.child import limit_resources
from crossbyte.data.pictures.answers import READY, read_request, send_answer
from crossbyte.data.pictures.decoding import TooManyPixels, decode
from crossbyte.data.pictures.picture import PictureLimits

__all__ = ["main"]


def main(request_text: str) -> None:
    """Answer requests until there are no more; the limits are set before the first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    request = json.loads(request_text)
    limits = PictureLimits(**request["limits"])
    limit_resources(limits.memory, int(request["life_seconds"]))
    with os.fdopen(0, "rb", closefd=False) as requests, _only_answers() as out:
        out.write(READY)
        out.flush()
        try:
            _serve(requests, out, limits)
        except BrokenPipeError:  # the parent died while we were busy
            os._exit(0)


def _only_answers() -> BinaryIO:
    """Keep the pipe for answers; what libraries print goes nowhere."""
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr
    return os.fdopen(answers, "wb")


def _serve(requests: BinaryIO, out: BinaryIO, limits: PictureLimits) -> None:
    while (data := read_request(requests)) is not None:
        _limit_cpu(limits.seconds)
        _answer(out, data, limits.max_pixels)
        _limit_cpu(0)


def _limit_cpu(seconds: float) -> None:
    """End this process after ``seconds`` more of CPU time; 0 takes the limit away. Not on Windows."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):  # its message is the address of a buffer
        return "the header makes no sense"
    if isinstance(error, OSError | ValueError | SyntaxError) and str(error):  # Pillow's own words
        return str(error)[:300]
    return f"{type(error).__name__} {error}".rstrip()[:300]


def _answer(out: BinaryIO, data: bytes, max_pixels: int) -> None:
    try:
        decoded = decode(data, max_pixels)
    except MemoryError:
        send_answer(out, {"refused": "memory"})
    except TooManyPixels as error:
        send_answer(out, {"refused": "pixels", "reason": f"{error.width} x {error.height}"})
    except Exception as error:  # whatever a decoder raises, the parent shall know
        send_answer(out, {"refused": "damaged", "reason": _reason(error)})
    else:
        head = {"size": decoded.size, "shrunk": decoded.shrunk}
        send_answer(out, head, decoded.pixels, decoded.thumbnail)
