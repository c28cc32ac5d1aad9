"""Read users' files by the ending of their names: one side's features, payloads, or a whole dataset.

Every failure is a `crossbyte.errors.DataFileError` that begins with the file's name; a missing file stays
``FileNotFoundError`` and a forbidden one ``PermissionError``. Nothing in a file is executed or unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossbyte.data.contents import Contents, Entry, as_matrix, choose_matrix, columns_to_rows, type_name
from crossbyte.data.dataset import Dataset, find_dataset
from crossbyte.data.embedding_folder import read_embedding_folder
from crossbyte.data.mat import read_mat
from crossbyte.data.npz import read_array, read_header, read_npz
from crossbyte.data.parquet import read_parquet
from crossbyte.data.safe_open import Limits, OpenFile, PathLike, file_errors, file_extension, open_regular
from crossbyte.data.tables import csv_columns, csv_header, csv_matrix, jsonl_rows
from crossbyte.errors import DataFileError

if TYPE_CHECKING:
    from crossbyte.arrays import Raw

_JSON_LINES = (".jsonl", ".ndjson")
_ARCHIVES = (".npz", ".mat", ".parquet")
_DEFAULT = Limits()


def read_features(path: PathLike, *, key: str | None = None, limits: Limits = _DEFAULT) -> Raw:
    """Read one side's features.

    Parameters
    ----------
    path : path of a ``.npy``, ``.npz``, ``.csv``, ``.mat`` or ``.parquet`` file
    key : str, optional
        Which array of a file that holds several; a sparse matrix KEY is KEY_data, KEY_indices, KEY_indptr and
        KEY_shape. Not needed where only one matrix is there, nor for files of ``scipy.sparse.save_npz``.
        A Parquet file without a key and without a column of lists gives all its columns of numbers.
    limits : Limits, optional

    Returns
    -------
    (n, d) ndarray or csr_matrix
        In memory, with the type stored; CSV gives float64.

    Raises
    ------
    DataFileError, MissingExtra, FileNotFoundError, PermissionError
    """
    form = _check_extension(path, (".npy", ".csv", *_ARCHIVES))
    with file_errors(path), open_regular(path) as opened:
        if form in _ARCHIVES:
            return choose_matrix(_read_contents(opened, form, limits), key, join=form == ".parquet")
        _refuse_key(form, key)
        if form == ".csv":
            return csv_matrix(opened, limits)
        return as_matrix(read_array(opened.file, opened.size, limits.max_bytes))


def read_rows(path: PathLike, *, limits: Limits = _DEFAULT) -> list[dict[str, Any]]:
    """Read payloads: one JSON object for each row.

    Parameters
    ----------
    path : path of a ``.csv`` (with a header), ``.jsonl`` (or ``.ndjson``) or ``.parquet`` file
        A CSV column is text unless all its values are integers without leading zeros, decimal numbers, or
        true and false; empty fields of such columns are None.
    limits : Limits, optional

    Returns
    -------
    list of dict

    Raises
    ------
    DataFileError, MissingExtra, FileNotFoundError, PermissionError
    """
    form = _check_extension(path, (".csv", *_JSON_LINES, ".parquet"))
    with file_errors(path), open_regular(path) as opened:
        if form in _JSON_LINES:
            return jsonl_rows(opened, limits)
        if form == ".csv":
            return columns_to_rows(csv_columns(opened, limits))
        contents = _read_contents(opened, form, limits)
        return columns_to_rows({name: contents.values(name) for name in contents.entries})


def read_dataset(path: PathLike, *, split: str | None = None, limits: Limits = _DEFAULT) -> Dataset:
    """Read both sides, ids, groups and payloads from one file, or from a folder of embeddings.

    Parameters
    ----------
    path : path of a ``.npz``, ``.mat`` or ``.parquet`` file, or of a folder as clip-retrieval writes it
        With arrays image_SPLIT and text_SPLIT (dense, or sparse as four arrays), id_SPLIT or name_SPLIT,
        group_SPLIT, vocabulary; every other column of one value, or several texts, for each row is a payload
        field.
        Or the same without an ending: images or image, texts or text, ids or id or name, groups or group.
        A folder has img_emb/img_emb_0.npy …, text_emb/text_emb_0.npy …, metadata/metadata_0.parquet ….
    split : str, optional
        The ending; by default ``train`` if there is one, else none.
    limits : Limits, optional

    Returns
    -------
    Dataset

    Raises
    ------
    DataFileError, MissingExtra, FileNotFoundError, PermissionError
    """
    if Path(path).is_dir():
        with file_errors(path):
            _refuse_split(split)
            return read_embedding_folder(Path(path), limits)
    form = _check_extension(path, _ARCHIVES)
    with file_errors(path), open_regular(path) as opened:
        return find_dataset(_read_contents(opened, form, limits), split)


def describe(path: PathLike, *, limits: Limits = _DEFAULT) -> list[Entry]:
    """Describe what is in a file without reading its data.

    Parameters
    ----------
    path : path of any file that can be read here
    limits : Limits, optional

    Returns
    -------
    list of Entry
        Name, type and shape of each array, variable or column; ``str`` of an entry is fit for messages. Only
        the first line of text files is read.

    Raises
    ------
    DataFileError, MissingExtra, FileNotFoundError, PermissionError
    """
    form = _check_extension(path, (".npy", ".csv", *_JSON_LINES, *_ARCHIVES))
    with file_errors(path), open_regular(path) as opened:
        if form in _ARCHIVES:
            return list(_read_contents(opened, form, limits, headers_only=True).entries.values())
        return _describe_one(opened, form, limits)


def _check_extension(path: PathLike, forms: tuple[str, ...]) -> str:
    with file_errors(path):
        form = file_extension(path)
        if form not in forms:
            raise DataFileError(
                f"expected a file that ends in {', '.join(forms)}, got {form[:20] or 'no ending'!r}"
            )
    return form


def _refuse_key(form: str, key: str | None) -> None:
    if key is not None:
        raise DataFileError(f"a {form} file holds one matrix and no keys, got key {key!r}; leave it out")


def _refuse_split(split: str | None) -> None:
    if split is not None:
        raise DataFileError(f"a folder of embeddings has no splits, got split {split!r}; leave it out")


def _read_contents(opened: OpenFile, form: str, limits: Limits, *, headers_only: bool = False) -> Contents:
    if form == ".npz":
        return read_npz(opened, limits)
    read = read_mat if form == ".mat" else read_parquet
    return read(opened, limits, headers_only=headers_only)


def _describe_one(opened: OpenFile, form: str, limits: Limits) -> list[Entry]:
    if form == ".npy":
        header = read_header(opened.file, opened.size, limits.max_bytes)
        return [Entry("array", type_name(header.dtype), header.shape)]
    if form == ".csv":
        return [Entry(name, "text", None) for name in csv_header(opened, limits)]
    (first,) = jsonl_rows(opened, limits, at_most=1)
    return [Entry(name, type(value).__name__, None) for name, value in first.items()]
