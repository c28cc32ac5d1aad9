"""Hostile and damaged pictures are refused by name: no crash, no hang, no gigabyte; no child is believed."""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossbyte.data.images import decoder as decoder_module
from crossbyte.data.images.formats import Picture, PictureLimits
from crossbyte.data.images.protocol import read_answer, read_request, send_answer
from crossbyte.data.images.reader import PictureReader
from crossbyte.data.sandbox import ChildEnded, ChildRefused
from crossbyte.errors import PictureError
from support import hostile_pictures
from support.mutations import mutated
from support.paths import with_tests
from support.picture_samples import encoded, gradient


def test_the_corpus_is_refused_by_one_living_process(tmp_path: Path) -> None:
    """The time limit is there against hangs only."""
    paths = hostile_pictures.write_corpus(tmp_path)
    assert len(paths) > 170
    program = [sys.executable, "-m", "support.hostile_pictures", *map(str, paths)]
    answer = subprocess.run(program, env=with_tests(), stdout=subprocess.PIPE, timeout=300, check=True)
    told = json.loads(answer.stdout)
    wrong = {
        name: outcome
        for name, outcome in told["outcomes"].items()
        if (outcome == "read") != name.startswith("ok-") or outcome.startswith("unnamed")
    }
    assert wrong == {} and len(told["outcomes"]) == len(paths)
    # each is refused for what it is, and none by the clock or by a crash
    assert [
        name for name, outcome in told["outcomes"].items() if "longer" in outcome or "crash" in outcome
    ] == []
    assert told["grown_bytes"] < 2**28


def test_little_to_send_and_much_to_decode_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "_WALL_FACTOR", 1000)  # the limit of CPU time is meant
    data = hostile_pictures.many_scans(400)
    assert len(data) < 2**21
    with PictureReader(limits=PictureLimits(seconds=0.5)) as reader:
        with pytest.raises(PictureError, match=r"decoded in 0.5 s, this one took longer"):
            reader.read(data)
        assert reader.read(encoded(gradient())).width == 24


def seeds() -> list[bytes]:
    """Small files of every format and of many modes."""
    image = gradient(40, 30)
    exif = Image.Exif()
    exif[0x0112] = 6
    return [
        encoded(image, "JPEG", exif=exif),
        encoded(image, "JPEG", progressive=True),
        encoded(image.convert("CMYK"), "JPEG"),
        encoded(image, "PNG", exif=exif),
        encoded(image.convert("P"), "PNG", transparency=3),
        encoded(image.convert("RGBA"), "PNG"),
        encoded(image.convert("L").convert("I;16"), "PNG"),
        encoded(image, "BMP"),
        encoded(image.convert("P"), "BMP"),
        encoded(image.convert("P"), "GIF"),
        encoded(image, "WEBP"),
        encoded(image.convert("RGBA"), "WEBP", lossless=True),
        hostile_pictures.moving("PNG", 3),
        hostile_pictures.moving("GIF", 3),
        hostile_pictures.moving("WEBP", 3),
        hostile_pictures.bmp(9, 9, 8, 1, bytes(1024) + b"\x03\x07\0\x02\x01\x01" * 20, offset=1078),
    ]


def mutations(count: int, seed: int) -> Iterator[bytes]:
    chance, good = random.Random(seed), seeds()
    for _ in range(count):
        data = chance.choice(good)
        keep = chance.choice((3, 12, 32))  # most changes shall come to the decoder
        yield data[:keep] + mutated(chance, data[keep:])


def outcomes(count: int, seed: int) -> tuple[int, int]:
    """Read mutations in one reader; return how many were read and how many refused, all told."""
    n_read = n_refused = 0
    with PictureReader(n_children=2) as reader:
        for value in reader.read_many(mutations(count, seed)):
            if isinstance(value, Picture):
                assert value.pixels.shape[2] == 3 and value.thumbnail.startswith(b"\xff\xd8\xff")
                n_read += 1
            else:
                assert isinstance(value, PictureError) and 20 < len(str(value)) < 400
                n_refused += 1
        sound = reader.read(encoded(gradient()))
        assert np.array_equal(sound.pixels, np.asarray(gradient()))  # after all of them
    return n_read, n_refused


def test_mutations_give_a_picture_or_a_refusal() -> None:
    n_read, n_refused = outcomes(400, seed=0)
    assert n_read + n_refused == 400
    assert min(n_read, n_refused) > 40  # the mutations are neither too mild nor too wild


@pytest.mark.long
def test_thousands_of_mutations_give_a_picture_or_a_refusal() -> None:
    n_read, n_refused = outcomes(6000, seed=1)
    assert n_read + n_refused == 6000


