"""From pairs of features to a model: fitted, measured and audited, however few or many they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from crossbyte.errors import InvalidInput
from crossbyte.gallery.encoded import Pairs
from crossbyte.model.audit.audit import audit_pairs
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.selection import MIN_GROUPS
from crossbyte.progress import ProgressCallback
from crossbyte.search.ids import Id

__all__ = ["MIN_PAIRS", "FitOptions", "audit", "check_enough", "fitted", "model_for"]

MIN_PAIRS = 2
_TEXT_COMPONENTS = 512  # of wide texts: words by the thousand would only be learned by heart
_MOST_ROWS = 200
# A hundred held-out pairs can tell spaces apart, but neither dimensions nor codes. On 1,000 photographs of
# Flickr8k's training part, codes of 4 bytes find 0.75 with these, 0.72 where "auto" chooses the codes, too.
_DIMS = 64
_CODES = {"correlation": 3.0, "cross_term": "stored"}


class FitOptions(NamedTuple):
    """What is asked of a model, and of its fit.

    Attributes
    ----------
    n_bits : int
    mapping : str
    parameters : dict
        Others of CMCQ.
    seed : int
    n_jobs : int or None
    curve : sequence of int or None
        Bytes at which quality is measured; None to measure nothing.
    max_memory : int or None
        Bytes; what the fit needs beyond these is on disk.
    cluster : str or None
        Where Ray is that the fit works on.
    """

    n_bits: int
    mapping: str
    parameters: dict[str, Any]
    seed: int
    n_jobs: int | None
    curve: Sequence[int] | None
    max_memory: int | None = None
    cluster: str | None = None

    def model(self, callback: ProgressCallback | None = None, **usual: Any) -> CMCQ:
        """Make the estimator; ``usual`` parameters are taken where others are not given."""
        given = {
            "n_bits": self.n_bits,
            "mapping": self.mapping,
            "random_state": self.seed,
            "n_jobs": self.n_jobs,
        }
        return CMCQ(**(usual | self.parameters | given), callback=callback)

    def fit_arguments(self) -> dict[str, Any]:
        """Give the arguments of ``CMCQ.fit`` that are no parameters of a model."""
        given = {"max_memory": self.max_memory, "cluster": self.cluster}
        return {name: value for name, value in given.items() if value is not None}


def model_for(
    options: FitOptions, n_groups: int, text_width: int = 1, callback: ProgressCallback | None = None
) -> CMCQ:
    """Make the estimator for raw documents; with too few groups to try spaces on, of the simplest space."""
    if options.mapping == "auto":
        options = options._replace(mapping="cca" if n_groups < MIN_GROUPS else "auto-space")
    usual: dict[str, Any] = {} if options.mapping == "sparse" else dict(_CODES)
    if text_width > _TEXT_COMPONENTS:
        usual["text_components"] = _TEXT_COMPONENTS
    if options.mapping != "sparse" and options.n_bits <= _DIMS:
        usual["n_components"] = _DIMS
    return options.model(callback, **usual)


def check_enough(n_pairs: int, n_pictures: int, n_texts: int) -> None:
    """Refuse what no model can be learned from."""
    if n_pairs >= MIN_PAIRS:
        return
    came = f"{n_pairs} of {n_pictures} pictures and {n_texts} texts"
    raise InvalidInput(
        f"expected at least {MIN_PAIRS} pictures with a text to learn from, got {came}; give pictures with "
        f"captions ({MIN_GROUPS} and more to measure the quality, about 1,000 for good answers)"
    )


def fitted(pairs: Pairs, options: FitOptions, callback: ProgressCallback) -> CMCQ:
    """Fit, and measure where there are groups enough."""
    model = model_for(options, pairs.n_groups, pairs.texts.shape[1], callback).fit(*pairs)
    if options.curve is not None and pairs.n_groups >= MIN_GROUPS:
        model.calibrate(*pairs, curve=options.curve)
    return model


def audit(model: CMCQ, pairs: Pairs, ids: Sequence[Id], callback: ProgressCallback) -> dict[str, Any] | None:
    """The pairs that look wrong, as they are kept; None where there are too few to compare."""
    if pairs.n_groups < MIN_GROUPS:
        return None
    document = audit_pairs(model, *pairs, callback=callback).to_dict()
    kept = {name: document[name] for name in ("n_pairs", "n_suspects", "agreement")}
    return kept | {"rows": [_named(entry, ids) for entry in document["rows"][:_MOST_ROWS]]}


def _named(entry: dict[str, Any], ids: Sequence[Id]) -> dict[str, Any]:
    better = entry["best_text"]
    figures = {name: value for name, value in entry.items() if name not in ("row", "best_text")}
    return {"id": ids[entry["row"]], **figures, "best_text_id": None if better is None else ids[better]}
