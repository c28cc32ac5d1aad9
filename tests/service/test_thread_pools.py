"""Work in threads: in turns where it is quick, and nobody waits long for what is slow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.thread_pools import ThreadPool

_PATIENCE = 30.0  # seconds, on a busy machine


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    made = ThreadPool("test", 3, 100, in_turns=True)
    yield made
    made.close()


def test_many_results_arrive_each_where_it_is_waited_for(pool: ThreadPool) -> None:
    async def ask() -> list[int]:
        return await asyncio.gather(*(pool.run(lambda n=n: n * n) for n in range(80)))

    assert asyncio.run(ask()) == [n * n for n in range(80)]


def test_quick_work_is_done_one_after_the_other(pool: ThreadPool) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.0005)
        inside.pop()

    async def ask() -> None:
        for _ in range(10):
            await asyncio.gather(*(pool.run(work) for _ in range(3)))

    asyncio.run(ask())
    assert most.count(1) > len(most) / 2  # a busy machine may make quick work slow


def test_slow_work_holds_up_neither_the_others_nor_their_results(pool: ThreadPool) -> None:
    release = threading.Event()

    async def ask() -> list[int]:
        slow = [asyncio.ensure_future(pool.run(release.wait, _PATIENCE)) for _ in range(2)]
        await asyncio.sleep(0.01)
        quick = [asyncio.ensure_future(pool.run(lambda n=n: n)) for n in range(7)]
        found = await asyncio.wait_for(asyncio.gather(*quick), _PATIENCE / 2)
        assert not any(each.done() for each in slow)
        release.set()
        assert await asyncio.gather(*slow) == [True, True]
        return found

    assert asyncio.run(ask()) == list(range(7))


def test_who_gives_up_before_it_begins_leaves_no_trace(pool: ThreadPool) -> None:
    release, begun = threading.Event(), []

    async def ask() -> None:
        slow = [asyncio.ensure_future(pool.run(release.wait, _PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0.2)  # until all threads have something to do
        waiting = [asyncio.ensure_future(pool.run(begun.append, n)) for n in range(5)]
        await asyncio.sleep(0.01)
        for each in waiting:
            each.cancel()
        assert all(
            isinstance(e, asyncio.CancelledError)
            for e in await asyncio.gather(*waiting, return_exceptions=True)
        )
        release.set()
        await asyncio.gather(*slow)
        assert await pool.run(int) == 0

    asyncio.run(ask())
    assert begun == []


def test_errors_come_out_and_too_much_is_refused(pool: ThreadPool) -> None:
    release = threading.Event()

    async def ask() -> None:
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 / 0)
        many = [asyncio.ensure_future(pool.run(release.wait, _PATIENCE)) for _ in range(103)]
        await asyncio.sleep(0)
        with pytest.raises(RequestRefused, match="same time"):
            await pool.run(int)
        release.set()
        await asyncio.gather(*many)

    asyncio.run(ask())


def test_what_has_not_begun_when_the_server_stops_is_told_so(pool: ThreadPool) -> None:
    release = threading.Event()

    async def ask() -> None:
        slow = [asyncio.ensure_future(pool.run(release.wait, _PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0.2)
        late = asyncio.ensure_future(pool.run(int))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(asyncio.to_thread(pool.close))
        with pytest.raises(RequestRefused, match="stopping"):
            await asyncio.wait_for(late, _PATIENCE)
        release.set()
        await asyncio.gather(*slow, closing)
        with pytest.raises(RequestRefused, match="stopping"):
            await pool.run(int)

    asyncio.run(ask())
