"""What encoding works with: the reader of pictures, and the kept features and thumbnails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crossbyte.arrays import Raw
from crossbyte.encoders.protocol import EncoderState
from crossbyte.executors.threads import available_cores
from crossbyte.gallery.beside import Beside
from crossbyte.gallery.cache import FeatureCache, digest_of_file
from crossbyte.gallery.thumbnails import Thumbnail, Thumbnails
from crossbyte.progress import ProgressCallback
from crossbyte.search.ids import Id

if TYPE_CHECKING:
    from crossbyte.data.pictures.picture import Picture, PictureLimits
    from crossbyte.data.pictures.reader import PictureReader

__all__ = ["Workshop"]


@dataclass(frozen=True)
class Workshop:
    """Hold what encoding works with, open files and processes; made by :meth:`open`.

    Attributes
    ----------
    cache : FeatureCache
    thumbnails : Thumbnails or None
        None where none are wanted.
    reader : PictureReader
    limits : PictureLimits
    callback : callable
    """

    cache: FeatureCache
    thumbnails: Thumbnails | None
    reader: PictureReader
    limits: PictureLimits
    callback: ProgressCallback

    @classmethod
    @contextmanager
    def open(
        cls, beside: Beside, *, thumbnails: bool, n_jobs: int | None, callback: ProgressCallback
    ) -> Iterator[Workshop]:
        """Open everything, and close it after the block."""
        from crossbyte.data.pictures.picture import PictureLimits
        from crossbyte.data.pictures.reader import PictureReader

        beside.make()
        limits = PictureLimits()
        n_children = available_cores() if n_jobs is None or n_jobs < 1 else n_jobs
        with ExitStack() as stack:
            cache = stack.enter_context(closing(FeatureCache(beside.features)))
            small = stack.enter_context(closing(Thumbnails.write(beside.thumbnails))) if thumbnails else None
            reader = stack.enter_context(PictureReader(limits=limits, n_children=n_children))
            yield cls(cache, small, reader, limits, callback)

    def digest(self, path: Path) -> str | None:
        """Digest of a picture's file, before it is decoded."""
        return digest_of_file(path, self.limits.max_bytes)

    def has_thumbnail(self, id: Id, digest: str) -> bool:
        """Whether a document's thumbnail need not be made."""
        return self.thumbnails is None or self.thumbnails.digest(id) == digest

    def keep(
        self, encoder: EncoderState, ids: Sequence[Id], pictures: Sequence[Picture], features: Raw
    ) -> None:
        """Keep the features and thumbnails of pictures."""
        digests = [picture.digest for picture in pictures]
        self.cache.put(encoder, digests, features)
        if self.thumbnails is not None:
            made = zip(ids, pictures, strict=True)
            self.thumbnails.put([Thumbnail(id, each.digest, each.thumbnail) for id, each in made])
