"""Define pictures, their formats and limits, and detect a format by its first bytes."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import PictureError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""The only kinds that are ever decoded, by the names Pillow gives them."""
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
"""The endings of their names, in small letters."""

SHORT_SIDE = 512
"""The most pixels of the short side that any encoder uses."""
LONG_SIDE = 4096
"""Bounds the bytes of a strip one pixel high, which its short side does not."""
THUMBNAIL_SIDE = 320


class PictureLimits(NamedTuple):
    """The most that reading one picture may take.

    Attributes
    ----------
    max_bytes : int
        Size of the file.
    max_pixels : int
        Width times height, judged from the header before anything is decoded.
    seconds : float
        CPU time of one picture. By the clock it may take three times as long: processes share cores.
    memory : int
        Address space of the process that decodes, in bytes, libraries included.
    """

    max_bytes: int = 20 * 2**20
    max_pixels: int = 50_000_000
    seconds: float = 5
    memory: int = 2**30


class Picture(NamedTuple):
    """One decoded picture.

    Attributes
    ----------
    pixels : ndarray of shape (h, w, 3), uint8
        RGB, upright (EXIF orientation applied), transparent parts over white, the first frame of a moving
        picture. Shrunk so that the short side is at most 512 and the long one at most 4096; never enlarged.
    width, height : int
        Size of the original, upright.
    thumbnail : bytes
        A JPEG file of our own making, longest side at most 320, without metadata.
    digest : str
        BLAKE2b-128 of the file's bytes, in hexadecimal.
    """

    pixels: NDArray[np.uint8]
    width: int
    height: int
    thumbnail: bytes
    digest: str


_EXPECTED = "expected a JPEG, PNG, WEBP, BMP or GIF picture"
_CONVERT = "save it as JPEG or PNG"

_PICTURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"BM": "BMP",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
}
_OTHERS = {
    b"%PDF": ("a PDF document", "export its pages as JPEG or PNG"),
    b"%!PS": ("an EPS or PostScript drawing", "export it as PNG"),
    b"\xc5\xd0\xd3\xc6": ("an EPS drawing", "export it as PNG"),
    b"II*\0": ("a TIFF picture or a camera's raw file", _CONVERT),
    b"MM\0*": ("a TIFF picture or a camera's raw file", _CONVERT),
    b"II+\0": ("a TIFF picture", _CONVERT),
    b"MM\0+": ("a TIFF picture", _CONVERT),
    b"8BPS": ("a Photoshop document", "export it as JPEG or PNG"),
    b"\0\0\x01\0": ("an icon (ICO)", "save it as PNG"),
    b"\0\0\0\x0cjP  ": ("a JPEG 2000 picture", _CONVERT),
    b"\xff\x4f\xff\x51": ("a JPEG 2000 picture", _CONVERT),
    b"\0\0\0\x0cJXL ": ("a JPEG XL picture", _CONVERT),
    b"\xff\x0a": ("a JPEG XL picture", _CONVERT),
    b"SIMPLE  =": ("a FITS file", _CONVERT),
    b"PK\x03\x04": ("a ZIP archive or an office document", "unpack its pictures"),
    b"\x1f\x8b": ("a gzip archive", "unpack it"),
    b"version https://git-lfs": ("a Git LFS pointer and no picture", "fetch the picture with: git lfs pull"),
}
_BRANDS = {
    b"avif": ("an AVIF picture", _CONVERT),
    b"avis": ("an AVIF picture", _CONVERT),
    b"heic": ("a HEIC picture, as phones take them", "export it as JPEG (on a phone: Most Compatible)"),
}
_BRANDS |= dict.fromkeys([b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"], _BRANDS[b"heic"])
_HEAD_BYTES = 1024


def detect_format(data: bytes) -> str | None:
    """Return the format, one of `FORMATS`, that the first bytes claim; None for any other."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((name for magic, name in _PICTURES.items() if data.startswith(magic)), None)


def check_format(data: bytes) -> None:
    """Refuse data that do not begin like one of the formats.

    Raises
    ------
    PictureError
        The message says what the file is, as far as its first bytes tell, and what to do.
    """
    if not data:
        raise PictureError(f"{_EXPECTED}, got an empty file (0 bytes); copy or download it again")
    if detect_format(data) is None:
        kind, advice = _describe_other(data[:_HEAD_BYTES])
        raise PictureError(f"{_EXPECTED}, got {kind}; {advice}")


def _describe_other(head: bytes) -> tuple[str, str]:
    for magic, known in _OTHERS.items():
        if head.startswith(magic):
            return known
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], ("a video", "take a picture out of it as JPEG or PNG"))
    return _describe_text(head) or ("a file of another kind", _CONVERT + ", or take it out of the list")


def _describe_text(head: bytes) -> tuple[str, str] | None:
    try:
        text = getincrementaldecoder("utf-8-sig")().decode(head).lower()  # the last letter may be cut
    except UnicodeDecodeError:
        return None
    if "<svg" in text:
        return "an SVG drawing", "export it as PNG"
    if "<html" in text or "<!doctype html" in text:
        return "a web page, as a failed download leaves it", "download the picture again"
    return (
        None if "\0" in text else ("a text file", "take it out of the list, or put the picture in its place")
    )
