"""Read users' pictures: from bytes or paths, one or many, from any thread."""

from __future__ import annotations

import os
import queue
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from types import TracebackType
from typing import Self

from crossbyte.data.images.decoder import Decoder, bytes_message
from crossbyte.data.images.formats import Picture, PictureLimits, check_format
from crossbyte.data.images.protocol import DecodedImage
from crossbyte.data.safe_open import PathLike, file_errors, open_regular
from crossbyte.errors import DataFileError, InvalidInput, PictureError

_AHEAD = 4  # pictures per child that `read_many` may hold ready; each takes at most 6 MiB


class PictureReader:
    """Decode pictures in child processes, so that no file can crash, fill or stop this one.

    Children start with the first picture and live for many; one that dies, hangs or passes a limit costs its
    picture and is replaced. All methods may be called from many threads. Close it, or use it in ``with``.

    Parameters
    ----------
    limits : PictureLimits, optional
    n_children : int, default 1
        How many pictures are decoded at the same time.

    Examples
    --------
    >>> with PictureReader() as reader:  # doctest: +SKIP
    ...     reader.read("photo.jpg").pixels.shape
    (375, 500, 3)
    """

    def __init__(self, *, limits: PictureLimits | None = None, n_children: int = 1) -> None:
        if n_children < 1:
            raise InvalidInput(f"expected n_children of at least 1, got {n_children}")
        self.limits = limits or PictureLimits()
        self.n_children = n_children
        self._process_id = os.getpid()
        self._pool = _DecoderPool(self.limits, n_children)
        # runs once: in close(), when the reader is forgotten, or when the interpreter ends
        self._close = weakref.finalize(self, self._pool.close)

    def read(self, source: bytes | PathLike) -> Picture:
        """Read one picture.

        Parameters
        ----------
        source : bytes or path
            The contents of a file, or where it is.

        Returns
        -------
        Picture

        Raises
        ------
        PictureError
            It cannot be decoded, or is refused for its kind or size; the message begins with the path.
        FileNotFoundError
        InvalidInput
            The reader is closed, or was made in another process.
        """
        data = self._load(source)
        try:
            check_format(data)
            answer = self._decode(data)
        except PictureError as error:
            raise _name_source(source, error) from error.__cause__
        digest = blake2b(data, digest_size=16).hexdigest()
        return Picture(answer.pixels, answer.width, answer.height, answer.thumbnail, digest)

    def read_many(self, sources: Iterable[bytes | PathLike]) -> Iterator[Picture | PictureError]:
        """Read many pictures, several at a time.

        Parameters
        ----------
        sources : iterable of bytes or paths
            Read only a few ahead of what was consumed.

        Yields
        ------
        Picture or PictureError
            In the order of the sources. An error takes the place of its picture; a missing file is one too.
        """
        # one thread more than children reads the next file while all children are busy
        pool = ThreadPoolExecutor(self.n_children + 1, thread_name_prefix="crossbyte-pictures")
        ahead: deque[Future[Picture | PictureError]] = deque()
        try:
            for source in sources:
                ahead.append(pool.submit(self._read_or_error, source))
                if len(ahead) > _AHEAD * self.n_children:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """End the children; reads that are under way in other threads fail. A second call does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_or_error(self, source: bytes | PathLike) -> Picture | PictureError:
        try:
            return self.read(source)
        except PictureError as error:
            return error
        except FileNotFoundError:
            missing = PictureError("expected a file, there is none of this name; check the path")
            return _name_source(source, missing)

    def _load(self, source: bytes | PathLike) -> bytes:
        if isinstance(source, bytes):
            _check_size(len(source), self.limits)
            return source
        if not isinstance(source, str | os.PathLike):
            raise InvalidInput(f"expected a picture as bytes or a path, got {type(source).__name__}")
        try:
            with file_errors(source):
                return _load_file(source, self.limits)
        except DataFileError as error:
            raise PictureError(str(error)) from error.__cause__
        except PermissionError as error:
            forbidden = PictureError(
                "expected a file that may be read, the system forbids it; change its mode"
            )
            raise _name_source(source, forbidden) from error

    def _decode(self, data: bytes) -> DecodedImage:
        if os.getpid() != self._process_id:
            raise InvalidInput("this PictureReader was made before a fork; make another in this process")
        with self._pool.borrow() as decoder:
            return decoder.decode(data)


class _DecoderPool:
    """The decoders; one that is not idle belongs to one thread."""

    def __init__(self, limits: PictureLimits, n_children: int) -> None:
        self._decoders = [Decoder(limits) for _ in range(n_children)]
        self._idle: queue.LifoQueue[Decoder] = queue.LifoQueue()  # last in, first out: others need not start
        for decoder in self._decoders:
            self._idle.put(decoder)

    @contextmanager
    def borrow(self) -> Iterator[Decoder]:
        decoder = self._idle.get()
        try:
            yield decoder
        finally:
            self._idle.put(decoder)

    def close(self) -> None:
        """Stop all, so that busy ones return at once, and reap them. They stay, to refuse pictures."""
        for decoder in self._decoders:
            decoder.stop()
        for decoder in [self._idle.get() for _ in self._decoders]:
            decoder.end()
            self._idle.put(decoder)


def _name_source(source: bytes | PathLike, error: PictureError) -> PictureError:
    return error if isinstance(source, bytes) else PictureError(f"{os.fspath(source)}: {error}")


def _check_size(n_bytes: int, limits: PictureLimits) -> None:
    if n_bytes > limits.max_bytes:
        raise PictureError(bytes_message(n_bytes, limits))


def _load_file(path: PathLike, limits: PictureLimits) -> bytes:
    with open_regular(path) as opened:
        _check_size(opened.size, limits)
        data = opened.file.read(limits.max_bytes + 1)  # it may have grown since
    _check_size(len(data), limits)
    return data
