"""Read MIRFlickr-25K: Srivastava and Salakhutdinov's features (the paper's), or DCMH's selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from crossbyte.arrays import Float32, Raw
from crossbyte.data.contents import CSR_PARTS, Contents, read_sparse
from crossbyte.data.readers import describe, read_features
from crossbyte.errors import DataFileError
from crossbyte.lab.datasets import collection, collection_files
from crossbyte.lab.datasets.collection import Collection
from crossbyte.lab.datasets.collection_files import DataFolder, PublishedSource

MARKS = ("text_all_2000_labelled.npz", "combined-*.npy", "mirflickr25k-*.mat")
_TORONTO = PublishedSource(
    "MIRFlickr-25K with Srivastava and Salakhutdinov's features",
    "http://www.cs.toronto.edu/~nitish/multimodal/index.html (Flickr data: image, text, labels)",
)
_DCMH = PublishedSource(
    "MIRFlickr-25K as selected for DCMH",
    "the authors of DCMH (Jiang and Li 2017) and repositories that build on it",
)
_NOTE = (
    "photographs with the features of Srivastava and Salakhutdinov, tags as 0 and 1, queries drawn by seed"
)
_DCMH_NOTE = (
    "the selection made for DCMH, not the paper's: image features are the user's, queries drawn by seed"
)
_DCMH_QUERIES = 2000


def read_mirflickr(folder: DataFolder, name: str | None = None, *, seed: int, held_out: float) -> Collection:
    """Read the published folder.

    Parameters
    ----------
    folder : DataFolder
        With ``image/labelled/combined-*.npy``, ``text/text_all_2000_labelled.npz`` and ``labels.npy``; or
        ``mirflickr25k-yall.mat`` and ``mirflickr25k-lall.mat`` with image features beside them.
    name : str, optional
        By default ``mirflickr``, and ``mirflickr-dcmh`` for that selection, whose scores do not compare.
    seed : int
        Seed of the choice of queries.
    held_out : float
        Their share; the paper's is 0.1. Of DCMH's selection at most 2000.

    Returns
    -------
    Collection

    Raises
    ------
    DataFileError
    """
    if folder.find("mirflickr25k-*.mat") is not None:
        title = "mirflickr-dcmh" if name in (None, "mirflickr") else str(name)
        return _read_dcmh(folder, title, seed, held_out)
    files = folder.require(_TORONTO, "combined-*.npy", "text_all_2000_labelled.npz", "labels.npy")
    with collection_files.open_contents(files[1]) as contents:
        texts = _read_whole_sparse(contents)
    texts.data[:] = texts.data > 0  # counts of tags, now and then above one
    labels = np.asarray(read_features(files[2], limits=collection_files.LIMITS))
    images = _stack_files(folder.all("combined-*.npy", "labelled") or [files[0]])
    return _split_collection(
        folder.path, name or "mirflickr", (images, texts, labels), _NOTE, seed, held_out, None
    )


def _split_collection(
    path: Path,
    name: str,
    arrays: tuple[Raw, Raw, Any],
    note: str,
    seed: int,
    held_out: float,
    most: int | None,
) -> Collection:
    images, texts, raw_labels = arrays
    with collection_files.name_input_in_errors(path):
        (labels,), names = collection_files.to_label_columns([raw_labels], "labels")
        parts = collection.split_part(
            collection.make_part(images, texts, labels), seed=seed, held_out=held_out, at_most=most
        )
        return collection.make_collection(name, *parts, names, note)


def _stack_files(paths: list[Path]) -> Float32:
    """Return the rows of several files as one matrix, one file in memory beside it."""
    pieces: list[Float32] = []
    for path in paths:
        with collection_files.name_input_in_errors(path):
            rows = collection.to_float32_rows(read_features(path, limits=collection_files.LIMITS), "features")
            if pieces and rows.shape[1] != pieces[0].shape[1]:
                raise DataFileError(
                    f"expected {pieces[0].shape[1]} features as in {paths[0].name}, got {rows.shape[1]}"
                )
            pieces.append(rows)
    return np.concatenate(pieces)


def _read_whole_sparse(contents: Contents) -> sparse.csr_matrix:
    """Read a file that is one sparse matrix: data, indices, indptr and shape, without a name before them."""
    named = {f"text_{part}": contents.entries[part] for part in CSR_PARTS if part in contents.entries}
    if len(named) < len(CSR_PARTS):
        raise DataFileError(
            f"expected a sparse matrix as {', '.join(CSR_PARTS)}; there are: {contents.listing()}"
        )
    return read_sparse(Contents(named, lambda name: contents.load(name.removeprefix("text_"))), "text")


def _read_dcmh(folder: DataFolder, name: str, seed: int, held_out: float) -> Collection:
    tags, classes = folder.require(_DCMH, "mirflickr25k-yall.mat", "mirflickr25k-lall.mat")
    arrays = (
        _read_dcmh_images(folder),
        collection.to_sparse_if_thin(read_features(tags, key="YAll", limits=collection_files.LIMITS)),
        read_features(classes, key="LAll", limits=collection_files.LIMITS),
    )
    return _split_collection(folder.path, name, arrays, _DCMH_NOTE, seed, held_out, _DCMH_QUERIES)


def _read_dcmh_images(folder: DataFolder) -> Raw:
    """Return features of the pictures, which the selection itself hardly ever has."""
    features = folder.find("image_features.npy")
    if features is not None:
        return read_features(features, limits=collection_files.LIMITS)
    for letter in "xif":
        path, key = folder.find(f"mirflickr25k-{letter}all.mat"), f"{letter.upper()}All"
        if path is not None and _is_table(path, key):
            return read_features(path, key=key, limits=collection_files.LIMITS)
    raise DataFileError(
        f"{folder.path}: expected image_features.npy (a row of features for each row of FAll), or a matrix "
        "XAll in mirflickr25k-xall.mat; mirflickr25k-iall.mat holds raw pictures and mirflickr25k-fall.mat "
        "their names: run an image encoder over them and save its output there with numpy.save"
    )


def _is_table(path: Path, key: str) -> bool:
    """Whether a file has features by that name: names of pictures are no numbers, and HDF5 is not read."""
    try:
        entries = describe(path, limits=collection_files.LIMITS)
    except DataFileError:
        return False
    kinds = ("double", "single", "int", "uint", "sparse", "logical")
    return any(
        entry.name == key and entry.dtype.startswith(kinds) and len(entry.shape or ()) == 2
        for entry in entries
    )
