"""Files that appear whole or not at all, and never in the place of others unless asked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from crossbyte.model.storage import check_free, flush_folder

__all__ = ["Path", "staged"]

Path = str | os.PathLike[str]


@contextmanager
def staged(paths: Sequence[Path], *, overwrite: bool) -> Iterator[list[str]]:
    """Give names to write to; when the block ends well, the files take their places, the last one last.

    On any failure before that, what was there is untouched and nothing is left behind. The last file is the
    one that matters: old companions are never beside a new one, nor new ones beside an old one.

    Parameters
    ----------
    paths : sequence of path-like
        In folders that are there.
    overwrite : bool
        Whether files may be replaced.

    Raises
    ------
    InvalidInput
        Something is there already, or is no regular file.
    OSError
        The system refused, for example FileNotFoundError for a folder that is not there.
    """
    targets = [os.path.realpath(os.fspath(path)) for path in paths]  # so that a link stays a link
    _check_all_free(targets, overwrite)
    names = [
        os.path.join(os.path.dirname(path), f".crossbyte-{secrets.token_hex(8)}.tmp") for path in targets
    ]
    try:
        yield names
        for name in names:
            _flush(name)
        _check_all_free(targets, overwrite)
        _put_in_place(names, targets)
    finally:
        for name in names:
            with suppress(OSError):  # in its place already, or never made
                os.unlink(name)


def _check_all_free(targets: Sequence[str], overwrite: bool) -> None:
    for path in targets:
        check_free(path, overwrite=overwrite)


def _put_in_place(names: Sequence[str], targets: Sequence[str]) -> None:
    if len(targets) > 1:
        with suppress(FileNotFoundError):
            os.unlink(targets[-1])
    for name, target in zip(names, targets, strict=True):
        os.replace(name, target)
    for folder in {os.path.dirname(target) for target in targets}:
        flush_folder(folder)


def _flush(name: str) -> None:
    with open(name, "rb+") as file:
        os.fsync(file.fileno())
