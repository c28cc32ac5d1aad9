"""Read features from disk, some rows at a time: files, folders of shards, folders of pairs, scratch files.

A folder of pairs holds embeddings as clip-retrieval writes them, or images and texts::

    img_emb/img_emb_0.npy …  text_emb/text_emb_0.npy …  metadata/metadata_0.parquet …
    images.npy  texts.npy        or .npz, .parquet, or folders images/ and texts/ of such shards
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.compute.executor import BLOCK_ROWS, row_blocks
from crossbyte.compute.scratch import DiskArray, DiskSparse, read_at, resolve_rows
from crossbyte.data import embedding_folder
from crossbyte.data.dataset import Dataset
from crossbyte.data.npz import Header, read_header
from crossbyte.data.readers import read_features
from crossbyte.data.safe_open import Limits, PathLike, file_errors, file_extension, open_regular
from crossbyte.errors import DataFileError, InvalidInput
from crossbyte.validation import check_features, is_stored

_ENDINGS = (".npy", ".npz", ".parquet")
_DEFAULT = Limits()
_NUMBER = re.compile(r"([0-9]+)")
_FAR = 8  # with fewer rows than this per wanted one, one long read is quicker than many short ones
_LABELS = ("id", "key", "image_path", "group")  # the columns that ids and groups are made of


# One side


class Piece(NamedTuple):
    """A file or a block that a side consists of, and its number of rows."""

    name: str
    n_rows: int


class StoredRows(Protocol):
    """Features (n, d) of one side on disk; some rows at a time are read into memory."""

    is_stored: bool
    """always True: tells these from arrays"""
    is_sparse: bool
    """whether rows come as canonical CSR (sorted columns, no zeros), or as an array"""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, in the machine's byte order."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """Files or blocks that the side consists of, in the order of the rows."""

    def __len__(self) -> int:
        """Rows."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        """Read some rows, as a new array or CSR matrix."""


def open_rows(
    path: PathLike, *, key: str | None = None, limits: Limits = _DEFAULT, scratch: str | None = None
) -> StoredRows:
    """Open the features of one side without reading them into memory; for :meth:`crossbyte.CMCQ.fit`.

    Parameters
    ----------
    path : path of a ``.npy``, ``.npz`` or ``.parquet`` file, or of a folder of such shards
        All shards of a folder have one ending; they are taken in the natural order of their names, ``part-2``
        before ``part-10``. Names that begin with a dot or an underscore, and other endings, are passed over.
        Arrays in ``.npy`` files are read where they are. Archives (sparse matrices of
        ``scipy.sparse.save_npz``, say) and Parquet files are read whole, one at a time, and written to
        scratch files: shards of some hundred megabytes are best.
    key : str, optional
        Which array or column of ``.npz`` and Parquet files that hold several.
    limits : Limits, optional
        For each ``.npz`` and Parquet file.
    scratch : str, optional
        Folder for scratch files; by default the system's for temporary files, which ``TMPDIR`` names.

    Returns
    -------
    StoredRows
        With ``shape`` and ``dtype``; ``rows[10:20]`` are a few rows in memory.

    Raises
    ------
    DataFileError, InvalidInput, MissingExtra, StorageFull, FileNotFoundError, PermissionError
        Also when shards disagree in their width or kind; the message names the shard.
    """
    files = _list_shards(Path(path)) if os.path.isdir(path) else [Path(path)]
    if file_extension(files[0]) == ".npy":
        _refuse_key(key)
        opened = [ArrayFile.open(file) for file in files]
        return opened[0] if len(opened) == 1 else ConcatenatedRows(opened)
    if file_extension(files[0]) not in _ENDINGS:
        raise DataFileError(
            f"{os.fspath(path)}: expected a file of {', '.join(_ENDINGS)}, or a folder of these; convert it"
        )
    return spool_blocks(_read_files(files, key, limits), os.fspath(path), scratch)


def _list_shards(folder: Path) -> Sequence[Path]:
    with file_errors(folder):
        names = [name for name in os.listdir(folder) if not name.startswith((".", "_"))]
        found = [folder / name for name in names if file_extension(name) in _ENDINGS]
        endings = sorted({file_extension(file) for file in found})
        if len(endings) != 1:
            there = " and ".join(endings) or ", ".join(sorted(names)[:10]) or "an empty folder"
            raise DataFileError(
                f"expected a folder of shards of one ending ({', '.join(_ENDINGS)}), got {there}; put the "
                "two sides, and everything else, into folders of their own"
            )
    return sorted(found, key=_natural_key)


def _natural_key(file: Path) -> tuple[list[Any], str]:
    parts = _NUMBER.split(file.name)  # text and digits in turn, so that equal places compare
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], file.name


def _read_files(files: Sequence[Path], key: str | None, limits: Limits) -> Iterator[tuple[str, Any]]:
    return ((file.name, read_features(file, key=key, limits=limits)) for file in files)


def _refuse_key(key: str | None) -> None:
    if key is not None:
        raise DataFileError(
            f"expected no key, because a .npy file holds one array, got {key!r}; leave it out"
        )


def coerce_rows(values: Any, name: str) -> Any:
    """Open what is or should stay on disk as stored rows, and return everything else as it is.

    Parameters
    ----------
    values : path, memory map, iterable of blocks, or anything else
        A path is opened by :func:`open_rows`. A map is read through its file. An iterable of blocks (arrays
        or sparse matrices) is read once, into scratch files; an iterator is used up by it.
    name : str
        What the side is called in errors.
    """
    if isinstance(values, str | os.PathLike):
        return open_rows(values)
    if isinstance(values, np.memmap):
        return ArrayFile.from_memmap(values) or values
    if _are_blocks(values):
        return spool_blocks(_name_blocks(values, name), name)
    return values


def _are_blocks(values: Any) -> bool:
    """Tell whether to iterate over blocks; a list that begins with no matrix is itself the array."""
    plain = isinstance(values, np.ndarray | bytes | bytearray | memoryview | Mapping | Set)
    known = plain or sparse.issparse(values) or hasattr(values, "__array__") or is_stored(values)
    if known or not isinstance(values, Iterable):
        return False
    if isinstance(values, Iterator) or not hasattr(values, "__len__"):
        return True
    first = next(iter(values), None)
    return first is not None and len(getattr(first, "shape", ())) == 2


def _name_blocks(blocks: Iterable[Any], name: str) -> Iterator[tuple[str, Any]]:
    return ((f"{name}, block {number}", block) for number, block in enumerate(blocks))


# Folders of pairs


def is_pair_folder(path: PathLike) -> bool:
    """Tell whether a folder holds embeddings, or stored images and stored texts."""
    where = Path(path)
    if not where.is_dir():
        return False
    return embedding_folder.is_embedding_folder(where) or all(
        _find_side(where, name) for name in ("images", "texts")
    )


def open_pair_folder(path: PathLike, *, payloads: bool = True, limits: Limits = _DEFAULT) -> Dataset:
    """Open both sides without reading them; ids, groups and payloads of embeddings are read.

    Parameters
    ----------
    path : path of a folder for which :func:`is_pair_folder` holds
    payloads : bool
        Whether payloads are kept, or only the ids and groups in them.
    limits : Limits, optional

    Returns
    -------
    Dataset
        Its images and texts are stored rows; a side that is not there is None.

    Raises
    ------
    DataFileError, MissingExtra, StorageFull
        Parts that are missing on one side, or that differ in their number of rows or columns.
    """
    where = Path(path)
    with file_errors(path):
        if embedding_folder.is_embedding_folder(where):
            return _open_embeddings(where, payloads, limits)
        sides = {name: _find_side(where, name) for name in ("images", "texts")}
        if not all(sides.values()):
            raise DataFileError(
                "expected embeddings (img_emb and text_emb), or images.npy and texts.npy; check the folder"
            )
        opened: dict[str, Any] = {
            name: open_rows(file, limits=limits) for name, file in sides.items() if file
        }
        return Dataset(**opened)


def _find_side(folder: Path, name: str) -> Path | None:
    """Find the file, or the folder of shards, of one side."""
    for ending in _ENDINGS:
        if (file := folder / f"{name}{ending}").is_file():
            return file
    shards = folder / name
    if shards.is_dir() and any(file_extension(file) in _ENDINGS for file in shards.iterdir()):
        return shards
    return None


def _open_embeddings(folder: Path, payloads: bool, limits: Limits) -> Dataset:
    images, texts, tables = embedding_folder.find_parts(folder)
    image_files, text_files = _open_files(images), _open_files(texts)
    blocks = [_read_payloads(file, payloads, limits) for file in tables.values()]
    embedding_folder.check_counts([(images, image_files), (texts, text_files), (tables, blocks)])
    rows = [row for block in blocks for row in block]
    ids, groups = embedding_folder.find_labels(rows)
    found: dict[str, Any] = {"images": _join_files(image_files), "texts": _join_files(text_files)}
    return Dataset(ids=ids, payloads=rows or None if payloads else None, groups=groups, **found)


def _open_files(parts: embedding_folder.Parts) -> list[ArrayFile]:
    return [ArrayFile.open(file) for file in parts.values()]


def _join_files(files: list[ArrayFile]) -> ArrayFile | ConcatenatedRows | None:
    if len(files) < 2:
        return files[0] if files else None
    return ConcatenatedRows(files)


def _read_payloads(file: Path, payloads: bool, limits: Limits) -> list[dict[str, Any]]:
    rows = embedding_folder.read_part(file, limits)
    if payloads:
        return rows
    return [{name: row[name] for name in _LABELS if name in row} for row in rows]


# Rows in files


class _ValueLayout(NamedTuple):
    """Offset and layout of the values in a file."""

    offset: int
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    fortran: bool


class ArrayFile:
    """Dense rows (n, d) in a file; it is opened anew for every read, and must not change meanwhile.

    Kept open, the files of a folder with thousands of shards would be more than a system allows.
    """

    is_stored = True
    is_sparse = False

    def __init__(self, path: PathLike, layout: _ValueLayout, identity: tuple[int, ...]) -> None:
        self._path, self._layout, self._identity = os.fspath(path), layout, identity

    @classmethod
    def open(cls, path: PathLike) -> ArrayFile:
        """Open a ``.npy`` file and check its header; no value is read.

        Raises
        ------
        DataFileError, FileNotFoundError, PermissionError
        """
        with file_errors(path), open_regular(path) as opened:
            header = read_header(opened.file, opened.size, opened.size)
            layout = _layout_from_header(header, opened.size - header.n_bytes)
            return cls(path, layout, _file_identity(opened.file.fileno()))

    @classmethod
    def from_memmap(cls, mapped: np.memmap[Any, Any]) -> ArrayFile | None:
        """Open the file under a memory map; None where the map shows anything else than rows of the file.

        Pages that are read through a map count as memory of the process; reads of the file do not.
        """
        layout = _layout_from_map(mapped)
        if layout is None or mapped.filename is None:
            return None
        mapped.flush()
        try:
            with open_regular(mapped.filename) as opened:
                found = cls(mapped.filename, layout, _file_identity(opened.file.fileno()))
            ends = [slice(0, 1), slice(max(len(mapped) - 1, 0), len(mapped))]
            is_same = all(np.array_equal(found[rows], mapped[rows], equal_nan=True) for rows in ends)
        except (DataFileError, OSError):  # the file is gone, or another one now; the map still holds the old
            return None
        return found if is_same else None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self._layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, in the machine's byte order."""
        return self._layout.dtype.newbyteorder("=")

    @property
    def pieces(self) -> list[Piece]:
        """The file."""
        return [Piece(os.path.basename(self._path), len(self))]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        wanted = resolve_rows(rows, len(self))
        with self._open_unchanged() as descriptor:
            if isinstance(wanted, slice):
                return self._to_native(self._read_range(descriptor, wanted.start, wanted.stop))
            return self._to_native(self._read_chosen(descriptor, wanted))

    @contextmanager
    def _open_unchanged(self) -> Iterator[int]:
        with file_errors(self._path), open_regular(self._path) as opened:
            if _file_identity(opened.file.fileno()) != self._identity:
                raise DataFileError("was changed while it was being read; start again when it is complete")
            yield opened.file.fileno()

    def _read_range(self, descriptor: int, start: int, stop: int) -> NDArray[Any]:
        (n_rows, n_columns), dtype = self.shape, self._layout.dtype
        if not self._layout.fortran:
            values = np.empty((stop - start, n_columns), dtype)
            self._fill(descriptor, values, start * n_columns)
            return values
        by_columns = np.empty((n_columns, stop - start), dtype)
        for number, column in enumerate(by_columns):
            self._fill(descriptor, column, number * n_rows + start)
        return by_columns.T

    def _read_chosen(self, descriptor: int, rows: NDArray[np.intp]) -> NDArray[Any]:
        values = np.empty((len(rows), self.shape[1]), self._layout.dtype)
        if not self._layout.fortran:
            for target, row in zip(values, rows.tolist(), strict=True):
                self._fill(descriptor, target, row * self.shape[1])
            return values
        for block in row_blocks(len(self)):  # value by value would be a call for each
            inside = (rows >= block.start) & (rows < block.stop)
            if inside.any():
                found = self._read_range(descriptor, block.start, block.stop)
                values[inside] = found[rows[inside] - block.start]
        return values

    def _fill(self, descriptor: int, values: NDArray[Any], first: int) -> None:
        """Fill an array with consecutive values of the file, from the one with this number on."""
        buffer = values.reshape(-1).view(np.uint8).data
        if read_at(descriptor, buffer, self._layout.offset + first * values.itemsize) < len(buffer):
            raise DataFileError("ends too early, in the middle of an array; copy or save it again")

    def _to_native(self, values: NDArray[Any]) -> NDArray[Any]:
        if values.dtype.kind == "b":  # NumPy's result is undefined for bytes other than 0 and 1
            return values.view(np.uint8) != 0
        return values.astype(self.dtype, copy=False)


