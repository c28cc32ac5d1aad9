"""Open a file of several arrays for a collection, with limits for published sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossbyte.arrays import Raw
from crossbyte.data.files.contents import Contents
from crossbyte.data.files.csr import read_sparse
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.mat import mat_contents
from crossbyte.data.files.npz import npz_contents
from crossbyte.data.files.opening import extension, naming, open_regular
from crossbyte.data.files.parquet import parquet_contents
from crossbyte.errors import DataFileError, InvalidInput

__all__ = ["ENDINGS", "LIMITS", "naming_input", "opened_contents", "read_matrix"]

ENDINGS = (".npz", ".mat", ".parquet")

_GIB = 2**30
LIMITS = Limits(
    archive_bytes=4 * _GIB,
    text_bytes=2 * _GIB,
    mat_memory=10 * _GIB,
    parquet_memory=6 * _GIB,
    child_seconds=300,
)
"""NUS-WIDE as one ``.mat`` file of float64 is 2.2 GB, and its reader holds it twice."""


@contextmanager
def opened_contents(path: Path) -> Iterator[Contents]:
    """Open a ``.npz``, ``.mat`` or ``.parquet`` file; every failure inside begins with its name."""
    with naming_input(path), open_regular(path) as opened:
        form = extension(path)
        if form not in ENDINGS:
            raise DataFileError(
                f"expected a file of pairs that ends in {', '.join(ENDINGS)}, or a folder; got "
                f"{form[:20] or 'no ending'!r}; put both sides into one .npz (docs/collections.md)"
            )
        if form == ".npz":
            yield npz_contents(opened, LIMITS)
        else:
            yield (mat_contents if form == ".mat" else parquet_contents)(opened, LIMITS)


@contextmanager
def naming_input(path: Path) -> Iterator[None]:
    """Put the name of a file or folder before whatever is wrong with it, its values included."""
    with naming(path):
        try:
            yield
        except DataFileError:
            raise
        except InvalidInput as error:
            raise DataFileError(str(error)) from error


def read_matrix(contents: Contents, name: str) -> Raw:
    """Read a matrix of numbers by its name, dense or sparse.

    Parameters
    ----------
    contents : Contents
    name : str

    Returns
    -------
    (n, d) ndarray or csr_matrix

    Raises
    ------
    DataFileError
        Not there, or something else; the message names it.
    """
    if contents.has_sparse(name):
        return read_sparse(contents, name)
    values = contents.array(name)
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"{name}: expected a matrix of numbers (rows × features), got {contents.entries[name]}"
        )
    return values
