"""The connection that threads share: whoever leaves last closes it, and SIGTERM does what it did before."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from crossbyte.compute import ray_session
from crossbyte.compute.ray_session import LOCAL


class Ray:
    """Puts its own handler of SIGTERM, and leaves it, as Ray does."""

    def __init__(self) -> None:
        self.is_there = False

    def is_initialized(self) -> bool:
        return self.is_there

    def init(self, **_: Any) -> None:
        self.is_there = True
        signal.signal(signal.SIGTERM, lambda *_: None)

    def shutdown(self) -> None:
        self.is_there = False

    def get_runtime_context(self) -> Any:
        return type("Context", (), {"gcs_address": "127.0.0.1:6379"})


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ray]:
    before, found = signal.getsignal(signal.SIGTERM), Ray()
    monkeypatch.setattr(ray_session, "ray_module", lambda: found)
    yield found
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def connection(ray: Ray) -> ray_session._Connection:
    return ray_session._Connection()


def elsewhere(call: Callable[[], object]) -> None:
    """Call in another thread, and raise what it raises."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def test_the_last_one_may_leave_in_another_thread(ray: Ray, connection: ray_session._Connection) -> None:
    before = signal.getsignal(signal.SIGTERM)
    connection.join(LOCAL, 1)
    elsewhere(lambda: connection.join(LOCAL, 1))
    connection.leave()
    assert ray.is_there
    elsewhere(connection.leave)
    assert not ray.is_there
    connection.join(LOCAL, 1)  # the main thread comes by
    connection.leave()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_of_somebody_else_stays(connection: ray_session._Connection) -> None:
    def handler(*_: object) -> None:
        """Not ours."""

    connection.join(LOCAL, 1)
    signal.signal(signal.SIGTERM, handler)
    connection.leave()
    assert signal.getsignal(signal.SIGTERM) is handler
