"""The processes that decode pictures come and go unnoticed: limits, deaths, threads, many at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossbyte.data.images import decoder as decoder_module
from crossbyte.data.images import reader as reader_module
from crossbyte.data.images.formats import Picture, PictureLimits
from crossbyte.data.images.reader import PictureReader
from crossbyte.errors import InvalidInput, PictureError
from support.hostile_pictures import bomb_of_49_million_pixels
from support.picture_samples import encoded, plain, refusal

RED, BLUE = (255, 0, 0), (0, 0, 255)


def child_of(reader: PictureReader, number: int = 0) -> int:
    """Return the process id of a child that has started."""
    process = reader._pool._decoders[number]._process
    assert process is not None
    return process.pid


def is_gone(pid: int) -> bool:
    """Whether a process ended; a zombie of another process than ours has ended too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until(happened: Callable[[], bool]) -> None:
    """Poll; the limit is there against hangs only."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


# Limits and deaths


def test_cpu_time_is_limited_for_each_picture_and_not_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "_WALL_FACTOR", 1000)  # a busy machine shall not matter
    slow = bomb_of_49_million_pixels()
    with PictureReader(limits=PictureLimits(seconds=0.03)) as reader:
        assert "decoded in 0.03 s, this one took longer" in refusal(reader, slow)
        medium = encoded(Image.new("RGB", (500, 500)), compress_level=1)
        assert [reader.read(medium).width for _ in range(25)] == [500] * 25
        pid = child_of(reader)
        assert reader.read(medium).width == 500 and child_of(reader) == pid


def test_a_child_that_hangs_is_replaced() -> None:
    with PictureReader(limits=PictureLimits(seconds=0.7)) as reader:
        reader.read(plain(RED))
        stuck = child_of(reader)
        os.kill(stuck, signal.SIGSTOP)
        assert "took longer" in refusal(reader, plain(RED))
        assert is_gone(stuck)
        assert reader.read(plain(RED)).width == 8 and child_of(reader) != stuck


def test_memory_is_limited() -> None:
    big = bomb_of_49_million_pixels(transparent=True)  # 400 MB and more in between; it starts with 110
    with PictureReader(limits=PictureLimits(memory=400 * 2**20)) as reader:
        reader.read(plain(RED))
        assert "within 400 MiB of memory" in refusal(reader, big)
        assert reader.read(plain(RED)).width == 8


def killing(reader: PictureReader, number: int, times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Send a signal to the child just before a request reaches it, so many times; return whom it met."""
    real, met = decoder_module.send_request, []

    def kill_and_send(out: Any, data: bytes) -> None:
        if len(met) < times:
            met.append(child_of(reader))
            os.kill(met[-1], number)
        real(out, data)

    monkeypatch.setattr(decoder_module, "send_request", kill_and_send)
    return met


def test_a_child_that_is_killed_in_the_middle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with PictureReader() as reader:
        met = killing(reader, signal.SIGKILL, 1, monkeypatch)
        assert reader.read(plain(RED)).width == 8  # the second child decided
        assert is_gone(met[0]) and child_of(reader) != met[0]


def test_a_picture_that_crashes_two_children_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    with PictureReader() as reader:
        met = killing(reader, signal.SIGSEGV, 2, monkeypatch)
        assert "the picture crashed its decoder (signal 11)" in refusal(reader, plain(RED))
        assert len(set(met)) == 2 and all(map(is_gone, met))
        assert reader.read(plain(RED)).width == 8


def test_a_child_that_died_idle_is_replaced() -> None:
    with PictureReader() as reader:
        reader.read(plain(RED))
        pid = child_of(reader)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid))
        assert reader.read(plain(RED)).width == 8 and child_of(reader) != pid


def test_a_child_serves_its_time_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "_PICTURES_PER_CHILD", 2)
    pids = []
    with PictureReader() as reader:
        for _ in range(4):
            reader.read(plain(RED))
            pids.append(child_of(reader))
    assert pids[0] == pids[1] != pids[2] == pids[3]
    assert all(map(is_gone, pids))


@pytest.mark.parametrize("fault", ["starts-and-ends", "cannot-be-started"])
def test_children_that_do_not_start_are_an_error_and_no_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    if fault == "starts-and-ends":
        monkeypatch.setattr(decoder_module, "_PROGRAM", "raise SystemExit(3)")
    else:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with PictureReader() as reader:
        assert "did not start" in refusal(reader, plain(RED))


def test_ctrl_c_in_the_middle_leaves_nothing_half_read(monkeypatch: pytest.MonkeyPatch) -> None:
    real = decoder_module.read_answer

    def interrupt(pipe: Any, limits: PictureLimits) -> Any:
        monkeypatch.setattr(decoder_module, "read_answer", real)
        raise KeyboardInterrupt

    with PictureReader() as reader:
        monkeypatch.setattr(decoder_module, "read_answer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            reader.read(plain(RED))
        assert np.array_equal(reader.read(plain(BLUE)).pixels[0, 0], BLUE)


def test_closing_ends_the_children_and_refuses_more() -> None:
    reader = PictureReader(n_children=2)
    list(reader.read_many([plain(RED)] * 10))
    pids = [d._process.pid for d in reader._pool._decoders if d._process is not None]
    reader.close()
    reader.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):  # reaped: not even a zombie is left
            os.kill(pid, 0)
    with pytest.raises(InvalidInput, match="closed"):
        reader.read(plain(RED))
    with pytest.raises(InvalidInput, match="closed"):
        list(reader.read_many([plain(RED)]))


