"""Decode pictures with Pillow, one after another, in a child process of its own.

This is the only module that decodes users' pictures. The process may die at any moment; the parent
starts another.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import warnings
from typing import BinaryIO, NamedTuple

from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from crossbyte.data.images.formats import FORMATS, LONG_SIDE, SHORT_SIDE, THUMBNAIL_SIDE, PictureLimits
from crossbyte.data.images.protocol import READY, read_request, send_answer
from crossbyte.data.sandbox import limit_resources

# Imported by name: without them Pillow would import all its plugins at the first picture it does not know.
_PLUGINS = (BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
_QUALITY = 82
_EXIF_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAPPING = (5, 6, 7, 8)


class Decoded(NamedTuple):
    """Size of the original, upright; size and RGB bytes of the shrunk picture; a JPEG of the thumbnail."""

    size: tuple[int, int]
    shrunk: tuple[int, int]
    pixels: bytes
    thumbnail: bytes


class TooManyPixels(Exception):
    """The header declares more pixels than the limit: a width and a height."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height)
        self.width, self.height = width, height


def decode(data: bytes, max_pixels: int) -> Decoded:
    """Decode the first frame, upright, over white, shrunk.

    Raises
    ------
    TooManyPixels
        Before anything is decoded.
    Exception
        Whatever Pillow raises for damaged files; ``MemoryError`` among it.
    """
    _check_pixels(_read_webp_size(data), max_pixels)  # its decoder takes the whole canvas when it is opened
    Image.MAX_IMAGE_PIXELS = None  # so that our own error can say width and height
    with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        _check_pixels(image.size, max_pixels)
        Image.MAX_IMAGE_PIXELS = max_pixels  # for what a later part of the file may declare
        return shrink_upright(image)


def shrink_upright(image: Image.Image) -> Decoded:
    """Make the upright, shrunk RGB picture of an open image, and its thumbnail."""
    width, height = image.size
    size = _fit_within(width, height, SHORT_SIDE, LONG_SIDE)
    image.draft(None, size)  # a JPEG is cheap to decode at 1/2, 1/4 or 1/8
    image.load()
    turn = _read_orientation(image)
    plain = _rotate(_flatten_alpha(_shrink(_to_smooth_mode(image), size)), turn)
    plain.info.clear()  # the thumbnail must have no metadata of the file
    original = (height, width) if turn in _SWAPPING else (width, height)
    return Decoded(original, plain.size, plain.tobytes(), _make_thumbnail(plain))


def _check_pixels(size: tuple[int, int], max_pixels: int) -> None:
    if size[0] * size[1] > max_pixels:
        raise TooManyPixels(*size)


def _read_webp_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a WEBP file from its first chunk; zeros where it does not say."""
    if data[:4] != b"RIFF" or len(data) < 30:
        return 0, 0
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        packed = int.from_bytes(data[21:25], "little")
        return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return (
            int.from_bytes(data[26:28], "little") & 0x3FFF,
            int.from_bytes(data[28:30], "little") & 0x3FFF,
        )
    return 0, 0


def _fit_within(width: int, height: int, short_side: int, long_side: int) -> tuple[int, int]:
    short, long = sorted((width, height))
    factor = min(1.0, short_side / short, long_side / long)
    return max(1, round(width * factor)), max(1, round(height * factor))


def _to_smooth_mode(image: Image.Image) -> Image.Image:
    """Convert a picture to a mode whose values may be averaged: no palette, no 16 bits, no key colour."""
    if image.mode.startswith("I"):  # 16 bits; a plain conversion would cut off, not scale
        return image.point(lambda value: value * (1 / 257) + 0.5).convert("L")
    if image.has_transparency_data and image.mode not in ("LA", "RGBA"):
        return image.convert("RGBA")
    if image.mode in ("L", "LA", "RGB", "RGBA", "CMYK"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _shrink(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if image.size == size:
        return image
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _flatten_alpha(image: Image.Image) -> Image.Image:
    if image.mode in ("LA", "RGBA"):
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return image.convert("RGB")


def _read_orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # damaged metadata does not damage the picture
        return 1


def _rotate(image: Image.Image, turn: int) -> Image.Image:
    return image.transpose(_TURNS[turn]) if turn in _TURNS else image


def _make_thumbnail(image: Image.Image) -> bytes:
    file = io.BytesIO()
    size = _fit_within(*image.size, THUMBNAIL_SIDE, THUMBNAIL_SIDE)
    _shrink(image, size).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


def main(request_text: str) -> None:
    """Answer requests until there are no more; the limits are set before the first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    request = json.loads(request_text)
    limits = PictureLimits(**request["limits"])
    limit_resources(limits.memory, int(request["life_seconds"]))
    with os.fdopen(0, "rb", closefd=False) as requests, _reserve_stdout() as out:
        out.write(READY)
        out.flush()
        try:
            _serve_requests(requests, out, limits)
        except BrokenPipeError:  # the parent died while we were busy
            os._exit(0)


def _reserve_stdout() -> BinaryIO:
    """Keep the pipe for answers, and discard what libraries print."""
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr
    return os.fdopen(answers, "wb")


def _serve_requests(requests: BinaryIO, out: BinaryIO, limits: PictureLimits) -> None:
    while (data := read_request(requests)) is not None:
        _limit_cpu(limits.seconds)
        _send_decoded(out, data, limits.max_pixels)
        _limit_cpu(0)


def _limit_cpu(seconds: float) -> None:
    """End this process after ``seconds`` more of CPU time; 0 removes the limit. Not on Windows."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _describe_failure(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):  # its message is the address of a buffer
        return "the header makes no sense"
    if isinstance(error, OSError | ValueError | SyntaxError) and str(error):  # Pillow's own words
        return str(error)[:300]
    return f"{type(error).__name__} {error}".rstrip()[:300]


def _send_decoded(out: BinaryIO, data: bytes, max_pixels: int) -> None:
    try:
        decoded = decode(data, max_pixels)
    except MemoryError:
        send_answer(out, {"refused": "memory"})
    except TooManyPixels as error:
        send_answer(out, {"refused": "pixels", "reason": f"{error.width} x {error.height}"})
    except Exception as error:  # the parent is told whatever a decoder raises
        send_answer(out, {"refused": "damaged", "reason": _describe_failure(error)})
    else:
        head = {"size": decoded.size, "shrunk": decoded.shrunk}
        send_answer(out, head, decoded.pixels, decoded.thumbnail)
