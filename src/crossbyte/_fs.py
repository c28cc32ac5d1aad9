"""Read and write whole files: free names, replacement in one step, bytes flushed to the disk.

A file is never seen half written: it is staged beside its name, flushed, and takes the name in one step. What
differs is what may be in its place: `replace_file` and `stage_files` replace a file (the first keeps its
permissions, the second asks), `rename_to_free_name` never replaces anything.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from crossbyte.errors import ForeignModelFile, InvalidInput, ModelFileError

Path = str | os.PathLike[str]

_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would translate line ends
_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)  # without it, a named pipe waits for a writer for ever
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def new_file_mode() -> int:
    """Give the permissions of new files: their owner's alone, unless ``CROSSBYTE_SHARED_FILES=1``."""
    return 0o666 if _shares_files() else 0o600  # less the umask, as for any new file


def new_folder_mode() -> int:
    """Give the permissions of new folders, as :func:`new_file_mode` does of files."""
    return 0o777 if _shares_files() else 0o700


def _shares_files() -> bool:
    return os.environ.get("CROSSBYTE_SHARED_FILES", "") == "1"


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a name that nothing can be written to, before any long work.

    Parameters
    ----------
    path : path-like
    overwrite : bool
        Whether a regular file may be there.

    Raises
    ------
    FileNotFoundError
        The folder is not there.
    InvalidInput
        The folder may not be written to, or something is there.
    """
    name = os.fspath(path)
    folder = os.path.dirname(os.path.realpath(name))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to; make it first", name)
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"{name}: expected a folder that may be written to; change its permissions")
    if os.path.exists(name) and not os.path.isfile(name):
        raise InvalidInput(f"{name}: expected a regular file or a free name, got a directory or device")
    if os.path.lexists(name) and not overwrite:
        raise InvalidInput(
            f"{name}: expected a free name, but something is there already; choose another, or overwrite=True"
        )


def read_regular_file(path: str, max_bytes: int) -> bytes:
    """Read a whole regular file; type and size are those of the descriptor that is read.

    Parameters
    ----------
    path : str
    max_bytes : int
        Refuse a larger file before reading it.

    Returns
    -------
    bytes

    Raises
    ------
    ForeignModelFile
        A directory, pipe or device.
    ModelFileError
        Too large, or it changed while it was read.
    OSError
        The system refused, for example FileNotFoundError.
    """
    with _open_descriptor(path, os.O_RDONLY | _NONBLOCK | _BINARY) as descriptor:
        size = _check_regular(descriptor, path)
        if size > max_bytes:
            raise ModelFileError(
                f"{path}: expected at most {max_bytes} bytes, got {size}; raise max_bytes if this is a model"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            data = stream.read(size + 1)  # one more, to notice growth
    if len(data) != size:
        raise ModelFileError(f"{path}: the file changed while it was read; try again")
    return data


def replace_file(path: str, data: bytes) -> None:
    """Put `data` in the place of `path` in one step, and onto the disk.

    On any failure before that step, what was there is untouched and the temporary file is removed;
    if only flushing the folder fails, the new file is complete and in place. An existing file keeps
    its permissions; of a symbolic link, the target is replaced.

    Parameters
    ----------
    path : str
    data : bytes

    Raises
    ------
    InvalidInput
        `path` is a directory, pipe or device: a rename would destroy /dev/null as willingly as a file.
    OSError
        The system refused; the message names the file.
    """
    target = os.path.realpath(path)  # so that a link stays a link
    mode = _existing_mode(target)
    folder = os.path.dirname(target)
    staged = _name_beside(target)
    with (
        _name_file_in_errors(target, "before the old file was touched"),
        _open_folder(folder) as folder_descriptor,
    ):
        try:
            _write_and_flush(staged, data, mode)
            os.replace(staged, target)
        finally:
            with suppress(OSError):  # gone already after the rename; never hide the first error
                os.unlink(staged)
        with _name_file_in_errors(target, "after the new file was put in place"):
            _flush_folder_descriptor(folder_descriptor)


@contextmanager
def stage_files(paths: Sequence[Path], *, overwrite: bool) -> Iterator[list[str]]:
    """Yield names to write to; when the block ends well, the files take their places, the last one last.

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
    staged = [_name_beside(target) for target in targets]
    try:
        yield staged
        for name in staged:
            if not _shares_files():
                os.chmod(name, new_file_mode())
            flush_file(name)
        _check_all_free(targets, overwrite)
        _replace_all(staged, targets)
    finally:
        for name in staged:
            with suppress(OSError):  # in its place already, or never made
                os.unlink(name)