@pytest.mark.long
@pytest.mark.parametrize("number", range(16))
def test_every_place_to_cut_gives_a_picture_or_a_refusal(number: int) -> None:
    data = seeds()[number]
    step = 1 + len(data) // 500
    with PictureReader(n_children=2) as reader:
        values = list(reader.read_many(data[:place] for place in range(0, len(data), step)))
    assert all(isinstance(value, Picture | PictureError) for value in values)
    assert isinstance(values[0], PictureError) and isinstance(values[len(values) // 3], PictureError)


# A child that a file has taken over may say anything


def said(head: Any, n_pixels: int, n_thumbnail: int, body: bytes = b"") -> io.BytesIO:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return io.BytesIO(struct.pack("<3I", len(text), n_pixels, n_thumbnail) + text + body)


JPEG = b"\xff\xd8\xff\xff\xd9"


def test_a_right_answer_is_believed() -> None:
    answer = read_answer(said({"size": [20, 10], "shrunk": [2, 1]}, 6, 5, b"abcdef" + JPEG), PictureLimits())
    assert (answer.width, answer.height, answer.pixels.tobytes(), answer.thumbnail) == (
        20,
        10,
        b"abcdef",
        JPEG,
    )
    assert answer.pixels.shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("head", "n_pixels", "n_thumbnail", "body"),
    [
        (b"", 0, 0, b""),
        (b"[]", 0, 0, b""),
        (b"7", 0, 0, b""),
        (b"\xff\xff", 0, 0, b""),
        (b"[" * 4000, 0, 0, b""),
        (b" " * 5000, 0, 0, b""),
        ({}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10], "shrunk": [2, 1]}, 7, 5, b"abcdefg" + JPEG),
        ({"size": [20, 10], "shrunk": [2, 1]}, 2**32 - 1, 5, b""),
        ({"size": [20, 10], "shrunk": [2, 1]}, 6, 2**32 - 1, b"abcdef"),
        ({"size": [20, 10], "shrunk": [2, 1]}, 6, 2**19 + 1, b"abcdef" + bytes(2**19 + 1)),
        ({"size": [20, 10], "shrunk": [2, 1]}, 6, 5, b"abc"),
        ({"size": [20, 10], "shrunk": [2, 1]}, 6, 5, b"abcdef<html"),
        ({"size": [20, 10], "shrunk": [-2, -1]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10], "shrunk": [0, 0]}, 0, 5, JPEG),
        ({"size": [20, 10], "shrunk": [2.0, 1]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10], "shrunk": [True, 2]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10], "shrunk": [2, 1, 1]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10], "shrunk": "21"}, 6, 5, b"abcdef" + JPEG),
        ({"size": [20, 10], "shrunk": [4097, 1]}, 3 * 4097, 5, bytes(3 * 4097) + JPEG),
        ({"size": [20, 10], "shrunk": [4096, 513]}, 3 * 4096 * 513, 5, bytes(3 * 4096 * 513) + JPEG),
        ({"size": [20_000, 20_000], "shrunk": [2, 1]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [10**30, 1], "shrunk": [2, 1]}, 6, 5, b"abcdef" + JPEG),
        ({"size": [None, 1], "shrunk": [2, 1]}, 6, 5, b"abcdef" + JPEG),
    ],
)
def test_a_lying_answer_is_not_believed(head: Any, n_pixels: int, n_thumbnail: int, body: bytes) -> None:
    with pytest.raises(ChildEnded):
        read_answer(said(head, n_pixels, n_thumbnail, body), PictureLimits())


def test_the_reason_of_a_child_is_only_words() -> None:
    head = {"refused": "damaged", "reason": "\x1b[2J<script>\n" + "a" * 3000 + "é"}
    with pytest.raises(ChildRefused) as caught:
        read_answer(said(head, 0, 0), PictureLimits())
    assert caught.value.message == "[2Jscript" + "a" * 191


def test_requests_and_answers_pass_through_pipes() -> None:
    assert read_request(io.BytesIO(struct.pack("<Q", 3) + b"abc")) == b"abc"
    for cut in (b"", b"\x03\0\0", struct.pack("<Q", 3) + b"ab"):
        assert read_request(io.BytesIO(cut)) is None
    out = io.BytesIO()
    send_answer(out, {"size": (20, 10), "shrunk": (2, 1)}, b"abcdef", JPEG)
    out.seek(0)
    assert read_answer(out, PictureLimits()).pixels.tobytes() == b"abcdef"
