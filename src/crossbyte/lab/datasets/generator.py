"""Generate collections with known structure: at the shapes of the paper's three sets, or of any size.

They show sizes, times and that a method finds structure; scores on them say nothing about the real sets.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from crossbyte.data.synthetic import LabelledPairs, make_labelled_pairs
from crossbyte.errors import InvalidInput
from crossbyte.lab.datasets.collection import Collection, Part, make_collection

PREFIX = "generated:"
_SMALLEST = 20


class _Shape(NamedTuple):
    """Sizes of a collection, and how its pairs are drawn."""

    n_train: int
    n_query: int
    image_dim: int
    text_dim: int
    drawn: dict[str, Any]
    note: str


_SHAPES = {
    "wiki": _Shape(
        *(2173, 693, 128, 10),
        {"n_labels": 10, "image_words": 250.0},
        "generated at the shape of Wiki: counts of visual words, shares of topics, one class each",
    ),
    "flickr25k": _Shape(
        *(22_500, 2_500, 3857, 2000),
        {"n_labels": 38, "labels_per_pair": 4.0, "text_words": 5.4},
        "generated at the shape of MIRFlickr-25K: dense features, about 5 tags, several labels",
    ),
    "nus-wide": _Shape(
        *(182_577, 4_000, 500, 1000),
        {"n_labels": 10, "labels_per_pair": 1.7, "image_words": 250.0, "text_words": 6.3},
        "generated at the shape of NUS-WIDE: counts of visual words, about 6 tags, several concepts",
    ),
}


def generate_collection(shape: str | int, *, seed: int = 0, held_out: float = 0.1) -> Collection:
    """Draw a collection whose right answer is known.

    Parameters
    ----------
    shape : {"wiki", "flickr25k", "nus-wide"} or int
        The shape of one of the paper's sets; or a number of pairs, of 256 dense image features and 1000
        words, with several of 10 labels. ``generated:`` may stand before it.
    seed : int, default 0
        The same seed gives the same collection.
    held_out : float, default 0.1
        Share of the queries among a number of pairs; the paper's sets have their own.

    Returns
    -------
    Collection
        Every document has a label, and one other text.

    Raises
    ------
    InvalidInput
        Neither a shape that is known nor a number of at least 20 pairs.
    """
    key = str(shape).removeprefix(PREFIX)
    wanted = _SHAPES.get(key) or _shape_of_size(key, held_out)
    n_pairs = wanted.n_train + wanted.n_query
    pairs = make_labelled_pairs(n_pairs, wanted.image_dim, wanted.text_dim, random_state=seed, **wanted.drawn)
    train, query = _take_part(pairs, 0, wanted.n_train), _take_part(pairs, wanted.n_train, n_pairs)
    name = f"generated-{key}"
    names = tuple(f"label {number}" for number in range(wanted.drawn["n_labels"]))
    return make_collection(name, train, query, names, wanted.note)


def _shape_of_size(key: str, held_out: float) -> _Shape:
    number = int(key) if re.fullmatch(r"\d{1,9}", key, re.ASCII) else 0
    if number < _SMALLEST:
        raise InvalidInput(
            f"expected {PREFIX}{f', {PREFIX}'.join(_SHAPES)}, or {PREFIX}N with N pairs, "
            f"at least {_SMALLEST}; got {PREFIX}{key[:40]}"
        )
    if not 0 < held_out < 1:
        raise InvalidInput(f"held_out: expected a share above 0 and below 1, got {held_out:g}")
    n_query = min(max(round(held_out * number), 1), number - 1)
    drawn = {"n_labels": 10, "labels_per_pair": 1.7, "text_words": 12.0}
    note = "generated: dense image features, about 11 words, several labels"
    return _Shape(number - n_query, n_query, 256, 1000, drawn, note)


def _take_part(pairs: LabelledPairs, start: int, end: int) -> Part:
    rows = slice(start, end)
    # a slice of an array is a view of the whole, which would keep the other part alive
    images = np.ascontiguousarray(pairs.images[rows])
    return Part(images, pairs.texts[rows], pairs.labels[rows], (pairs.other_texts[rows],))
