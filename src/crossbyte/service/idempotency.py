"""Answer a write that is sent again as it was answered first: ``Idempotency-Key``.

A client that got no answer cannot know whether its write happened. With a key it sends the same again, and is
told what happened. Only writes that happened are remembered: a refused one has changed nothing, and is judged
anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b
from typing import Any

from starlette.requests import Request

from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.settings import LIMITS

HEADER = "Idempotency-Key"
REPEATED = {"Idempotent-Replayed": "true"}


class _Write:
    """One write: what was asked, and what was answered once it has happened."""

    def __init__(self, digest: bytes) -> None:
        self.digest, self.ended = digest, asyncio.Event()
        self.answer: dict[str, Any] | None = None


class RememberedWrites:
    """The last writes that came with a key; used by the event loop alone."""

    def __init__(self) -> None:
        self._writes: dict[str, _Write] = {}

    async def answer_once(
        self, key: str, digest: bytes, write: Callable[[], Awaitable[dict[str, Any]]]
    ) -> tuple[dict[str, Any], bool]:
        """Write, or give the answer of the first time; and whether it is that one.

        Raises
        ------
        RequestRefused
            The key came with another request before.
        """
        while (known := self._writes.get(key)) is not None:
            if known.digest != digest:
                raise RequestRefused("key_reused", None, "use a new key for every request")
            if known.answer is not None:
                return known.answer, True
            await known.ended.wait()  # if that one failed, this one is the first
        own = self._writes[key] = _Write(digest)
        try:
            own.answer = await write()
        finally:
            own.ended.set()
            if own.answer is None:
                del self._writes[key]
        self._forget_oldest()
        return own.answer, False

    def _forget_oldest(self) -> None:
        """Forget the oldest that are answered, so that memory is bounded."""
        n_more = len(self._writes) - LIMITS.keys
        if n_more > 0:
            answered = (key for key, each in self._writes.items() if each.answer is not None)
            for key in [key for _, key in zip(range(n_more), answered, strict=False)]:
                del self._writes[key]


def read_key(request: Request) -> str | None:
    """Read the key of a request; None if it has none.

    Raises
    ------
    RequestRefused
    """
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1 or not 1 <= len(given[0]) <= LIMITS.key_chars or not given[0].isascii():
        message = f"{HEADER}: expected one of 1 to {LIMITS.key_chars} ASCII characters"
        raise RequestRefused("invalid_request", message)
    return given[0]


def digest_request(request: Request, parts: Iterable[bytes]) -> bytes:
    """Make a digest of what a request asks for: its path, and the parts of its body."""
    digest = blake2b(request.url.path.encode(), digest_size=32)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
