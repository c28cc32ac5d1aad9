"""Compare the words of a query with those of documents: what a search engine without images would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from crossbyte.arrays import Float32, Float64
from crossbyte.calibration.baselines import keyword_distances
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods.method import About, Coding, Method, Side
from crossbyte.validation import check_features, check_pairs, check_rows_agree


@dataclass(kw_only=True)
class Keywords(Method):
    """Cosine of word counts, as in a model's own report.

    Only texts can ask, and only documents with a text of their own can be found: by image queries, and among
    documents of which the image alone is known, there is nothing to compare. A document is its words, so
    ``n_bits`` does not matter; :attr:`details` tells the bytes.

    Attributes
    ----------
    idf : bool
        Weigh words by how few training texts have them: 1 + log((1 + N) / (1 + n_with)). Not by default:
        it helps where captions ask, and costs more where attributes ask, which are common words.
    """

    about: ClassVar[About] = About(
        key="keywords",
        name="keyword overlap",
        source="G. Salton, C. Buckley: Term-weighting approaches in automatic text retrieval. IPM 1988",
        relations=(),
        codes="none",
        coding="none",
        distance="exact",
        in_paper=False,
    )

    idf: bool = False

    _texts: Any = field(init=False, repr=False, default=None)
    _weights: Float64 = field(init=False, repr=False)

    @property
    def details(self) -> dict[str, Any]:
        """``bytes_per_document``, the mean over the training documents.

        Each word is a number, of as many whole bytes as the vocabulary needs; and its count, of one byte, or
        of four where it is no small whole number, or of none where no word is counted twice.
        """
        texts = self._require_fitted()
        counts = texts.data
        is_small = bool((counts == np.round(counts)).all() and (counts < 256).all())
        count_bytes = (0 if (counts <= 1).all() else 1) if is_small else 4
        word_bytes = -(-max(texts.shape[1] - 1, 1).bit_length() // 8)
        return {"bytes_per_document": (word_bytes + count_bytes) * texts.nnz / texts.shape[0]}

    def answers(self, asks: Side, searched: Side, coding: Coding) -> bool:
        """Whether both have words: the query is a text, and the documents' texts are known."""
        return asks == "text" and (searched == "text" or coding != "side")

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Weigh the words, and keep those of the training documents; nothing is learned from images."""
        _, texts = check_pairs(images, texts)
        words = self._texts = _to_words(texts)
        n_with = np.bincount(words.indices, minlength=words.shape[1])
        inverse = 1.0 + np.log((1 + words.shape[0]) / (1 + n_with))
        self._weights = inverse if self.idf else np.ones(words.shape[1])
        return self

    def queries(self, side: Side, rows: Any) -> Any:
        """Word counts (n, d), sparse, of texts."""
        return self._check_words(side, rows)

    def training_items(self, side: Side) -> Any:
        """Word counts (N, d), sparse, of the training documents; the same for either ``side``."""
        return self._require_fitted()

    def side_items(self, side: Side, rows: Any) -> Any:
        """Word counts (n, d), sparse, of documents of which the text alone is known."""
        return self._check_words(side, rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Any:
        """Word counts (n, d), sparse, of documents; the same for either ``side``."""
        check_rows_agree(images, texts)
        return self._check_words("text", texts)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """One minus the cosine (n, N) of weighted counts; 1 where no word is shared."""
        self._require_fitted()
        weigh = sparse.diags_array(self._weights)
        return keyword_distances(queries @ weigh, items @ weigh)

    def _check_words(self, side: Side, rows: Any) -> Any:
        n_words = self._require_fitted().shape[1]
        if side == "image":
            raise InvalidInput(
                "keyword overlap compares texts, and images have no words; ask with texts, and search "
                "documents whose texts are known"
            )
        return _to_words(check_features(rows, "texts", n_words))

    def _require_fitted(self) -> Any:
        if self._texts is None:
            raise self._not_fitted_error()
        return self._texts


def _to_words(texts: Any) -> Any:
    """Counts (n, d) as a sparse array, without stored zeros; refuse what cannot be counts of words."""
    words = sparse.csr_array(texts, copy=True)
    words.eliminate_zeros()
    if (words.data < 0).any():
        raise InvalidInput(
            "texts: expected counts of words for keyword overlap, got numbers below 0; leave it out"
        )
    return words
