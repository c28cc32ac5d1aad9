"""Pictures are read right, and refused in words that say what came and what to do."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from crossbyte.data.images import reader as reader_module
from crossbyte.data.images.formats import EXTENSIONS, FORMATS, PictureLimits
from crossbyte.data.images.reader import PictureReader
from crossbyte.errors import InvalidInput, PictureError
from support.picture_samples import encoded, gradient, halves, plain, refusal

RED, BLUE, WHITE, BLACK = (255, 0, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)
ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def reader() -> Iterator[PictureReader]:
    with PictureReader() as shared:
        yield shared


# What is read


def test_the_formats_and_their_endings() -> None:
    assert FORMATS == ("JPEG", "PNG", "WEBP", "BMP", "GIF")
    assert EXTENSIONS == (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
    assert PictureLimits() == (20 * 2**20, 50_000_000, 5, 2**30)


@pytest.mark.parametrize(
    ("form", "options"),
    [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("PNG", {"interlace": True})],
)
def test_lossless_formats_give_the_same_pixels(reader: PictureReader, form: str, options: Any) -> None:
    image = gradient()
    picture = reader.read(encoded(image, form, **options))
    assert np.array_equal(picture.pixels, np.asarray(image))
    assert picture.pixels.dtype == np.uint8 and picture.pixels.flags.writeable
    assert (picture.width, picture.height) == (24, 16)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("JPEG", {"quality": 95, "subsampling": 0}),
        ("JPEG", {"quality": 95, "subsampling": 0, "progressive": True}),
        ("WEBP", {"quality": 100}),
    ],
)
def test_lossy_formats_give_nearly_the_same_pixels(reader: PictureReader, form: str, options: Any) -> None:
    image = halves("RGB", RED, BLUE, (64, 32))
    pixels = reader.read(encoded(image, form, **options)).pixels
    assert np.abs(pixels.astype(int) - np.asarray(image)).mean() < 8


@pytest.mark.parametrize(
    ("form", "image", "left", "right"),
    [
        ("PNG", halves("1", 0, 1), BLACK, WHITE),
        ("PNG", halves("L", 0, 128), BLACK, (128, 128, 128)),
        ("PNG", halves("LA", (0, 255), (0, 0)), BLACK, WHITE),
        ("PNG", halves("I;16", 0, 65535), BLACK, WHITE),
        ("PNG", halves("I;16", 257 * 100, 257 * 200), (100,) * 3, (200,) * 3),
        ("PNG", halves("RGB", RED, BLUE).convert("P"), RED, BLUE),
        ("PNG", halves("RGBA", (*RED, 255), (*BLUE, 0)), RED, WHITE),
        ("PNG", halves("RGBA", (0, 0, 0, 51), (*RED, 51)), (204,) * 3, (255, 204, 204)),
        ("WEBP", halves("RGBA", (*RED, 255), (*BLUE, 0)), RED, WHITE),
        ("BMP", halves("1", 0, 1), BLACK, WHITE),
        ("BMP", halves("L", 0, 128), BLACK, (128, 128, 128)),
        ("BMP", halves("RGB", RED, BLUE).convert("P"), RED, BLUE),
        ("GIF", halves("L", 0, 128), BLACK, (128, 128, 128)),
        ("GIF", halves("RGB", RED, BLUE).convert("P", palette=Image.Palette.ADAPTIVE), RED, BLUE),
        ("JPEG", halves("L", 0, 255), BLACK, WHITE),
        ("JPEG", halves("CMYK", (0, 255, 255, 0), (0, 0, 0, 0)), RED, WHITE),
        ("JPEG", halves("CMYK", (0, 0, 0, 255), (255, 255, 0, 0)), BLACK, BLUE),
    ],
    ids=lambda value: getattr(value, "mode", None) or str(value),
)
def test_every_mode_becomes_the_right_colours(
    reader: PictureReader, form: str, image: Image.Image, left: Any, right: Any
) -> None:
    options = {"lossless": True} if form == "WEBP" else {"quality": 100} if form == "JPEG" else {}
    pixels = reader.read(encoded(image, form, **options)).pixels
    assert pixels.shape == (8, 16, 3)
    difference = np.abs(pixels[:, [0, -1]].astype(int) - [left, right])
    assert difference.max() <= (2 if form == "JPEG" else 0)


@pytest.mark.parametrize(
    ("image", "right"),
    [
        (halves("L", 10, 200), (200,) * 3),
        (halves("RGB", RED, BLUE), BLUE),
        (halves("RGB", RED, BLUE).convert("P"), BLUE),
    ],
    ids=lambda value: getattr(value, "mode", "seen"),
)
def test_a_colour_that_means_transparent_becomes_white(
    reader: PictureReader, image: Image.Image, right: Any
) -> None:
    pixels = reader.read(encoded(image, "PNG", transparency=image.getpixel((0, 0)))).pixels
    assert np.array_equal(pixels[0, [0, -1]], [WHITE, right])


def test_transparent_colours_do_not_shine_through_when_shrunk(reader: PictureReader) -> None:
    image = Image.new("RGBA", (1400, 1400), (*BLUE, 0))
    image.paste((*RED, 255), (0, 0, 700, 1400))
    pixels = reader.read(encoded(image, compress_level=1)).pixels.astype(int)
    assert pixels.shape == (512, 512, 3)
    assert (pixels[..., 0] >= 250).all()  # red or white everywhere, never blue
    assert np.array_equal(pixels[..., 1], pixels[..., 2])


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_pictures_are_turned_upright(reader: PictureReader, form: str, turn: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = turn
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 98}, "PNG": {}}[form]
    data = encoded(gradient(), form, exif=exif, **options)
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    picture = reader.read(data)
    assert np.array_equal(picture.pixels, np.asarray(upright))
    assert (picture.width, picture.height) == upright.size == ((16, 24) if turn > 4 else (24, 16))
    with Image.open(io.BytesIO(picture.thumbnail)) as thumbnail:
        assert thumbnail.size == upright.size


@pytest.mark.parametrize(
    "exif", [b"", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0" + bytes(100), b"nonsense" * 9]
)
def test_damaged_metadata_do_not_damage_the_picture(reader: PictureReader, exif: bytes) -> None:
    assert reader.read(encoded(gradient(), "JPEG", exif=exif)).pixels.shape == (16, 24, 3)


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP", "MPO"])
def test_the_first_frame_of_a_moving_picture_is_taken(reader: PictureReader, form: str) -> None:
    frames = [Image.new("RGB", (20, 10), colour) for colour in (RED, BLUE, WHITE)]
    data = encoded(frames[0], form, save_all=True, append_images=frames[1:], lossless=True)
    assert np.abs(reader.read(data).pixels.astype(int) - RED).max() <= (2 if form == "MPO" else 0)


@pytest.mark.parametrize(
    ("size", "shrunk"),
    [
        ((512, 512), (512, 512)),
        ((513, 513), (512, 512)),
        ((1024, 1300), (512, 650)),
        ((1300, 1000), (666, 512)),
        ((1, 1), (1, 1)),
        ((1, 9000), (1, 4096)),
        ((1, 4096), (1, 4096)),
        ((6000, 600), (4096, 410)),
    ],
)
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_large_pictures_are_shrunk_and_small_ones_never_enlarged(
    reader: PictureReader, form: str, size: tuple[int, int], shrunk: tuple[int, int]
) -> None:
    picture = reader.read(encoded(Image.new("RGB", size, RED), form))
    assert picture.pixels.shape == (shrunk[1], shrunk[0], 3)
    assert (picture.width, picture.height) == size
    assert np.abs(picture.pixels.astype(int) - RED).max() <= 2


def test_a_shrunk_jpeg_is_what_shrinking_it_as_a_whole_gives(reader: PictureReader) -> None:
    """Decoding at half the size is a short cut, not another picture."""
    image = gradient(40, 30).resize((2000, 1500), Image.Resampling.BICUBIC)
    data = encoded(image, "JPEG", quality=95)
    whole = np.asarray(image.resize((683, 512), Image.Resampling.LANCZOS)).astype(int)
    assert np.abs(reader.read(data).pixels - whole).mean() < 3


def test_the_thumbnail_is_a_small_jpeg_without_metadata(reader: PictureReader) -> None:
    exif = Image.Exif()
    exif[0x010E] = "private words"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = encoded(gradient(900, 600), "JPEG", exif=exif, icc_profile=profile, comment=b"private words")
    thumbnail = reader.read(data).thumbnail
    with Image.open(io.BytesIO(thumbnail)) as image:
        assert (image.format, image.size) == ("JPEG", (320, 213))
        assert not {"exif", "icc_profile", "comment"} & set(image.info)
    assert b"private" in data and b"private" not in thumbnail
    assert len(thumbnail) < 2**15


def test_the_digest_is_that_of_the_file(reader: PictureReader) -> None:
    data = plain(RED)
    assert reader.read(data).digest == hashlib.blake2b(data, digest_size=16).hexdigest()


def test_paths_and_bytes_give_the_same(reader: PictureReader, tmp_path: Path) -> None:
    path = tmp_path / "name without ending"
    path.write_bytes(plain(RED))
    for source in (path, str(path)):
        assert reader.read(source).digest == reader.read(plain(RED)).digest


# Refusals


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["an empty file", "download"]),
        (b"hello\n", ["expected a JPEG, PNG, WEBP, BMP or GIF picture", "a text file"]),
        (b"\xef\xbb\xbf" + "größer".encode() * 400, ["a text file"]),
        (b'<?xml version="1.0"?>\n<svg xmlns="">', ["an SVG drawing", "PNG"]),
        (b"<!DOCTYPE html><title>404</title>", ["a web page", "download"]),
        (b"%PDF-1.7\n", ["a PDF document", "export"]),
        (b"%!PS-Adobe-3.0 EPSF", ["EPS"]),
        (b"II*\0\x08\0\0\0", ["TIFF", "save it as JPEG or PNG"]),
        (b"\0\0\0\x18ftypheic\0\0\0\0", ["HEIC", "export it as JPEG"]),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", ["HEIC"]),
        (b"\0\0\0\x18ftypavif\0\0\0\0", ["AVIF"]),
        (b"\0\0\0\x18ftypisom\0\0\0\0", ["a video"]),
        (b"version https://git-lfs.github.com/spec/v1\n", ["git lfs pull"]),
        (b"PK\x03\x04" + bytes(40), ["ZIP"]),
        (bytes(range(256)), ["another kind"]),
        (bytes(2000), ["another kind"]),
        (b"\xff\xfe" * 700, ["another kind"]),
        (b"RIFF\0\0\0\0WAVEfmt ", ["another kind"]),
        (encoded(gradient(), "JPEG")[:-200], ["ends too early", "download it again"]),
        (encoded(gradient())[:60], ["ends too early"]),
        (encoded(gradient())[:20], ["ends too early"]),
        (encoded(gradient()).replace(b"\0\0\0\x10", b"\0\0\0\x11"), ["the picture is damaged", "save it"]),
    ],
)
def test_a_refusal_says_what_came_and_what_to_do(
    reader: PictureReader, data: bytes, words: list[str]
) -> None:
    message = refusal(reader, data)
    assert [word for word in words if word not in message] == []
    assert "0x" not in message and "BytesIO" not in message


def test_a_refused_file_is_named(reader: PictureReader, tmp_path: Path) -> None:
    for name, data in {"text.jpg": b"hello", "cut.jpg": plain(RED)[:40]}.items():
        (tmp_path / name).write_bytes(data)
        assert refusal(reader, tmp_path / name).startswith(f"{tmp_path / name}: ")
    assert "a directory" in refusal(reader, tmp_path)
    assert "null" in refusal(reader, "a\0b.jpg")


def test_a_missing_file_is_missing(reader: PictureReader, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        reader.read(tmp_path / "none.jpg")
    (value,) = reader.read_many([tmp_path / "none.jpg"])
    assert isinstance(value, PictureError) and str(value).startswith(
        f"{tmp_path / 'none.jpg'}: expected a file"
    )


def test_a_forbidden_file_is_refused(reader: PictureReader, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reader_module, "open_regular", forbid)
    assert refusal(reader, "secret.jpg").startswith("secret.jpg: expected a file that may be read")


def test_neither_bytes_nor_path_is_an_error_of_the_caller(reader: PictureReader) -> None:
    with pytest.raises(InvalidInput, match="bytes or a path"):
        reader.read(7)  # type: ignore[arg-type]


def test_at_the_limit_and_one_more(tmp_path: Path) -> None:
    data, path = plain(RED, (8, 6)), tmp_path / "a.png"
    path.write_bytes(data)
    with PictureReader(limits=PictureLimits(max_bytes=len(data), max_pixels=48)) as exact:
        assert exact.read(data).width == exact.read(path).width == 8
        assert "the picture declares 7 x 7" in refusal(exact, plain(RED, (7, 7)))
    with PictureReader(limits=PictureLimits(max_bytes=len(data) - 1)) as less:
        for source in (data, path):
            message = f"at most {len(data) - 1} bytes, got {len(data)} bytes"
            assert message in refusal(less, source)


def test_pixels_are_counted_in_every_format() -> None:
    with PictureReader(limits=PictureLimits(max_pixels=1_000_000)) as reader:
        for form in FORMATS:
            data = encoded(Image.new("L", (1000, 1001)), form)
            assert "at most 1 million pixels, the picture declares 1000 x 1001" in refusal(reader, data)
            assert reader.read(encoded(Image.new("L", (1000, 1000)), form)).width == 1000


def test_a_file_that_grows_while_it_is_read_is_refused(
    tmp_path: Path, reader: PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(plain(RED))
    with PictureReader(limits=PictureLimits(max_bytes=10)) as small:
        real, sizes = reader_module._check_size, []
        monkeypatch.setattr(
            reader_module,
            "_check_size",
            lambda size, limits: real(size, limits) if sizes else sizes.append(size),
        )
        assert "got 11 bytes" in refusal(small, path)