def rename_to_free_name(staged: str, target: str, claim: Callable[[str], None]) -> None:
    """Give a file its name without ever replacing another: a rename would.

    Where the file system has links, the name `staged` remains and is the caller's to remove.

    Parameters
    ----------
    staged, target : str
        In one folder.
    claim : callable
        Makes an empty file of a name that nothing has, or raises; used where there are no links.

    Raises
    ------
    FileExistsError
        Something has the name.
    """
    try:
        os.link(staged, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        claim(target)
        os.replace(staged, target)


def flush_file(path: str) -> None:
    """Flush the bytes of a file to the disk."""
    with _open_descriptor(path, os.O_RDWR | _BINARY) as descriptor:
        os.fsync(descriptor)


def flush_folder(path: str) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with _open_folder(path) as descriptor:
        _flush_folder_descriptor(descriptor)


def _name_beside(target: str) -> str:
    """Make up a hidden name in the same folder, so that a rename stays within one file system."""
    return os.path.join(os.path.dirname(target), f".crossbyte-{secrets.token_hex(8)}.tmp")


def _check_all_free(targets: Sequence[str], overwrite: bool) -> None:
    for path in targets:
        check_free(path, overwrite=overwrite)


def _replace_all(staged: Sequence[str], targets: Sequence[str]) -> None:
    """Give the files their names; flushed in between, since names may reach the disk in any order."""
    folders = {os.path.dirname(target) for target in targets}
    if len(targets) > 1:
        with suppress(FileNotFoundError):
            os.unlink(targets[-1])
            _flush_folders(folders)
        for name, target in zip(staged[:-1], targets[:-1], strict=True):
            os.replace(name, target)
        _flush_folders(folders)
    os.replace(staged[-1], targets[-1])
    _flush_folders(folders)


def _flush_folders(paths: Iterable[str]) -> None:
    for path in paths:
        flush_folder(path)


def _check_regular(descriptor: int, path: str) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ForeignModelFile(f"{path}: expected a crossbyte model, got no regular file; check the path")
    return status.st_size


def _existing_mode(target: str) -> int | None:
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{target}: expected a regular file or a free name, got a directory or device")
    return stat.S_IMODE(mode)


def _write_and_flush(path: str, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
    with _open_descriptor(path, flags) as descriptor, os.fdopen(descriptor, "wb", closefd=False) as stream:
        if mode is not None:
            os.chmod(path, mode)
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)


@contextmanager
def _open_descriptor(path: str, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, new_file_mode())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open_folder(path: str) -> Iterator[int | None]:
    """Open a folder for flushing, before anything is changed; Windows has no such thing."""
    if os.name == "nt":
        yield None
        return
    with _open_descriptor(path, os.O_RDONLY) as descriptor:
        yield descriptor


def _flush_folder_descriptor(descriptor: int | None) -> None:
    if descriptor is None:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise


@contextmanager
def _name_file_in_errors(target: str, when: str) -> Iterator[None]:
    """Name the caller's file in errors of the system, and keep their number and class."""
    try:
        yield
    except OSError as error:
        if error.filename == target and error.filename2 is None:
            raise
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"writing the model failed {when} ({reason})", target) from error
