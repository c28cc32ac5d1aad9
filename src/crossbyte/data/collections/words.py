"""Bags of words of captions, tokenised as stored text features were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["PATTERNS", "bag_of_words", "captions_behind"]

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


def captions_behind(
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
