"""The lines of a text file, none of them longer than allowed."""

from __future__ import annotations

import io
from collections.abc import Iterator

from crossbyte.data.files.limits import Limits
from crossbyte.data.files.opening import Opened
from crossbyte.errors import DataFileError

__all__ = ["read_lines"]


def read_lines(opened: Opened, limits: Limits, newline: str | None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file (a byte-order mark is dropped), with their ends.

    Parameters
    ----------
    opened : Opened
    limits : Limits
    newline : str or None
        As of ``open``.

    Raises
    ------
    DataFileError
        The file or a line is too long, is not UTF-8, or has NUL characters; the message names the line.
    """
    if opened.size > limits.text_bytes:
        raise DataFileError(
            f"expected at most {limits.text_bytes} bytes of text, got {opened.size}; split the file"
        )
    text = io.TextIOWrapper(opened.file, encoding="utf-8-sig", errors="strict", newline=newline)
    number = 1
    while line := _read_line(text, number, limits.line_chars):
        yield line
        number += 1
    text.detach()  # the file is the caller's to close


def _read_line(text: io.TextIOWrapper, number: int, max_chars: int) -> str:
    try:
        line = text.readline(max_chars + 1)
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"line {number} or soon after: expected UTF-8, got byte 0x{error.object[error.start]:02x}; "
            "save the file as UTF-8"
        ) from error
    if len(line) > max_chars:
        raise DataFileError(
            f"line {number}: expected at most {max_chars} characters; is this one line of text?"
        )
    if "\0" in line:
        raise DataFileError(f"line {number}: expected text, got a NUL character; save the file as UTF-8")
    return line
