"""MLBE: multimodal latent binary embedding, a probabilistic model of similarities given codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.blocks import row_blocks
from crossbyte.methods.hamming import SeparateHashing, pack_signs
from crossbyte.methods.label_rows import check_labels, shared_label
from crossbyte.methods.mlbe_bits import Links
from crossbyte.methods.mlbe_coding import Coder
from crossbyte.methods.mlbe_posterior import Half, State
from crossbyte.methods.mlbe_similarity import Kernel, nearest_documents, observe
from crossbyte.methods.mlbe_updates import ascend
from crossbyte.methods.protocol import INTER_MODALITY, INTRA_MODALITY, About, Side
from crossbyte.validation import check_integer, check_number

__all__ = ["MLBE"]

_ROWS_AT_ONCE = 1024  # training documents that are coded together, with their relations to all learned ones

Related = Callable[[NDArray[np.intp]], NDArray[np.bool_]]
"""Takes numbers of n training documents to whether each is related to each of the N learned ones: (n, N)."""


@dataclass(kw_only=True)
class MLBE(SeparateHashing):
    """Multimodal latent binary embedding.

    Codes, weights and variances maximise the posterior of :mod:`crossbyte.methods.mlbe_posterior`, by
    coordinate ascent from random codes, given the similarities within each half and the relations between
    halves of some training documents. Every other document is coded by the rule for a single bit, with the
    learned codes fixed: a query by its similarities to the learned documents of its own side and by nothing
    else; a training document that was not learned from also by its relations to them, as in learning.

    Attributes
    ----------
    max_documents : int
        A random part of at most so many training documents is learned from, since all pairs of them count;
        ``details["n_learned_from"]`` says how many it was.
    n_neighbours : int
        With ``similarity="pairs"``: image i and text j are related if document j is among so many documents
        nearest to i, by the sum of the similarities of both halves. With 1, only if i = j.
    negatives : float
        Unrelated pairs that are observed for each related one.
    width : float
        Of the kernel that is the similarity within a half, relative to the mean squared distance.
    noise : float
        Variance of similarities expected beforehand (θ₀), relative to their mean square: the larger, the more
        relations count.
    n_sweeps : int
        Most sweeps over all blocks; fewer where they cease to gain.
    """

    about: ClassVar[About] = About(
        key="mlbe",
        name="MLBE",
        source="Zhen, Yeung, KDD 2012",
        relations=(INTRA_MODALITY, INTER_MODALITY),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed=(
            "Similarities and priors are ours, as the source leaves them to its user: centred Gaussian "
            "kernels, and weak priors but for the noise of similarities, which would otherwise drown the "
            "relations. With pairs alone, documents that are near each other in both halves count as "
            "related, since pairs by themselves say too little. The link is maximised exactly instead of by "
            "gradient steps, and the best bit of a document is turned first. Training documents beyond the "
            "subsample are coded by their similarities and relations to it; a query's relations are never "
            "known."
        ),
    )

    max_documents: int = 500
    n_neighbours: int = 50
    negatives: float = 1.0
    width: float = 0.5
    noise: float = 10.0
    n_sweeps: int = 30

    _coders: dict[Side, Coder] = field(init=False, repr=False, default_factory=dict)
    _learned_codes: dict[Side, Float64] = field(init=False, repr=False, default_factory=dict)
    _details: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        for name, low in (("max_documents", 2), ("n_neighbours", 1), ("n_sweeps", 0)):
            check_integer(getattr(self, name), name, low)
        check_number(self.negatives, "negatives", 0.0)
        for name in ("width", "noise"):
            check_number(getattr(self, name), name, 0.0, open_low=True)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many documents were learned from, and the log posterior at the start and after every sweep."""
        return self._details

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs, or from labels of the training documents, whose codes are kept as learned."""
        super().fit(images, texts, labels)
        self._training_codes = {side: pack_signs(codes) for side, codes in self._learned_codes.items()}
        self._learned_codes = {}
        return self

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        rng = np.random.default_rng(self.random_state)
        sides: dict[Side, Raw] = {"image": images, "text": texts}
        chosen = np.sort(rng.permutation(images.shape[0])[: self.max_documents])
        kernels = {side: Kernel.fit(rows[chosen], self.width, f"{side}s") for side, rows in sides.items()}
        related = self._related(sides, kernels, labels, chosen)
        state, history = self._ascended(kernels, related(chosen), rng)
        self._details = {"n_learned_from": len(chosen), "log_posterior": history}
        halves: dict[Side, Half] = {"image": state.image, "text": state.text}
        self._coders = {side: Coder.of_half(kernels[side], half) for side, half in halves.items()}
        self._learned_codes = self._code_training(sides, state, related, rng)
        for side, half in halves.items():
            self._learned_codes[side][chosen] = half.codes

    def _related(
        self, sides: dict[Side, Raw], kernels: dict[Side, Kernel], labels: Any, chosen: NDArray[np.intp]
    ) -> Related:
        """Say what makes training documents related: a label in common, or being near in both halves."""
        if self.similarity == "labels":
            known = check_labels(labels, sides["image"].shape[0], self.about.name)
            return lambda rows: shared_label(known[rows], known[chosen])

        def near(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            parts = [
                kernel.similarities(sides[side][rows]) / kernel.scale for side, kernel in kernels.items()
            ]
            return nearest_documents(parts[0] + parts[1], self.n_neighbours)

        return near

    def _ascended(
        self, kernels: dict[Side, Kernel], related: NDArray[np.bool_], rng: np.random.Generator
    ) -> tuple[State, list[float]]:
        """Learn from the chosen documents; if one is related to the other, so is the other to the one."""
        image, text = self._start(kernels["image"], rng), self._start(kernels["text"], rng)
        state = State(image, text, observe(related | related.T, self.negatives, rng))
        sweeps = list(ascend(state, self.n_sweeps))
        return sweeps[-1][0], [value for _, value in sweeps]

    def _start(self, kernel: Kernel, rng: np.random.Generator) -> Half:
        """Random codes that explain nothing yet."""
        similarities = kernel.own_similarities()
        codes = np.where(rng.random((len(similarities), self.n_bits)) < 0.5, -1.0, 1.0)
        return Half(similarities, codes, np.zeros((self.n_bits, self.n_bits)), self.noise * kernel.scale**2)

    def _code_training(
        self, sides: dict[Side, Raw], state: State, related: Related, rng: np.random.Generator
    ) -> dict[Side, Float64]:
        """Code all training documents (N, c) by similarities and relations to the learned ones."""
        n = sides["image"].shape[0]
        others: dict[Side, Float64] = {"image": state.text.codes, "text": state.image.codes}
        codes: dict[Side, Float64] = {side: np.empty((n, self.n_bits)) for side in sides}
        for block in row_blocks(n, _ROWS_AT_ONCE):
            relations = observe(related(np.arange(block.start, block.stop)), self.negatives, rng)
            for side, rows in sides.items():
                links = Links.of_relations(relations, others[side], state.link)
                codes[side][block] = self._coders[side].code(rows[block], links)
        return codes

    def _signs(self, side: Side, rows: Raw) -> Float64:
        signs = np.empty((rows.shape[0], self.n_bits))
        for block in row_blocks(len(signs)):
            signs[block] = self._coders[side].code(rows[block])
        return signs
