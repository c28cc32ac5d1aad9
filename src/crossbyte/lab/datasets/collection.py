"""Define a collection: a training and a query part, how they are split, and a digest of the contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32, Raw
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_features, check_groups, check_number

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
    groups : (n,) intp, or None
        Rows with the same number are about the same thing (the captions of one picture, say), so that each
        has another text in the others; None: every row is its own.
    """

    images: Float32
    texts: Any
    labels: NDArray[np.uint8] | None
    other_texts: tuple[Any, ...] = ()
    captions: NDArray[np.str_] | None = None
    groups: NDArray[np.intp] | None = None

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
            None if self.groups is None else self.groups[rows],
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
        found = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise InvalidInput(
            f"{name}expected as many of everything, row by row, got {found}; the files do not belong together"
        )
    pictures: Any = to_float32_rows(images, f"{name}images")
    if isinstance(pictures, sparse.csr_array):
        pictures = pictures.toarray()
    return Part(pictures, to_float32_rows(texts, f"{name}texts"), labels)


def to_float32_rows(values: Raw, name: str) -> Any:
    """Return features as float32, finite: an ndarray in C order, or a csr_array."""
    with np.errstate(over="ignore"):  # too large for float32: found below, with its place
        small = values if values.dtype == np.float32 else values.astype(np.float32)
    rows = check_features(small, name)
    return sparse.csr_array(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)


def to_sparse_if_thin(values: Raw) -> Raw:
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
    for what, first, second in zip(
        ("images", "texts"), _side_widths(train), _side_widths(query), strict=True
    ):
        if first != second:
            raise InvalidInput(
                f"{what}: expected as many features in both parts, got {first} for training and {second} for "
                "the queries; use one encoder for both"
            )
    if not len(train) or not len(query):
        raise InvalidInput(
            f"expected documents in both parts, got {len(train)} for training and {len(query)} queries"
        )
    query = _store_texts_alike(query, train)
    about = f"{name}: {_describe_sizes(train, query)}{f'; {note}' if note else ''}."
    return Collection(name, train, query, tuple(label_names), about, **words)


def _store_texts_alike(part: Part, model: Part) -> Part:
    """Return the part with its texts dense or sparse as the model's are."""
    if sparse.issparse(part.texts) == sparse.issparse(model.texts):
        return part
    is_sparse = isinstance(part.texts, sparse.csr_array)
    texts = part.texts.toarray() if is_sparse else sparse.csr_array(part.texts)
    return replace(part, texts=texts)


def _side_widths(part: Part) -> tuple[int, int]:
    return part.images.shape[1], part.texts.shape[1]


def _describe_sizes(train: Part, query: Part) -> str:
    kind = "sparse text features" if sparse.issparse(train.texts) else "text features"
    labels = "no" if train.labels is None else train.labels.shape[1]
    return (
        f"{len(train)} training and {len(query)} query pairs, "
        f"{train.images.shape[1]} image features, {train.texts.shape[1]} {kind}, {labels} labels"
    )


def split_part(
    part: Part, *, seed: int, held_out: float, groups: Any = None, at_most: int | None = None
) -> tuple[Part, Part]:
    """Split documents into a training and a query part; the arguments are those of `draw_query_mask`."""
    asked = draw_query_mask(len(part), seed=seed, held_out=held_out, groups=groups, at_most=at_most)
    return part.take(~asked), part.take(asked)


def draw_query_mask(
    n_rows: int, *, seed: int, held_out: float, groups: Any = None, at_most: int | None = None
) -> NDArray[np.bool_]:
    """Choose whole groups at random until a share of the groups is held out.

    Parameters
    ----------
    n_rows : int
    seed : int
        The same seed, the same rows.
    held_out : float
        Share of the groups, in (0, 1); at least one group stays on either side.
    groups : sequence of n_rows labels, optional
        Rows of one group stay together; None: every row its own.
    at_most : int, optional
        The most groups to hold out.

    Returns
    -------
    (n_rows,) bool
        True for the queries.

    Raises
    ------
    InvalidInput
        Fewer than two groups, or a share that is none.
    """
    check_number(held_out, "held_out", 0.0, 1.0, open_low=True)
    numbers = check_groups(groups, n_rows)
    n_groups = int(numbers.max()) + 1 if n_rows else 0
    if n_groups < 2 or held_out == 1.0:
        raise InvalidInput(
            f"expected at least 2 groups of rows and held_out below 1, got {n_groups} groups and held_out="
            f"{held_out:g}; something must be left to learn from, and something to ask"
        )
    wanted = min(round(held_out * n_groups), n_groups - 1, n_groups if at_most is None else at_most)
    chosen = np.random.default_rng(seed).permutation(n_groups)[: max(wanted, 1)]
    return np.isin(numbers, chosen)


def collection_digest(collection: Collection) -> str:
    """Digest all features and labels to 32 hexadecimal digits; names and descriptions do not count.

    Groups count where other texts are found by them alone.
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in (*_list_arrays(collection.train), *_list_arrays(collection.query)):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _list_arrays(part: Part) -> Iterator[NDArray[Any]]:
    groups = None if part.groups is None or part.other_texts else part.groups.astype(np.int64)
    for rows in (part.images, part.texts, part.labels, *part.other_texts, groups):
        if rows is not None:
            yield from _stored_arrays(rows)


def _stored_arrays(rows: Any) -> Iterator[NDArray[Any]]:
    is_sparse = bool(sparse.issparse(rows))
    if not is_sparse:
        yield np.asarray(rows)
        return
    yield np.asarray(rows.shape, dtype=np.int64)
    # positions as int64: their type depends on how the matrix was made
    yield from (rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64))
