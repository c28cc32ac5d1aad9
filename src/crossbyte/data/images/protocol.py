"""Define the protocol between the parent and the decoding child; the parent checks everything it reads.

The child sends ``R`` once when it is ready. A request is 8 bytes of length and the bytes of a file. An answer
is three lengths of 4 bytes each, then a head in JSON, the pixels, and the thumbnail. The head is either
``{"size": [w, h], "shrunk": [w, h]}`` or ``{"refused": kind, "reason": text}``; a refusal has no other parts.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.images.formats import LONG_SIDE, SHORT_SIDE, PictureLimits
from crossbyte.data.npz import Stream, fill_buffer
from crossbyte.data.sandbox import ChildEnded, ChildRefused
from crossbyte.errors import DataFileError

READY = b"R"
_REQUEST = struct.Struct("<Q")
_ANSWER = struct.Struct("<3I")
_MAX_HEAD = 4096
_MAX_REASON = 200
_MAX_THUMBNAIL = 2**19  # 320 x 320 pixels of pure noise take a third of this


class DecodedImage(NamedTuple):
    """Width and height of the original, pixels of shape (h, w, 3), and the thumbnail."""

    width: int
    height: int
    pixels: NDArray[np.uint8]
    thumbnail: bytes


def send_request(out: BinaryIO, data: bytes) -> None:
    """Send the bytes of one file; the pipe is unbuffered, and may take only a part at a time."""
    for part in (_REQUEST.pack(len(data)), data):
        left = memoryview(part)
        while left:
            left = left[out.write(left) :]


def read_request(pipe: BinaryIO) -> bytes | None:
    """Return the bytes of the next file; None when the parent has closed the pipe, or died."""
    head = pipe.read(_REQUEST.size)
    if len(head) < _REQUEST.size:
        return None
    (length,) = _REQUEST.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


def send_answer(out: BinaryIO, head: dict[str, Any], pixels: bytes = b"", thumbnail: bytes = b"") -> None:
    """Send the answer to one request."""
    text = json.dumps(head).encode()
    out.write(_ANSWER.pack(len(text), len(pixels), len(thumbnail)))
    out.writelines((text, pixels, thumbnail))
    out.flush()


def read_answer(pipe: Stream, limits: PictureLimits) -> DecodedImage:
    """Read one answer and check every number in it.

    Raises
    ------
    ChildRefused
        The child gave a reason why there is no picture.
    ChildEnded
        It ended, or sent nonsense, as it does when a file has overwritten its memory.
    """
    n_head, n_pixels, n_thumbnail = _ANSWER.unpack(read_exactly(pipe, _ANSWER.size))
    if n_head > _MAX_HEAD or n_thumbnail > _MAX_THUMBNAIL:
        raise ChildEnded
    head = _parse_head(read_exactly(pipe, n_head))
    if "refused" in head:
        raise ChildRefused(str(head["refused"]), _clean_reason(str(head.get("reason", ""))))
    width, height = _check_sides(head.get("size"), limits.max_pixels)
    shape = _check_shape(head.get("shrunk"), n_pixels)
    return DecodedImage(width, height, _read_pixels(pipe, shape), _read_thumbnail(pipe, n_thumbnail))


def read_exactly(pipe: Stream, n_bytes: int) -> bytes:
    """Read ``n_bytes`` bytes, or raise `ChildEnded`."""
    taken = bytearray(n_bytes)
    _fill(pipe, memoryview(taken))
    return bytes(taken)


def _fill(pipe: Stream, buffer: memoryview) -> None:
    try:
        fill_buffer(pipe, buffer)
    except (DataFileError, OSError) as error:
        raise ChildEnded from error


def _parse_head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChildEnded from error
    if not isinstance(head, dict):
        raise ChildEnded
    return head


def _clean_reason(reason: str) -> str:
    """Keep printable ASCII: a child that a file has taken over must not control a terminal or a page."""
    return "".join(sign for sign in reason if sign.isascii() and sign.isprintable() and sign not in "<>")[
        :_MAX_REASON
    ]


def _check_sides(sides: Any, max_pixels: int) -> tuple[int, int]:
    if not (isinstance(sides, list) and len(sides) == 2 and all(type(side) is int for side in sides)):
        raise ChildEnded
    if min(sides) < 1 or sides[0] * sides[1] > max_pixels:
        raise ChildEnded
    return sides[0], sides[1]


def _check_shape(sides: Any, n_pixels: int) -> tuple[int, int, int]:
    width, height = _check_sides(sides, SHORT_SIDE * LONG_SIDE)
    if max(width, height) > LONG_SIDE or width * height * 3 != n_pixels:
        raise ChildEnded
    return height, width, 3


def _read_pixels(pipe: Stream, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    pixels = np.empty(shape, np.uint8)
    _fill(pipe, pixels.reshape(-1).data)
    return pixels


def _read_thumbnail(pipe: Stream, n_bytes: int) -> bytes:
    thumbnail = read_exactly(pipe, n_bytes)
    if not (thumbnail.startswith(b"\xff\xd8\xff") and thumbnail.endswith(b"\xff\xd9")):
        raise ChildEnded
    return thumbnail
