"""Collaborative quantization (CMCQ) as the laboratory sees it: the paper's, on canonical points, and chosen.

Nothing is computed here: :class:`crossbyte.CMCQ` learns, codes and measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from crossbyte.arrays import Raw
from crossbyte.methods.from_model import FromModel, SparseMapping
from crossbyte.methods.protocol import INTRA_DOCUMENT, About
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.learned import Learned
from crossbyte.model.parameters import canonical_settings, check_parameters

__all__ = ["AutoCMCQ", "CanonicalCMCQ", "Collaborative", "PaperCMCQ", "about_cmcq"]


def about_cmcq(key: str, name: str, in_paper: bool, reconstructed: str) -> About:
    """What all settings of CMCQ declare alike, and what is their own."""
    return About(
        key=key,
        name=name,
        source="T. Zhang, J. Wang: Collaborative quantization for cross-modal similarity search. CVPR 2016",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
        coding="quantization",
        distance="table",
        in_paper=in_paper,
        reconstructed=reconstructed,
        bit_step=8,
    )


@dataclass(kw_only=True)
class Collaborative(FromModel):
    """An estimator as a compared system; every parameter of :class:`crossbyte.CMCQ` that applies is a field.

    Attributes
    ----------
    n_components, image_components, text_components : int or None
    image_power, text_power : float
        As for the estimator. Texts too wide for canonical correlation are reduced as for the other systems on
        it.
    shared_codebooks : bool
        One set of codebooks for both sides (the paper's C = D).
    max_iter : int
    tol : float
    """

    mapping: ClassVar[str]

    n_components: int | None = None
    image_components: int | None = None
    text_components: int | None = None
    image_power: float = 1.0
    text_power: float = 1.0
    shared_codebooks: bool = False
    max_iter: int = 10
    tol: float = 1e-4

    _model: CMCQ = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what the estimator would refuse, before any work."""
        super().__post_init__()
        check_parameters(self._estimator())

    def _estimator(self) -> CMCQ:
        chosen = {name: value for name, value in self.parameters.items() if name != "similarity"}
        same: dict[str, Any] = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        return CMCQ(self.n_bits, mapping=self.mapping, **same, **chosen)

    def _learn(self, images: Raw, texts: Raw) -> Learned:
        self._model = self._estimator()
        if self.mapping != "sparse":
            settings = canonical_settings(check_parameters(self._model), texts.shape[1])
            self._model.set_params(text_components=settings.text_components)
        return self._model.fit(images, texts).fitted_


@dataclass(kw_only=True)
class PaperCMCQ(SparseMapping, Collaborative):
    """The paper's method with the paper's constants where it gives them.

    Attributes
    ----------
    correlation : float
        γ, the pull between the codes of a pair; 0 quantizes the sides apart, as the paper's ablation does.
    cross_penalty : float
        μ, the penalty on cross terms that are not constant.
    cross_term : {"constant", "stored"}
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq",
        "CMCQ",
        True,
        "Whether ρ is absolute, the starts, the order of updates and the codes of unseen items are ours.",
    )
    mapping: ClassVar[str] = "sparse"

    correlation: float = 0.3
    cross_penalty: float = 0.1
    cross_term: str = "constant"


@dataclass(kw_only=True)
class CanonicalCMCQ(Collaborative):
    """Collaborative quantization of the points of the canonical space, that of the systems named ``cca-``.

    Attributes
    ----------
    ridge, text_ridge : float or None
        Of the canonical correlation; None for 1 and for the same, in units of a side's mean variance.
    correlation, cross_penalty : float
        γ and μ.
    cross_term : {"constant", "stored"}
        Stored by default: the quantizers it is compared with are given exact distances too.
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-cca", "CMCQ on CCA", False, "Canonical correlation instead of the paper's sparse mapping."
    )
    mapping: ClassVar[str] = "cca"

    ridge: float | None = None
    text_ridge: float | None = None
    correlation: float = 1.0
    cross_penalty: float = 0.1
    cross_term: str = "stored"


@dataclass(kw_only=True)
class AutoCMCQ(SparseMapping, Collaborative):
    """Mapping, dimensions, ridge, γ, μ and cross term by what finds partners of held-out training pairs.

    No label is looked at, nor any query. The paper's mapping is among what is tried; ``n_components`` and
    ``ridge`` are chosen where they are None.

    Attributes
    ----------
    ridge : float or None
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-auto",
        "CMCQ, chosen",
        False,
        "What the paper fixes is chosen on held-out pairs of the training set.",
    )
    mapping: ClassVar[str] = "auto"

    ridge: float | None = None

    @property
    def details(self) -> dict[str, Any]:
        """As for all, and under ``chosen`` what was chosen of how many trials."""
        learned, model = self._fitted(), self._model
        chosen = {
            "mapping": model.mapping_,
            "n_components": model.n_components_,
            "ridge": model.ridge_,
            "correlation": model.correlation_,
            "cross_penalty": model.cross_penalty_,
            "cross_term": learned.settings.cross_term,
            "n_trials": len(model.selection_),
        }
        return super().details | {"chosen": chosen}
