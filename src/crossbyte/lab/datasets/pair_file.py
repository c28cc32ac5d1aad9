"""Read pairs in one file: a user's own, or those of ``shared/data`` (Wiki, Flickr8k, fashion).

The arrays are named as `crossbyte.data.readers.read_dataset` wants them; labels, captions and catalogue
attributes are used where they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.data.contents import Contents
from crossbyte.data.dataset import Dataset, find_dataset
from crossbyte.errors import DataFileError
from crossbyte.lab.datasets.collection import Collection, Part, make_collection, make_part, split_part
from crossbyte.lab.datasets.collection_files import to_label_columns
from crossbyte.validation import check_groups

PATTERNS = (r"(?u)\b\w\w+\b", r"[a-z][a-z\-]+")
"""What counts as a word, in lower case: scikit-learn's default, and letters with hyphens."""


def bag_of_words(
    captions: NDArray[np.str_], vocabulary: Sequence[str], columns: Sequence[int], token_pattern: str
) -> Any:
    """Binary bag of words of the chosen captions of each document, together.

    Parameters
    ----------
    captions : (n, n_captions) str
    vocabulary : sequence of str
        Word of each column of the result; other words are ignored.
    columns : sequence of int
        Which captions to use.
    token_pattern : str
        Regular expression of a word, applied in lower case; one of ``PATTERNS`` for files that were not
        made here, because a pattern from elsewhere may take for ever.

    Returns
    -------
    csr_array (n, len(vocabulary)) float32
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(
        vocabulary={word: column for column, word in enumerate(vocabulary)},
        token_pattern=token_pattern,
        binary=True,
        dtype=np.float32,
    )
    bags = sparse.csr_array(counter.transform([" ".join(row) for row in captions[:, list(columns)]]))
    bags.sort_indices()
    return bags


def find_captions_behind(
    texts: Any, captions: NDArray[np.str_], vocabulary: Sequence[str]
) -> tuple[int, str] | None:
    """Find which captions the text features were made of, and how.

    Parameters
    ----------
    texts : (n, len(vocabulary)) float32
        ndarray or csr_array.
    captions : (n, n_captions) str
    vocabulary : sequence of str

    Returns
    -------
    (int, str) or None
        How many captions, from the first, and the pattern of a word; None if no such bag is equal to
        ``texts``, whose further captions then have no features of the same making.
    """
    stored = sparse.csr_array(texts)
    for pattern in PATTERNS:
        for n_used in range(1, captions.shape[1] + 1):
            bags = bag_of_words(captions, vocabulary, range(n_used), pattern)
            if bags.shape == stored.shape and (bags != stored).nnz == 0:
                return n_used, pattern
    return None


_LABELS = ("label", "labels", "class", "classes")
_LABEL_NAMES = ("label_names", "class_names")
_CAPTIONS = ("captions", "caption", "title")
_ATTRIBUTES = ("gender", "baseColour", "class", "season", "usage")
_CHECKED_ROWS = 2000  # captions looked at to find out what the text features were made of

_NOTES = {
    ("wiki", 2173, 693): "Wikipedia articles with SIFT words and topics, the paper's own features and split",
    ("flickr8k", 7000, 1000): (
        "photographs with CNN features, the words of captions 0 and 1, and labels derived from the words of "
        "captions 2 to 4, not given by people; captions 2, 3 and 4 are the other texts"
    ),
    ("fashion", 40269, 2000): (
        "product photographs with CNN features, the words of titles, and the kind of article as label; the "
        "words of the catalogue's attributes are the other text"
    ),
}


class _RawPart(NamedTuple):
    """One part as the file has it."""

    data: Dataset
    labels: Any
    captions: NDArray[np.str_] | None
    attributes: NDArray[np.str_] | None


def read_pair_file(contents: Contents, name: str, *, seed: int, held_out: float) -> Collection:
    """Find pairs among the arrays of a file; without a query part, whole groups are held out.

    Parameters
    ----------
    contents : Contents
    name : str
    seed : int
        Seed of the rows that are held out, where the file has no query part.
    held_out : float
        Share of the groups.

    Returns
    -------
    Collection

    Raises
    ------
    InvalidInput
        DataFileError, where names or forms are wrong.
    """
    read = [_read_part(contents, split) for split in _list_splits(contents)]
    labels, label_names = _make_labels(read, contents)
    vocabulary = read[0].data.vocabulary or []
    parts = [
        replace(_make_sides(each), labels=own, captions=each.captions, groups=_number_groups(each.data))
        for each, own in zip(read, labels, strict=True)
    ]
    parts, pattern = _add_other_texts(parts, read, vocabulary)
    if len(parts) == 1:
        parts = [*split_part(parts[0], seed=seed, held_out=held_out, groups=read[0].data.groups)]
    train, query = parts
    note = _NOTES.get((name, len(train), len(query)), "")
    words = {"vocabulary": tuple(vocabulary), "token_pattern": pattern}
    return make_collection(name, train, query, label_names, note, **words)


def _list_splits(contents: Contents) -> list[str | None]:
    """Return the endings of the parts: train and query (or test), or one part alone."""

    def has(split: str) -> bool:
        names = (f"image_{split}", f"text_{split}")
        return any(name in contents.entries or contents.has_sparse(name) for name in names)

    second = next((split for split in ("query", "test") if has(split)), None)
    if not has("train"):
        if second is not None:
            raise DataFileError(
                f"expected image_train and text_train beside image_{second}; there are: {contents.listing()}"
            )
        return [None]
    return ["train"] if second is None else ["train", second]


def _read_part(contents: Contents, split: str | None) -> _RawPart:
    data = find_dataset(contents, split)
    if data.images is None or data.texts is None:
        missing = "images" if data.images is None else "texts"
        raise DataFileError(
            f"expected both sides of the pairs, there are no {missing}{f' for {split}' if split else ''}; "
            f"there are: {contents.listing()}"
        )
    ending = f"_{split}" if split else ""
    key = _first_present(contents, [f"{label}{ending}" for label in _LABELS])
    return _RawPart(
        data,
        None if key is None else _read_labels(contents, key, len(data)),
        _read_strings(contents, [f"{caption}{ending}" for caption in _CAPTIONS], len(data)),
        _read_attributes(contents, ending, len(data)),
    )


def _first_present(contents: Contents, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in contents.entries), None)


def _read_labels(contents: Contents, key: str, n_rows: int) -> Any:
    shape = contents.entries[key].shape
    is_table = shape is not None and len(shape) == 2 and min(shape) > 1
    values: Any = contents.array(key) if is_table else contents.values(key)
    if not is_table and len(values) == 1 != n_rows:
        values = values[0]  # MATLAB's row vector
    elif not is_table:
        values = [row[0] if isinstance(row, list) and len(row) == 1 else row for row in values]
    if not isinstance(values, list | np.ndarray) or len(values) != n_rows:
        raise DataFileError(
            f"{key}: expected labels for each of the {n_rows} rows, got {contents.entries[key]}; mend it, or "
            "give it another name"
        )
    return values


def _read_strings(contents: Contents, names: Sequence[str], n_rows: int) -> NDArray[np.str_] | None:
    """Return (n_rows, k) texts by the first of the names that has them."""
    for name in names:
        entry = contents.entries.get(name)
        if entry is not None and entry.dtype == "text" and entry.shape and entry.shape[0] == n_rows:
            values = contents.load(name)
            if isinstance(values, np.ndarray):
                return values.reshape(n_rows, -1)
    return None


def _read_attributes(contents: Contents, ending: str, n_rows: int) -> NDArray[np.str_] | None:
    """Return (n_rows, 5) attributes of a catalogue, the class by its name, or None if one is missing."""
    columns = []
    for attribute in _ATTRIBUTES:
        if attribute == "class":
            column = _read_class_names(contents, f"class{ending}", n_rows)
        else:
            column = _read_strings(contents, [f"{attribute}{ending}"], n_rows)
        if column is None or column.shape[1] != 1:
            return None
        columns.append(column)
    return np.hstack(columns)


def _read_class_names(contents: Contents, key: str, n_rows: int) -> NDArray[np.str_] | None:
    if key not in contents.entries or "class_names" not in contents.entries:
        return None
    numbers, names = contents.array(key), contents.array("class_names")
    usable = numbers.shape == (n_rows,) and numbers.dtype.kind in "iu" and names.dtype.kind == "U"
    if not usable or names.ndim != 1 or (n_rows and not 0 <= numbers.min() <= numbers.max() < len(names)):
        return None  # said by the labels
    return names[numbers][:, None]


def _number_groups(data: Dataset) -> NDArray[np.intp] | None:
    return None if data.groups is None else check_groups(data.groups, len(data)).astype(np.intp)


def _make_sides(read: _RawPart) -> Part:
    assert read.data.images is not None and read.data.texts is not None
    return make_part(read.data.images, read.data.texts, None)


def _make_labels(
    parts: list[_RawPart], contents: Contents
) -> tuple[list[NDArray[np.uint8]] | list[None], tuple[str, ...]]:
    given = [read.labels is not None for read in parts]
    if not any(given):
        return [None] * len(parts), ()
    if not all(given):
        without = "query" if given[0] else "training"
        raise DataFileError(
            f"expected labels in the training and the query part, the {without} part has none; give both, "
            "or none"
        )
    names_key = _first_present(contents, _LABEL_NAMES)
    names = [] if names_key is None else [str(name) for name in contents.array(names_key).reshape(-1)]
    return to_label_columns([read.labels for read in parts], "labels", names)


def _add_other_texts(made: list[Part], parts: list[_RawPart], words: list[str]) -> tuple[list[Part], str]:
    """Add the texts that the features were not made of, as bags of the same words."""
    captions = made[-1].captions
    if captions is None or not words or "" in words or len(set(words)) != len(words):
        return made, ""
    rows = slice(0, _CHECKED_ROWS)
    found = find_captions_behind(made[-1].texts[rows], captions[rows], words)
    if found is None:
        return made, ""
    n_used, pattern = found
    return [
        replace(part, other_texts=_make_other_texts(part, read.attributes, words, n_used, pattern))
        for part, read in zip(made, parts, strict=True)
    ], pattern


def _make_other_texts(
    part: Part, attributes: NDArray[np.str_] | None, words: list[str], n_used: int, pattern: str
) -> tuple[Any, ...]:
    assert part.captions is not None
    further = range(n_used, part.captions.shape[1])
    bags = [bag_of_words(part.captions, words, [column], pattern) for column in further]
    if attributes is not None:
        bags.append(bag_of_words(attributes, words, range(attributes.shape[1]), pattern))
    return tuple(bags)
