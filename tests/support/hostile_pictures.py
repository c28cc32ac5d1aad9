"""A corpus of hostile and damaged pictures, made on demand, and a program that reads all of it.

Every maker yields ``(name, bytes)``. A name that begins with ``ok-`` is unusual but right, or damaged in a
way that decoders forgive (what is missing is grey), and must be read; every other must be refused.
"""

from __future__ import annotations

import io
import json
import os
import random
import socket
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from support import hostile
from support.picture_samples import encoded, gradient

Files = Iterator[tuple[str, bytes]]

# PNG


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def ihdr(width: int = 4, height: int = 4, depth: int = 8, colour: int = 2, interlace: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">2I5B", width, height, depth, colour, 0, 0, interlace))


def idat(data: bytes = bytes(4 * 13), level: int = 9) -> bytes:
    return chunk(b"IDAT", zlib.compress(data, level))


IEND = chunk(b"IEND", b"")
GOOD_PNG = png(ihdr(), idat(), IEND)


def bomb_of_49_million_pixels(transparent: bool = False) -> bytes:
    """Build a right picture just within the limit: 6 kB of file, 49 MB in memory, half a second of work."""
    palette = [chunk(b"PLTE", bytes(6)), chunk(b"tRNS", b"\x80\x80")] if transparent else []
    return png(ihdr(7000, 7000, 1, 3 if transparent else 0), *palette, idat(bytes(876 * 7000)), IEND)


