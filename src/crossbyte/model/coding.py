"""What a fitted model does with new items: places, codes, decodes, measures and ranks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.errors import InvalidInput, NotFitted
from crossbyte.executors.threads import Workers
from crossbyte.mapping.space import SparseSpace
from crossbyte.model import scoring
from crossbyte.model.learned import Learned
from crossbyte.model.parameters import QUERY_MAPS
from crossbyte.model.saving import Saved
from crossbyte.validation import check_choice, check_codes, check_features, check_groups, check_rows_agree

__all__ = ["Coding"]


class Coding(Saved):
    """An estimator that has learned, seen by those who only use it."""

    n_jobs: int | None
    query_map: str

    # New items

    def transform_images(self, images: Any) -> Float32:
        """Place (n, d_I) image features in the common space: (n, D) float32."""
        learned = self._current()
        images = check_features(images, "images", learned.image_preparation.n_features)
        with Workers(self.n_jobs) as workers:
            return learned.transform_images(images, workers)

    def transform_texts(self, texts: Any) -> Float32:
        """Place (n, d_T) text features in the common space: (n, D) float32."""
        learned = self._current()
        texts = check_features(texts, "texts", learned.text_preparation.n_features)
        with Workers(self.n_jobs) as workers:
            return learned.transform_texts(texts, workers)

    def encode_images(self, images: Any) -> Codes:
        """Code (n, d_I) image features that come without their texts: (n, M) uint8."""
        learned = self._current()
        images = check_features(images, "images", learned.image_preparation.n_features)
        with Workers(self.n_jobs) as workers:
            return learned.encode_images(images, workers)

    def encode_texts(self, texts: Any) -> Codes:
        """Code (n, d_T) text features that come without their images: (n, M) uint8."""
        learned = self._current()
        texts = check_features(texts, "texts", learned.text_preparation.n_features)
        with Workers(self.n_jobs) as workers:
            return learned.encode_texts(texts, workers)

    def encode_pairs(self, images: Any, texts: Any) -> tuple[Codes, Codes]:
        """Fold in new pairs: codes of both halves, each knowing the other; nothing learned changes."""
        learned = self._current()
        images = check_features(images, "images", learned.image_preparation.n_features)
        texts = check_features(texts, "texts", learned.text_preparation.n_features)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            return learned.encode_pairs(images, texts, workers)

    def decode_images(self, codes: Any) -> Float32:
        """Give the points (n, D) that image codes (n, M) stand for."""
        return self._decode("image", codes)

    def decode_texts(self, codes: Any) -> Float32:
        """Give the points (n, D) that text codes (n, M) stand for."""
        return self._decode("text", codes)

    # Distances

    def distances(
        self, *, images: Any = None, texts: Any = None, image_codes: Any = None, text_codes: Any = None
    ) -> Float32:
        """Distances (n, N) float32 from queries of one kind to coded items of one kind.

        Give one of ``images`` and ``texts`` (query features) and one of ``image_codes`` and ``text_codes``
        (items, (N, M) uint8). A distance estimates the squared Euclidean one in the common space.
        """
        if (images is None) == (texts is None) or (image_codes is None) == (text_codes is None):
            raise InvalidInput(
                "expected one kind of query (images= or texts=) "
                "and one kind of item (image_codes= or text_codes=)"
            )
        points = self.transform_texts(texts) if images is None else self.transform_images(images)
        side = "text" if image_codes is None else "image"
        codes = check_codes(text_codes if image_codes is None else image_codes, self._n_codebooks)
        quantizer = getattr(self._current(), f"{side}_quantizer")
        with Workers(self.n_jobs) as workers:
            scan = quantizer.scan_codes(codes, workers)
        return np.asarray(quantizer.table(points).distances(scan), dtype=np.float32)

    def training_distances(self, *, images: Any = None, texts: Any = None) -> Float32:
        """Distances (n, N) from image queries to the training texts, or from texts to the images.

        The paper's search: the database is the training set with its learned codes.
        """
        if images is not None:
            return self.distances(images=images, texts=texts, text_codes=self.text_codes_)
        return self.distances(texts=texts, image_codes=self.image_codes_)

    def partner_ranks(self, images: Any, texts: Any, groups: Any = None) -> scoring.PartnerRanks:
        """Rank of each item's true partner among these pairs, every item coded from its own side alone."""
        pairs = self._check_new_pairs(images, texts, groups)
        with Workers(self.n_jobs) as workers:
            return scoring.held_out_ranks(self._current(), *pairs, workers)

    def score(self, images: Any, texts: Any, groups: Any = None) -> float:
        """Mean recall@10 of true partners over both directions (see :meth:`partner_ranks`)."""
        if texts is None:
            raise InvalidInput("score requires y to be passed, but the target y is None: expected the texts")
        return self.partner_ranks(images, texts, groups).recall(10)

    # What was learned

    def _current(self) -> Learned:
        """What was learned, with the query map as it is set now."""
        if not hasattr(self, "_learned"):
            raise NotFitted(
                f"This {type(self).__name__} instance is not fitted yet: "
                "call fit(images, texts), or load a model"
            )
        learned: Learned = self._learned
        if self.query_map == learned.settings.query_map or not isinstance(learned.space, SparseSpace):
            return learned
        query_map = check_choice(self.query_map, "query_map", QUERY_MAPS)
        settings = learned.settings._replace(query_map=query_map)
        return replace(learned, settings=settings, space=replace(learned.space, query_map=settings.query_map))

    def _check_new_pairs(self, images: Any, texts: Any, groups: Any) -> tuple[Raw, Raw, NDArray[np.intp]]:
        """Both sides and the numbered groups of pairs that this model can code."""
        learned = self._current()
        images = check_features(images, "images", learned.image_preparation.n_features, min_rows=1)
        texts = check_features(texts, "texts", learned.text_preparation.n_features, min_rows=1)
        check_rows_agree(images, texts)
        return images, texts, check_groups(groups, images.shape[0])

    @property
    def _n_codebooks(self) -> int:
        return self._current().settings.n_codebooks

    def _decode(self, side: str, codes: Any) -> Float32:
        codes = check_codes(codes, self._n_codebooks)
        with Workers(self.n_jobs) as workers:
            return np.asarray(getattr(self._current(), f"{side}_quantizer").decode(codes, workers))