def _layout_from_header(header: Header, offset: int) -> _ValueLayout:
    if len(header.shape) != 2 or header.dtype.kind not in "biuf":
        raise DataFileError(
            f"expected a matrix of numbers (rows × features), got {header.dtype.name} of shape {header.shape}"
        )
    return _ValueLayout(offset, (header.shape[0], header.shape[1]), header.dtype, header.fortran)


def _layout_from_map(mapped: np.memmap[Any, Any]) -> _ValueLayout | None:
    root: Any = mapped
    while isinstance(root.base, np.ndarray):
        root = root.base
    flags = mapped.flags
    whole = mapped.ndim == 2 and mapped.size > 0 and (flags.c_contiguous or flags.f_contiguous)
    # What was written to a private copy ("c") is not in the file.
    shared = isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap) and mapped.mode != "c"
    if not (whole and shared) or mapped.dtype.kind not in "biuf":
        return None
    offset = root.offset + mapped.ctypes.data - root.ctypes.data
    return _ValueLayout(offset, (mapped.shape[0], mapped.shape[1]), mapped.dtype, not flags.c_contiguous)


def _file_identity(descriptor: int) -> tuple[int, ...]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class ConcatenatedRows:
    """Dense rows (n, d) of several files of the same width; values have the widest type among them."""

    is_stored = True
    is_sparse = False

    def __init__(self, files: Sequence[ArrayFile]) -> None:
        self._files = list(files)
        self._ends = np.cumsum([len(file) for file in files])
        self.dtype: np.dtype[Any] = np.result_type(*(file.dtype for file in files))
        for file in files:
            _check_width(file, files[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return int(self._ends[-1]), self._files[0].shape[1]

    @property
    def pieces(self) -> list[Piece]:
        """The files, in their order."""
        return [piece for file in self._files for piece in file.pieces]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        wanted = resolve_rows(rows, len(self))
        if not isinstance(wanted, slice):
            return self._read_chosen(wanted)
        parts = [
            file[max(wanted.start - begin, 0) : wanted.stop - begin]
            for file, begin in self._list_files_with_starts()
            if begin < wanted.stop and begin + len(file) > wanted.start
        ]
        if len(parts) == 1:
            return parts[0].astype(self.dtype, copy=False)
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def _read_chosen(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        values = np.empty((len(rows), self.shape[1]), self.dtype)
        for file, begin in self._list_files_with_starts():
            inside = (rows >= begin) & (rows < begin + len(file))
            if inside.any():
                values[inside] = file[rows[inside] - begin]
        return values

    def _list_files_with_starts(self) -> list[tuple[ArrayFile, int]]:
        begins = [0, *self._ends[:-1].tolist()]
        return list(zip(self._files, begins, strict=True))


def _check_width(file: ArrayFile, first: ArrayFile) -> None:
    if file.shape[1] != first.shape[1]:
        raise DataFileError(
            f"{file.pieces[0].name}: expected {first.shape[1]} columns as in {first.pieces[0].name}, "
            f"got {file.shape[1]}; make all files with one encoder"
        )


class RowSubset:
    """Rows (m, d) of another stored side, in its order; read when needed.

    Parameters
    ----------
    source : StoredRows
        All rows (n, d).
    numbers : (m,) intp, ascending
        The rows to take.
    """

    is_stored = True

    def __init__(self, source: StoredRows, numbers: NDArray[np.intp]) -> None:
        if len(numbers) and (numbers[0] < 0 or numbers[-1] >= len(source) or not _is_ascending(numbers)):
            raise IndexError(f"expected ascending row numbers from 0 to {len(source) - 1}")
        self._source, self._numbers = source, numbers
        self.is_sparse, self.dtype = source.is_sparse, source.dtype
        self.is_finite = getattr(source, "is_finite", False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return len(self._numbers), self._source.shape[1]

    @property
    def pieces(self) -> list[Piece]:
        """Pieces of the source, with the number of rows chosen from each."""
        ends = np.cumsum([0, *(piece.n_rows for piece in self._source.pieces)])
        counts = np.diff(np.searchsorted(self._numbers, ends)).tolist()
        return [Piece(piece.name, n) for piece, n in zip(self._source.pieces, counts, strict=True)]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        wanted = resolve_rows(rows, len(self))
        numbers = self._numbers[wanted]
        is_range = isinstance(wanted, slice) and len(numbers) > 1
        if not is_range or numbers[-1] - numbers[0] >= _FAR * len(numbers):
            return self._source[numbers]
        parts = [self._source[part[0] : part[-1] + 1][part - part[0]] for part in _split_by_blocks(numbers)]
        return sparse.vstack(parts, format="csr") if self.is_sparse else np.concatenate(parts)


def _is_ascending(numbers: NDArray[np.intp]) -> bool:
    return bool((np.diff(numbers) > 0).all())


def _split_by_blocks(numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Split row numbers where blocks of the source end, so that at most a block is read at a time."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers // BLOCK_ROWS)) + 1)


# Rows in scratch files


class SpooledRows:
    """Rows (n, d) in scratch files, which are removed with the object; every value has been checked."""

    is_stored = True
    is_finite = True

    def __init__(self, rows: DiskArray | DiskSparse, pieces: Sequence[Piece]) -> None:
        self._rows, self.pieces = rows, pieces
        self.is_sparse, self.dtype = rows.is_sparse, rows.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self._rows.shape[0], self._rows.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        return self._rows[rows]


def spool_blocks(blocks: Iterable[tuple[str, Any]], side: str, folder: str | None = None) -> SpooledRows:
    """Write named blocks to scratch files, one after another.

    Parameters
    ----------
    blocks : iterable of (name, block)
        Blocks are arrays or sparse matrices (k, d), all of one kind, width and type.
    side : str
        What the side is called in errors.
    folder : str or None
        Where scratch files are; None for the system's folder for temporary files.

    Raises
    ------
    InvalidInput
        A block that is not like the first, or none at all; the message names it.
    StorageFull
        The scratch disk is full.
    """
    rows: DiskArray | DiskSparse | None = None
    pieces: list[Piece] = []
    for name, values in blocks:
        block = check_features(values, name)
        rows = _create_files(block, folder) if rows is None else rows
        rows.append(_check_like_first(block, rows, name, pieces))
        pieces.append(Piece(name, block.shape[0]))
    if rows is None:
        raise InvalidInput(
            f"{side}: expected blocks of rows, got none; an iterator can be read only once: give something "
            "that can be iterated again, e.g. a list"
        )
    return SpooledRows(rows, pieces)


def _create_files(block: Any, folder: str | None) -> DiskArray | DiskSparse:
    if bool(sparse.issparse(block)):  # a plain bool: issparse would narrow the type too far
        return DiskSparse(block.shape[1], block.dtype, folder)
    return DiskArray(0, block.shape[1:], block.dtype.newbyteorder("="), folder)


def _check_like_first(block: Any, rows: DiskArray | DiskSparse, name: str, pieces: Sequence[Piece]) -> Any:
    if sparse.issparse(block) != rows.is_sparse:
        kinds = ("sparse", "dense") if rows.is_sparse else ("dense", "sparse")
        raise InvalidInput(
            f"{name}: expected {kinds[0]} rows as in {pieces[0].name}, got {kinds[1]} ones; make all "
            "blocks alike"
        )
    if block.shape[1] != rows.shape[1]:
        raise InvalidInput(
            f"{name}: expected {rows.shape[1]} columns as in {pieces[0].name}, got {block.shape[1]}; make "
            "all blocks with one encoder"
        )
    if not np.can_cast(block.dtype, rows.dtype, "safe"):
        raise InvalidInput(
            f"{name}: expected values of {rows.dtype} as in {pieces[0].name}, got {block.dtype}; convert "
            f"them, e.g. with .astype('{rows.dtype}')"
        )
    return block.astype(rows.dtype, copy=False)