def png_files() -> Files:
    yield "ok-smallest.png", GOOD_PNG
    yield "ok-49-million-pixels-in-6-kb.png", bomb_of_49_million_pixels()
    yield "ok-one-high.png", png(ihdr(40_000, 1), idat(bytes(120_001)), IEND)
    yield "ok-moving.png", moving("PNG")
    yield "ok-sixteen-bits.png", png(ihdr(depth=16, colour=6), idat(bytes(4 * 33)), IEND)
    yield "ok-unknown-chunk.png", png(ihdr(), chunk(b"juNk", bytes(10**6)), idat(), IEND)
    yield "ok-more-data-than-pixels.png", png(ihdr(), idat(bytes(10**7)), IEND)
    yield "ok-many-small-data-chunks.png", png(ihdr(), *split_idat(bytes(4 * 13), 1), IEND)
    yield "20000-by-20000.png", png(ihdr(20_000, 20_000), idat(), IEND)
    yield "2-billion-wide.png", png(ihdr(2**31 - 1, 2**31 - 1), idat(), IEND)
    yield "4-billion-wide.png", png(ihdr(2**32 - 1, 1), idat(), IEND)
    yield "bomb-of-400-million-pixels.png", png(ihdr(20_000, 20_000, 1, 0), idat(bytes(2501 * 2000)), IEND)
    yield "claims-40-million.png", png(ihdr(8000, 5000), idat(), IEND)
    yield "claims-40-million-interlaced.png", png(ihdr(8000, 5000, interlace=1), idat(), IEND)
    yield "no-width.png", png(ihdr(0, 4), idat(), IEND)
    yield "no-height.png", png(ihdr(4, 0), idat(), IEND)
    yield "depth-3.png", png(ihdr(depth=3), idat(), IEND)
    yield "colour-9.png", png(ihdr(colour=9), idat(), IEND)
    yield "no-header.png", png(idat(), IEND)
    yield "no-data.png", png(ihdr(), IEND)
    yield "magic-only.png", png()
    yield "palette-missing.png", png(ihdr(colour=3), idat(bytes(20)), IEND)
    yield "bad-deflate.png", png(ihdr(), chunk(b"IDAT", b"x\x9c" + b"\xff" * 40), IEND)
    yield "wrong-checksum.png", GOOD_PNG.replace(ihdr()[-4:], b"\0\0\0\0")
    yield "ok-wrong-data-checksum.png", GOOD_PNG.replace(idat()[-4:], b"\0\0\0\0")
    yield "chunk-2-gib-long.png", png(ihdr(), struct.pack(">I", 2**31 - 1) + b"IDAT" + bytes(40))
    yield "chunk-of-negative-length.png", png(ihdr(), b"\xff\xff\xff\xffIDAT" + bytes(40))
    yield "two-headers.png", png(ihdr(), ihdr(20_000, 20_000), idat(), IEND)
    yield "text-bomb.png", png(ihdr(), chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**26))), idat(), IEND)
    texts = [chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**20 - 9)))] * 80
    yield "80-texts-of-a-mebibyte.png", png(ihdr(), *texts, idat(), IEND)
    yield (
        "profile-bomb.png",
        png(ihdr(), chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**26))), idat(), IEND),
    )
    yield "frames-without-number.png", png(ihdr(), chunk(b"acTL", b"\0"), idat(), IEND)
    yield "ok-claims-4-billion-frames.png", png(ihdr(), chunk(b"acTL", b"\xff\xff\xff\xff" * 2), idat(), IEND)
    good = encoded(gradient())
    for length in (8, 12, 24, 32, 33, 37, 41, 60, len(good) // 2):
        yield f"cut-at-{length}.png", good[:length]


def split_idat(data: bytes, size: int) -> list[bytes]:
    packed = zlib.compress(data)
    return [chunk(b"IDAT", packed[place : place + size]) for place in range(0, len(packed), size)]


def moving(form: str, count: int = 40) -> bytes:
    frames = [Image.new("RGB", (30, 20), (number * 6, 0, 99)) for number in range(count)]
    return encoded(frames[0], form, save_all=True, append_images=frames[1:])


# JPEG

GOOD_JPEG = encoded(gradient(64, 48), "JPEG")


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def after_start(data: bytes, more: bytes) -> bytes:
    """Put segments behind the first marker."""
    return data[:2] + more + data[2:]


def declaring(width: int, height: int, data: bytes = GOOD_JPEG) -> bytes:
    """Change the size that a baseline JPEG declares."""
    place = data.index(b"\xff\xc0") + 5
    return data[:place] + struct.pack(">2H", height, width) + data[place + 4 :]


def many_scans(count: int) -> bytes:
    """Repeat the last scan of a progressive JPEG: little to send, much to decode."""
    data = encoded(Image.new("RGB", (4000, 4000)), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    tables = data.rindex(b"\xff\xc4", 0, start)
    return data[:-2] + data[tables:-2] * count + data[-2:]


def jpeg_files() -> Files:
    yield "ok-large-comment.jpg", after_start(GOOD_JPEG, segment(0xFE, b"x" * 65_533) * 60)
    yield "ok-15-mib-of-profile.jpg", after_start(GOOD_JPEG, profile(b"p" * 65_000, 240))
    yield "ok-damaged-exif.jpg", after_start(GOOD_JPEG, segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\x7f"))
    yield (
        "ok-exif-that-points-at-itself.jpg",
        after_start(GOOD_JPEG, segment(0xE1, b"Exif\0\0" + looping_exif())),
    )
    yield "ok-exif-with-65535-entries.jpg", after_start(GOOD_JPEG, segment(0xE1, b"Exif\0\0" + wide_exif()))
    yield "ok-orientation-999.jpg", encoded(gradient(), "JPEG", exif=oriented(999))
    yield (
        "ok-orientation-text.jpg",
        after_start(
            GOOD_JPEG,
            segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x03\0\0\0up\0\0" + bytes(4)),
        ),
    )
    yield (
        "ok-large-xmp.jpg",
        after_start(GOOD_JPEG, segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b"<x" * 30_000)),
    )
    yield "ok-followed-by-a-zip.jpg", GOOD_JPEG + archive()
    yield "ok-followed-by-a-page.jpg", GOOD_JPEG + b"<html><script>alert(1)</script>"
    yield "ok-fill-bytes.jpg", after_start(GOOD_JPEG, b"\xff" * 5000)
    yield "ok-many-restart-markers.jpg", GOOD_JPEG[:-2] + b"\xff\xd0" * 10_000 + GOOD_JPEG[-2:]
    yield "ok-damaged-multi-picture.jpg", after_start(GOOD_JPEG, segment(0xE2, b"MPF\0II*\0\xff\xff\xff\x7f"))
    yield "20000-by-20000.jpg", declaring(20_000, 20_000)
    yield "65535-by-65535.jpg", declaring(65_535, 65_535)
    yield "ok-claims-49-million.jpg", declaring(7000, 7000)
    yield "no-width.jpg", declaring(0, 48)
    yield "no-height.jpg", declaring(64, 0)
    yield "one-marker.jpg", b"\xff\xd8\xff"
    yield "start-and-end.jpg", b"\xff\xd8\xff\xd9"
    yield "only-markers.jpg", b"\xff\xd8" + b"\xff\xd0" * 10_000
    yield "only-fill.jpg", b"\xff\xd8" + b"\xff" * 2**18
    yield "segments-without-picture.jpg", b"\xff\xd8" + segment(0xE0, bytes(65_000)) * 200
    yield "ok-segment-of-length-0.jpg", b"\xff\xd8\xff\xe0\0\0" + GOOD_JPEG[20:]
    yield "5-components.jpg", GOOD_JPEG.replace(b"\x03\x01\x22\x00", b"\x05\x01\x22\x00", 1)
    yield "sampling-0.jpg", GOOD_JPEG.replace(b"\x03\x01\x22\x00", b"\x03\x01\x00\x00", 1)
    yield "12-bits.jpg", GOOD_JPEG.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c", 1)
    yield "lossless.jpg", GOOD_JPEG.replace(b"\xff\xc0", b"\xff\xc3", 1)
    yield "without-tables.jpg", without(0xDB, GOOD_JPEG)
    for length in (
        4,
        11,
        100,
        300,
        GOOD_JPEG.index(b"\xff\xda") + 6,
        len(GOOD_JPEG) // 2,
        len(GOOD_JPEG) - 200,
    ):
        yield f"cut-at-{length}.jpg", GOOD_JPEG[:length]


def without(marker: int, data: bytes) -> bytes:
    """Take out every segment of one kind."""
    while (place := data.find(bytes((0xFF, marker)))) >= 0:
        (length,) = struct.unpack_from(">H", data, place + 2)
        data = data[:place] + data[place + 2 + length :]
    return data


def profile(body: bytes, count: int) -> bytes:
    return b"".join(segment(0xE2, b"ICC_PROFILE\0" + bytes((n + 1, count)) + body) for n in range(count))


def looping_exif() -> bytes:
    """Build a directory whose successor, and whose sub-directory, is itself."""
    return b"II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\x08\0\0\0"


def wide_exif() -> bytes:
    return b"II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x05\0\xff\xff\xff\x7f\xff\xff\xff\x7f" * 5000


def oriented(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("../evil.png", GOOD_PNG)
    return file.getvalue()


# GIF, BMP, WEBP


def gif_files() -> Files:
    good = encoded(gradient().convert("P"), "GIF")
    yield "ok-2000-frames.gif", good[:-1] + good[good.index(b",") : -1] * 2000 + b";"
    yield "ok-moving.gif", moving("GIF")
    yield "ok-large-comments.gif", good.replace(b",", b"!\xfe" + (b"\xff" + b"c" * 255) * 8000 + b"\0,", 1)
    yield "ok-frame-beyond-the-canvas.gif", placed(good, 5, 5)
    yield "65535-by-65535.gif", good[:6] + b"\xff\xff\xff\xff" + good[10:]
    yield "frame-makes-4-billion-pixels.gif", placed(good, 65_000, 65_000)
    yield "no-frame.gif", good[: good.index(b",")] + b";"
    yield "magic-only.gif", b"GIF89a"
    yield "code-size-200.gif", coded(good, 200)
    yield "ok-code-size-0.gif", coded(good, 0)
    yield "open-comment.gif", good[: good.index(b",")] + b"!\xfe" + (b"\xff" + bytes(255)) * 20
    for length in (7, 13, 300, good.index(b",") + 5, good.index(b",") + 14):
        yield f"cut-at-{length}.gif", good[:length]


def placed(good: bytes, left: int, top: int) -> bytes:
    place = good.index(b",\0\0\0\0") + 1
    return good[:place] + struct.pack("<2H", left, top) + good[place + 4 :]


def coded(good: bytes, size: int) -> bytes:
    place = good.index(b",\0\0\0\0") + 10
    return good[:place] + bytes((size,)) + good[place + 1 :]


def bmp(
    width: int, height: int, bits: int = 24, packing: int = 0, body: bytes = bytes(64), **more: int
) -> bytes:
    offset, header = more.get("offset", 54), more.get("header", 40)
    colours = more.get("colours", 0)
    head = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, packing, len(body), 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, offset) + head + body


def bmp_files() -> Files:
    yield "ok-smallest.bmp", bmp(4, 4)
    yield "ok-upside-down.bmp", bmp(4, -4)
    yield "20000-by-20000.bmp", bmp(20_000, 20_000)
    yield "2-billion-wide.bmp", bmp(2**31 - 1, 2**31 - 1)
    yield "negative-width.bmp", bmp(-4, 4)
    yield "lowest-height.bmp", bmp(4, -(2**31))
    yield "no-size.bmp", bmp(0, 0)
    yield "claims-49-million.bmp", bmp(7000, 7000)
    yield "claims-49-million-packed.bmp", bmp(7000, 7000, 8, 1, bytes(1024) + b"\xff\0" * 50)
    yield "ok-packed-jumps-outside.bmp", bmp(9, 9, 8, 1, bytes(1024) + b"\0\x02\xff\xff" * 100, offset=1078)
    yield "17-bits.bmp", bmp(4, 4, 17)
    yield "header-of-2-gib.bmp", bmp(4, 4, header=2**31 - 1)
    yield "header-of-0.bmp", bmp(4, 4, header=0)
    yield "4-billion-colours.bmp", bmp(4, 4, 8, colours=2**32 - 1)
    yield "packing-of-jpeg.bmp", bmp(4, 4, packing=4)
    yield "data-beyond-the-end.bmp", bmp(4, 4, offset=2**31)
    yield "odd-masks.bmp", bmp(4, 4, 32, 3, b"\xff\0\xff\0" * 20)
    yield "magic-only.bmp", b"BM"
    yield "text-that-begins-so.bmp", b"BMX bikes are for sale\n" * 40
    for length in (14, 18, 30, 53, 80):
        yield f"cut-at-{length}.bmp", bmp(4, 4)[:length]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(
        kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def extended(width: int, height: int, flags: int = 0) -> tuple[bytes, bytes]:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"VP8X", bytes((flags, 0, 0, 0)) + sides


def webp_files() -> Files:
    lossy = encoded(gradient(64, 48), "WEBP")
    lossless = encoded(gradient(64, 48), "WEBP", lossless=True)
    yield "ok-moving.webp", moving("WEBP")
    yield "ok-trailing.webp", lossy + b"more" * 1000
    yield "ok-large-profile.webp", encoded(gradient(), "WEBP", icc_profile=bytes(10**6))
    yield "16384-by-16384.webp", riff(extended(16_384, 16_384), (b"VP8 ", lossy[20:]))
    yield "16-million-wide.webp", riff(extended(2**24, 2**24), (b"VP8 ", lossy[20:]))
    yield "claims-49-million.webp", riff(extended(7000, 7000), (b"VP8 ", lossy[20:]))
    yield "lossless-claims-268-million.webp", lossless[:21] + b"\xff\xff\xff\x0f" + lossless[25:]
    yield "lossy-claims-268-million.webp", lossy[:26] + b"\xff\x3f\xff\x3f" + lossy[30:]
    yield "lossless-of-nothing.webp", lossless[:30] + bytes(len(lossless) - 30)
    yield "sizes-disagree.webp", riff(extended(10, 10), (b"VP8 ", lossy[20:]))
    yield "moving-without-frames.webp", riff(extended(10, 10, 2), (b"ANIM", bytes(6)))
    yield "chunk-of-4-gib.webp", lossy[:16] + b"\xff\xff\xff\xff" + lossy[20:]
    yield "file-of-4-gib.webp", lossy[:4] + b"\xff\xff\xff\xff" + lossy[8:]
    yield "file-of-0.webp", lossy[:4] + bytes(4) + lossy[8:]
    yield "magic-only.webp", b"RIFF\x04\0\0\0WEBP"
    yield "unknown-chunks.webp", riff(*[(b"JUNK", bytes(100))] * 1000)
    for length in (12, 15, 20, 29, len(lossy) // 2, len(lossy) - 1):
        yield f"cut-at-{length}.webp", lossy[:length]


# Other things under the name of a picture


def foreign_files() -> Files:
    yield "empty.jpg", b""
    yield "text.jpg", b"this is not a picture\n" * 100
    yield "nul.jpg", bytes(10_000)
    yield "noise.jpg", random.Random(3).randbytes(10_000)
    yield "svg-as.jpg", b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    yield "page-as.jpg", b"<!doctype html><script>alert(1)</script>"
    yield "pdf-as.jpg", encoded(gradient(), "PDF")
    yield "eps-as.jpg", encoded(gradient(), "EPS")
    yield "eps-that-deletes-as.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(a) deletefile\n"
    yield "tiff-as.jpg", encoded(gradient(), "TIFF")
    yield "fits-as.jpg", b"SIMPLE  =                    T".ljust(2880)
    yield "ico-as.png", encoded(gradient(16, 16), "ICO")
    yield "ppm-as.bmp", encoded(gradient(), "PPM")
    yield "tga-as.bmp", encoded(gradient(), "TGA")
    yield "pcx-as.bmp", encoded(gradient(), "PCX")
    yield "jpeg-2000-as.jpg", encoded(gradient(), "JPEG2000")
    yield "avif-as.jpg", b"\0\0\0\x1cftypavif" + bytes(100)
    yield "heic-as.jpg", b"\0\0\0\x1cftypheic" + bytes(100)
    yield "psd-as.jpg", b"8BPS\0\x01" + bytes(100)
    yield "zip-as.jpg", archive()
    yield "picture-behind-a-script.jpg", b"#!/bin/sh\nexit\n" + GOOD_JPEG
    yield "npy-as.png", hostile.npy(hostile.MATRIX)
    yield "pickle-as.png", b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x02os\x94."
    yield "gzip-as.png", b"\x1f\x8b\x08\0" + bytes(range(200))
    yield "ok-png-as.jpg", GOOD_PNG
    yield "ok-jpeg-as.gif", GOOD_JPEG
    yield "png-then-jpeg.png", GOOD_PNG[:8] + GOOD_JPEG
    yield "jpeg-then-png.jpg", GOOD_JPEG[:3] + GOOD_PNG
    yield "21-mib.jpg", GOOD_JPEG.ljust(21 * 2**20, b"\0")


MAKERS: dict[str, Callable[[], Files]] = {
    "png": png_files,
    "jpeg": jpeg_files,
    "gif": gif_files,
    "bmp": bmp_files,
    "webp": webp_files,
    "foreign": foreign_files,
}


def write_corpus(folder: Path) -> list[Path]:
    """Write every file, and the things that are no files."""
    return hostile.write_made(folder, MAKERS) + write_special(folder)


def write_special(folder: Path) -> list[Path]:
    """Make a directory, a sparse giant, links, a pipe, a socket and a way to devices."""
    (folder / "directory.png").mkdir()
    with open(folder / "sparse-8-gib.png", "wb") as file:
        file.truncate(2**33)
    links = {
        "ok-link.png": "ok-smallest.png",
        "loop.png": "loop.png",
        "zero.png": "/dev/zero",
        "null.png": "/dev/null",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe.png")
    here = os.getcwd()
    os.chdir(folder)  # the path of a socket has a small limit
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.png")
    os.chdir(here)
    return [folder / name for name in ("directory.png", "sparse-8-gib.png", *links, "pipe.png", "socket.png")]


def main(paths: list[str]) -> None:
    """Read all files in this one process; say what came of each, its seconds, and the memory of all."""
    from crossbyte.data.images.formats import Picture
    from crossbyte.data.images.reader import PictureReader

    before = hostile.peak_bytes()
    outcomes, seconds = {}, {}
    with PictureReader() as reader:
        for path in paths:
            start = time.perf_counter()
            (value,) = reader.read_many([path])
            named = isinstance(value, Picture) or str(value).startswith(f"{path}: ")
            told = "read" if isinstance(value, Picture) else str(value)[len(path) + 2 :]
            outcomes[Path(path).name] = told if named else f"unnamed: {value}"
            seconds[Path(path).name] = round(time.perf_counter() - start, 2)
    grown = hostile.peak_bytes() - before
    sys.stdout.write(json.dumps({"outcomes": outcomes, "seconds": seconds, "grown_bytes": grown}))


if __name__ == "__main__":
    main(sys.argv[1:])
