"""Composite quantization (CQ) alone: what is left of CMCQ when nothing is learned together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbyte.arrays import Raw
from crossbyte.executors.threads import Workers
from crossbyte.mapping.space import SparseSpace
from crossbyte.mapping.sparse import SparseState
from crossbyte.methods.from_model import FromModel, SparseMapping
from crossbyte.methods.protocol import INTRA_DOCUMENT, About
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.fitting import prepare, start_sparse
from crossbyte.model.learned import Learned
from crossbyte.model.objective import ObjectiveRecord, Problem, State
from crossbyte.model.parameters import Settings, check_parameters, generator
from crossbyte.model.training import alternate, initial_sides, quantization_blocks
from crossbyte.progress import silent
from crossbyte.quantization.collaborative import Side as QuantizerSide
from crossbyte.quantization.quantizer import Quantizer

__all__ = ["CQ"]


@dataclass(kw_only=True)
class CQ(SparseMapping, FromModel):
    """The paper's mapping learned to its end, then composite quantization of each side's points apart.

    That is CMCQ without γ and without the alternation between mapping and codes: with γ = 0 alone, CMCQ would
    still move the points towards their codes.

    Attributes
    ----------
    n_components : int or None
        Dimensions of the common space; None for ``n_bits``.
    image_components, text_components : int or None
        PCA before the mapping. None: images 64, texts off.
    cross_penalty : float
        μ, the penalty on cross terms that are not constant.
    cross_term : {"constant", "stored"}
    max_iter : int
        Largest number of rounds, of the mapping and of the quantizers.
    tol : float
    """

    about: ClassVar[About] = About(
        key="cq",
        name="CQ",
        source="T. Zhang, C. Du, J. Wang: Composite quantization for approximate nearest neighbor search. "
        "ICML 2014",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
        coding="quantization",
        distance="table",
        in_paper=False,
        reconstructed="It codes one modality; here the two sides of CMCQ's common space, each by itself.",
        bit_step=8,
    )

    n_components: int | None = None
    image_components: int | None = None
    text_components: int | None = None
    cross_penalty: float = 0.1
    cross_term: str = "constant"
    max_iter: int = 10
    tol: float = 1e-4

    def __post_init__(self) -> None:
        """Refuse wrong parameters before any work."""
        super().__post_init__()
        self._settings()

    def _settings(self) -> Settings:
        chosen = {name: value for name, value in self.parameters.items() if name != "similarity"}
        return check_parameters(CMCQ(self.n_bits, correlation=0.0, n_jobs=self.n_jobs, **chosen))

    def _learn(self, images: Raw, texts: Raw) -> Learned:
        settings, rng = self._settings(), generator(self.random_state)
        with Workers(self.n_jobs) as workers:
            preparations, rows = prepare(settings, images, texts, workers)
            problem = Problem(*rows, settings.weights, settings.quantization_weights, workers)
            mapping = start_sparse(problem, settings, rng, silent)
            state, history = _quantized(problem, mapping, settings, rng)
            space = SparseSpace.of(mapping, *rows, settings.weights, settings.query_map, workers)
            assert state.sides is not None
            image, text = state.sides
            weight = settings.quantization_weights.cross_penalty
            learned = Learned(
                settings,
                *preparations,
                space,
                _quantizer(image, weight),
                _quantizer(text, weight),
                image.codes,
                text.codes,
                history,
            )
            return learned.with_cross_term(settings.cross_term, workers)


def _quantizer(side: QuantizerSide, cross_penalty: float) -> Quantizer:
    return Quantizer(side.codewords.astype(np.float32), side.epsilon, cross_penalty, None)


def _quantized(
    problem: Problem, mapping: SparseState, settings: Settings, rng: np.random.Generator
) -> tuple[State, list[ObjectiveRecord]]:
    """Both sides coded, the points left where they are."""
    start = initial_sides(problem, State(mapping), settings.n_codebooks, False, rng)
    blocks = quantization_blocks(shared=False)
    return alternate(problem, start, blocks, settings.max_iter, settings.tol, lambda record: None)
