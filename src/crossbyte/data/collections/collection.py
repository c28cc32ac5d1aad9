"""What a collection is: a training part, a query part, and what their columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32, Raw
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_features

__all__ = ["Collection", "Part", "float32_rows", "make_collection", "make_part", "thinned"]

_THIN = 0.1  # share of cells with a value, up to which a matrix is better kept sparse
_WIDE = 100


@dataclass(frozen=True, eq=False)
class Part:
    """Pairs; row i of everything belongs to document i.

    Attributes
    ----------
    images : (n, image_dim) float32
    texts : (n, text_dim) float32
        ndarray or ``scipy.sparse.csr_array``.
    labels : (n, n_labels) uint8, or None
        0 and 1; a row without any 1 is a document without a label.
    other_texts : tuple of (n, text_dim) float32
        Further texts about the same documents, none of which is in ``texts``; a text without any known word
        is a row of zeros.
    captions : (n, n_captions) str, or None
        The words behind ``texts`` and ``other_texts``, where the file has them.
    """

    images: Float32
    texts: Any
    labels: NDArray[np.uint8] | None
    other_texts: tuple[Any, ...] = ()
    captions: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[Any]) -> Part:
        """Return the chosen documents.

        Parameters
        ----------
        rows : (k,) integers, or (n,) bool

        Returns
        -------
        Part
        """
        return Part(
            self.images[rows],
            self.texts[rows],
            None if self.labels is None else self.labels[rows],
            tuple(texts[rows] for texts in self.other_texts),
            None if self.captions is None else self.captions[rows],
        )

    def labelled(self) -> Part:
        """Return the documents that have a label; all of them where every one has."""
        if self.labels is None:
            raise InvalidInput(
                "expected labels, this collection has none; protocols A and D need them, B and C do not"
            )
        known = np.flatnonzero(self.labels.any(axis=1))
        return self if len(known) == len(self) else self.take(known)


@dataclass(frozen=True, eq=False)
class Collection:
    """A training part, which is also the paper's database, and a query part.

    Attributes
    ----------
    name : str
        ``wiki``, ``flickr8k``, ``fashion``, ``mirflickr``, ``nus-wide``, ``generated-…``, or the stem of the
        user's file.
    train, query : Part
    label_names : tuple of str
        What the columns of ``labels`` mean.
    about : str
        One sentence: what it is; said in reports.
    vocabulary : tuple of str
        What the columns of ``texts`` mean, where they are words.
    token_pattern : str
        What counts as a word of the captions, where they are known.
    """

    name: str
    train: Part
    query: Part
    label_names: tuple[str, ...] = ()
    about: str = ""
    vocabulary: tuple[str, ...] = ()
    token_pattern: str = ""

    def labelled(self) -> Collection:
        """Return the collection without the documents that have no label, in both parts."""
        return replace(self, train=self.train.labelled(), query=self.query.labelled())


def make_part(images: Raw, texts: Raw, labels: NDArray[np.uint8] | None, name: str = "") -> Part:
    """Check and convert what a file gave.

    Parameters
    ----------
    images, texts : (n, d) ndarray or sparse matrix
    labels : (n, n_labels) uint8, or None
    name : str
        Put before the words "images" and "texts" in messages.

    Returns
    -------
    Part

    Raises
    ------
    InvalidInput
        Not finite, or the rows do not agree.
    """
    counts = {"images": images.shape[0], "texts": texts.shape[0]}
    if labels is not None:
        counts["labels"] = len(labels)
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise InvalidInput(
            f"{name}expected as many of everything, row by row, got {told}; the files do not belong together"
        )
    pictures: Any = float32_rows(images, f"{name}images")
    if isinstance(pictures, sparse.csr_array):
        pictures = pictures.toarray()
    return Part(pictures, float32_rows(texts, f"{name}texts"), labels)


def float32_rows(values: Raw, name: str) -> Any:
    """Return features as float32, finite: an ndarray in C order, or a csr_array."""
    with np.errstate(over="ignore"):  # too large for float32: found below, with its place
        small = values if values.dtype == np.float32 else values.astype(np.float32)
    rows = check_features(small, name)
    return sparse.csr_array(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)


def thinned(values: Raw) -> Raw:
    """Return a wide matrix that is mostly zeros, tags in a ``.mat`` file say, as a sparse one."""
    if isinstance(values, np.ndarray) and values.shape[1] >= _WIDE:
        n_values = int(np.count_nonzero(values))
        if n_values <= _THIN * values.size:
            return sparse.csr_matrix(values)
    return values


def make_collection(
    name: str, train: Part, query: Part, label_names: Sequence[str] = (), note: str = "", **words: Any
) -> Collection:
    """Put two parts together and say in one sentence what they are.

    Parameters
    ----------
    name : str
    train, query : Part
        With as many features and labels in one as in the other.
    label_names : sequence of str
    note : str
        What the sizes do not say.
    **words
        ``vocabulary`` and ``token_pattern``, where they are known.

    Returns
    -------
    Collection

    Raises
    ------
    InvalidInput
        The parts differ in their features, or one of them is empty.
    """
    for what, first, second in zip(("images", "texts"), _widths(train), _widths(query), strict=True):
        if first != second:
            raise InvalidInput(
                f"{what}: expected as many features in both parts, got {first} for training and {second} for "
                "the queries; use one encoder for both"
            )
    if not len(train) or not len(query):
        raise InvalidInput(
            f"expected documents in both parts, got {len(train)} for training and {len(query)} queries"
        )
    query = _stored_alike(query, train)
    about = f"{name}: {_sizes(train, query)}{f'; {note}' if note else ''}."
    return Collection(name, train, query, tuple(label_names), about, **words)


def _stored_alike(part: Part, model: Part) -> Part:
    """Return the part with its texts dense or sparse as the model's are."""
    if sparse.issparse(part.texts) == sparse.issparse(model.texts):
        return part
    is_sparse = isinstance(part.texts, sparse.csr_array)
    texts = part.texts.toarray() if is_sparse else sparse.csr_array(part.texts)
    return replace(part, texts=texts)


def _widths(part: Part) -> tuple[int, int]:
    return part.images.shape[1], part.texts.shape[1]


def _sizes(train: Part, query: Part) -> str:
    kind = "sparse text features" if sparse.issparse(train.texts) else "text features"
    labels = "no" if train.labels is None else train.labels.shape[1]
    return (
        f"{len(train)} training and {len(query)} query pairs, "
        f"{train.images.shape[1]} image features, {train.texts.shape[1]} {kind}, {labels} labels"
    )