def test_closing_while_others_read_lets_them_go() -> None:
    reader = PictureReader()
    reader.read(plain(RED))
    os.kill(child_of(reader), signal.SIGSTOP)  # one thread waits for it, the others for the first
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(reader.read, plain(RED)) for _ in range(3)]
        wait_until(lambda: reader._pool._idle.empty())
        reader.close()
        assert all(isinstance(future.exception(), InvalidInput) for future in waiting)


def test_a_forgotten_reader_ends_its_children() -> None:
    reader = PictureReader()
    reader.read(plain(RED))
    pid = child_of(reader)
    del reader
    wait_until(lambda: is_gone(pid))


def test_a_reader_is_not_used_across_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    with PictureReader() as reader:
        monkeypatch.setattr(reader, "_process_id", -1)
        with pytest.raises(InvalidInput, match="fork"):
            reader.read(plain(RED))


@pytest.mark.parametrize("n_children", [0, -1])
def test_there_must_be_a_child(n_children: int) -> None:
    with pytest.raises(InvalidInput, match="n_children"):
        PictureReader(n_children=n_children)


PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also as a job in the background
from crossbyte.data.images.reader import PictureReader
reader = PictureReader()
reader.read(sys.argv[1])
assert "PIL" not in sys.modules, "only children decode"
print(reader._pool._decoders[0]._process.pid, flush=True)
"""
ENDINGS = {
    "exit": "",
    "exception": "raise SystemExit('bye')",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "Ctrl-C": """
try:
    os.killpg(os.getpgid(0), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    assert reader.read(sys.argv[1]).width == 8
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_children_end_with_their_parent_and_say_nothing(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(plain(RED))
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM + ENDINGS[ending], str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, start_new_session=True)
    assert done.stderr == ("bye\n" if ending == "exception" else "")
    assert done.returncode == {"exception": 1, "killed": -signal.SIGKILL}.get(ending, 0)
    wait_until(lambda: is_gone(int(done.stdout)))


# Many


def colours(count: int) -> list[tuple[int, int, int]]:
    return [(number % 256, number * 7 % 256, 255 - number % 256) for number in range(count)]


@pytest.mark.parametrize("n_children", [1, 2])
def test_many_come_in_order_with_errors_in_their_places(tmp_path: Path, n_children: int) -> None:
    wanted, sources = colours(60), []
    for number, colour in enumerate(wanted):
        data = b"text" if number % 7 == 3 else plain(colour, (8 + number * 20 % 600, 6))  # of unlike cost
        sources.append(tmp_path / f"{number}.png" if number % 2 else data)
        if number % 2:
            (tmp_path / f"{number}.png").write_bytes(data)
    with PictureReader(n_children=n_children) as reader:
        values = list(reader.read_many(iter(sources)))
    assert len(values) == 60
    for number, (value, colour) in enumerate(zip(values, wanted, strict=True)):
        if number % 7 == 3:
            assert isinstance(value, PictureError)
        else:
            assert isinstance(value, Picture) and tuple(value.pixels[0, 0]) == colour


def test_many_are_taken_only_a_few_ahead() -> None:
    taken = 0

    def sources() -> Iterator[bytes]:
        nonlocal taken
        while True:  # an endless source is fine
            taken += 1
            yield plain(RED)

    with PictureReader(n_children=2) as reader:
        values = reader.read_many(sources())
        for _ in range(5):
            next(values)
        assert taken <= 5 + 2 * reader_module._AHEAD
        values.close()  # type: ignore[attr-defined]
        assert not [thread for thread in threading.enumerate() if "crossbyte-pictures" in thread.name]
        assert reader.read(plain(RED)).width == 8


def test_none_are_none() -> None:
    with PictureReader() as reader:
        assert list(reader.read_many([])) == []


def test_an_error_of_the_source_is_the_callers() -> None:
    def sources() -> Iterator[bytes]:
        yield plain(RED)
        raise RuntimeError("the list broke")

    with PictureReader() as reader, pytest.raises(RuntimeError, match="the list broke"):
        list(reader.read_many(sources()))


@pytest.mark.parametrize("n_children", [1, 3])
def test_many_threads_get_each_their_own_picture(n_children: int) -> None:
    wanted = colours(120)
    with PictureReader(n_children=n_children) as reader, ThreadPoolExecutor(12) as threads:
        pictures = list(threads.map(reader.read, map(plain, wanted)))
    assert [tuple(picture.pixels[0, 0]) for picture in pictures] == wanted


def test_threads_survive_children_that_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request in ten meets a child that was just killed; every picture still comes, and is right."""
    real, lock, count = decoder_module.Decoder._ensure_child, threading.Lock(), iter(range(10**6))

    def ready(decoder: decoder_module.Decoder) -> Any:
        process = real(decoder)
        with lock:
            unlucky = next(count) % 10 == 0
        if unlucky and decoder._quota < decoder_module._PICTURES_PER_CHILD - 1:  # never two for one picture
            process.send_signal(signal.SIGKILL)
        return process

    monkeypatch.setattr(decoder_module.Decoder, "_ensure_child", ready)
    wanted = colours(60)
    with PictureReader(n_children=2) as reader, ThreadPoolExecutor(6) as threads:
        pictures = list(threads.map(reader.read, map(plain, wanted)))
    assert [tuple(picture.pixels[0, 0]) for picture in pictures] == wanted
