"""The lines of a text file, none of them longer than allowed."""

from __future__ import annotations

from collections.abc import Iterator

from crossbyte.data.files.limits import Limits
from crossbyte.data.files.opening import Opened
from crossbyte.errors import DataFileError

__all__ = ["read_lines"]

_MARK = b"\xef\xbb\xbf"  # some editors put this byte-order mark before UTF-8


def read_lines(opened: Opened, limits: Limits) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with their ends.

    Raises
    ------
    DataFileError
        The file or a line is too long, is not UTF-8, or has NUL characters; the message names the line.
    """
    if opened.size > limits.text_bytes:
        raise DataFileError(
            f"expected at most {limits.text_bytes} bytes of text, got {opened.size}; split the file"
        )
    number = 1
    while raw := opened.file.readline(limits.line_bytes + 1):
        yield _decode(raw.removeprefix(_MARK) if number == 1 else raw, number, limits)
        number += 1


def _decode(raw: bytes, number: int, limits: Limits) -> str:
    if len(raw) > limits.line_bytes:
        raise DataFileError(f"line {number}: expected at most {limits.line_bytes} bytes; is it text?")
    if b"\0" in raw:
        raise DataFileError(f"line {number}: expected text, got a NUL character; save the file as UTF-8")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = raw[error.start]
        raise DataFileError(
            f"line {number}: expected UTF-8, got byte 0x{wrong:02x}; save the file as UTF-8"
        ) from error
