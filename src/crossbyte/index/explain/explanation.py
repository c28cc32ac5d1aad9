"""Describe an explanation: why a document is where it is, as a value and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from crossbyte._json import plain_json
from crossbyte.index.docids import Id


@dataclass(frozen=True)
class Share:
    """What one codebook adds to the distance.

    Attributes
    ----------
    side : {"image", "text", "document"}
    codebook : int or None
        None for the stored cross term, which is one more share.
    codeword : int
        The item's; for a stored cross term, its level.
    share : float
        |c|² - 2 x'·c, that is, ``entry`` less the squared length of the query; for a stored cross term, the
        entry itself.
    entry : float
        What the search read from its table: the squared distance from the query to the codeword.
    best_codeword : int
        The codeword of this codebook that is nearest to the query.
    best_entry : float
        Its entry: the smallest of the table.
    n_training : int or None
        Training pairs that have this codeword; not counted for a stored cross term.
    training_rows : tuple of int
        Some of them, those that share most other codewords with the item first.
    """

    side: str
    codebook: int | None
    codeword: int
    share: float
    entry: float
    best_codeword: int
    best_entry: float
    n_training: int | None
    training_rows: tuple[int, ...]


@dataclass(frozen=True)
class Constants:
    """What is added to the shares, whatever the codewords are.

    Attributes
    ----------
    squared_length : float
        |x'|² of the query, once for each side that was compared.
    cross_term : float
        ε, the mean cross term, once for each side; zero where the cross term is stored.
    coding_offset : float
        What calibration, or else the model itself, adds to all items of this coding.
    rounding : float
        What the search's sum in float32 has lost or gained against the sum in float64.
    """

    squared_length: float
    cross_term: float
    coding_offset: float
    rounding: float

    @property
    def total(self) -> float:
        """All of them, summed in float64."""
        return self.squared_length + self.cross_term + self.coding_offset + self.rounding


@dataclass(frozen=True)
class Example:
    """A training pair, and how many codewords it shares with the item on each side that was compared."""

    row: int
    shared: dict[str, int]


@dataclass(frozen=True)
class Feature:
    """A dimension of the features, or an atom of the image dictionary.

    Attributes
    ----------
    kind : {"image", "text", "atom"}
    column : int
    name : str or None
        The word, where a vocabulary was given.
    value : float
        What the query has there: the feature as it was given, or the weight of the atom.
    share : float
        What it adds to the inner product of the query and the item.
    """

    kind: str
    column: int
    name: str | None
    value: float
    share: float


@dataclass(frozen=True)
class InnerProduct:
    """x'·v, the inner product of the query and the item's decoded point, taken apart.

    A larger one is a smaller distance. The shares of the features, of the mean and of all others add up
    to ``total`` as far as float32 can say.

    Attributes
    ----------
    total : float
    features : tuple of Feature
        The strongest, by the size of their share; empty for a query by example.
    mean : float
        Share of the training mean, which preparation takes off every row.
    others : float
        Share of all features that are not listed.
    """

    total: float
    features: tuple[Feature, ...]
    mean: float
    others: float


@dataclass(frozen=True)
class Word:
    """A dimension of the text features that points towards the item.

    Attributes
    ----------
    column : int
    name : str or None
        The word, where a vocabulary was given.
    pull : float
        How much the inner product with the item grows for each unit of this feature, before a text is brought
        to its length.
    """

    column: int
    name: str | None
    pull: float


@dataclass(frozen=True)
class Swap:
    """The codeword that would bring the item nearest if this one codebook were free to choose.

    Attributes
    ----------
    side : {"image", "text", "document"}
    codebook, codeword : int
    gain : float
        How much nearer the item would be; zero if it has the best one.
    """

    side: str
    codebook: int
    codeword: int
    gain: float


@dataclass(frozen=True)
class Ahead:
    """The item one place ahead.

    Attributes
    ----------
    id : str or int
    distance : float
    gap : float
        How much nearer than the explained item; zero if their numbers decided.
    """

    id: Id
    distance: float
    gap: float


@dataclass(frozen=True)
class Nearer:
    """What the item would have needed to be nearer.

    Attributes
    ----------
    swaps : tuple of Swap
        One per side and codebook; a stored cross term follows the codeword.
    best_possible : float
        Distance of an item of the same coding whose codes are the best there are for this query. Exact with
        a constant cross term; with a stored one, the best that coding the query itself has found.
    ahead : Ahead or None
        None for the first.
    """

    swaps: tuple[Swap, ...]
    best_possible: float
    ahead: Ahead | None


@dataclass(frozen=True)
class Explanation:
    """Why a document is as near to a query as it is.

    Attributes
    ----------
    id : str or int
    query : {"image", "text"}
        Kind of the query.
    target : {"image", "text", "document"}
    coding : {"training", "pair", "image", "text", "document"}
        How the document was coded.
    distance : float
        The very float32 that a search gives: ``constant`` and all shares add up to it in float64.
    constant : float
        The sum of ``constants``.
    constants : Constants
    shares : tuple of Share
    rank : int
        From 1, among the live documents that have the target side.
    n_ranked : int
        How many these are.
    examples : tuple of Example
        Training pairs that share most codewords with the item; a training document is its own best.
    query_features : InnerProduct
    item_words : tuple of Word
        Dimensions of the text side that pull most towards the item's decoded point: what an image is about.
        The strongest first, by ``pull`` times the usual size of the feature.
    to_be_nearer : Nearer
    """

    id: Id
    query: str
    target: str
    coding: str
    distance: float
    constant: float
    constants: Constants
    shares: tuple[Share, ...]
    rank: int
    n_ranked: int
    examples: tuple[Example, ...]
    query_features: InnerProduct
    item_words: tuple[Word, ...]
    to_be_nearer: Nearer

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain JSON types."""
        plain: dict[str, Any] = plain_json(asdict(self), "explanation")
        return plain

    def __str__(self) -> str:
        return "\n".join(_format_explanation(self))


def _format_explanation(explanation: Explanation) -> Iterator[str]:
    """A few readable lines."""
    yield (
        f"{explanation.id!r} is number {explanation.rank} of {explanation.n_ranked} for this "
        f"{explanation.query} (target: {explanation.target}; coded as: {explanation.coding})"
    )
    yield from _format_distances(explanation)
    yield from _format_features(explanation)
    yield from _format_nearer(explanation.to_be_nearer)


def _format_distances(explanation: Explanation) -> Iterator[str]:
    constants = explanation.constants
    yield f"distance {explanation.distance:.6g} = constant {explanation.constant:.6g} + these shares:"
    for share in explanation.shares:
        entry = f"entry {share.entry:.6g}, best {share.best_entry:.6g}"
        yield f"  {_format_place(share)}: {share.share:+.6g} ({entry}{_format_sharing(share)})"
    yield (
        f"constant: query {constants.squared_length:.6g}, cross term {constants.cross_term:.6g}, "
        f"coding {constants.coding_offset:.6g}, rounding {constants.rounding:.2g}"
    )


def _format_place(share: Share) -> str:
    if share.codebook is None:
        return f"{share.side} cross term, level {share.codeword}"
    return f"{share.side} codebook {share.codebook}, codeword {share.codeword}"


def _format_sharing(share: Share) -> str:
    if share.n_training is None:
        return ""
    rows = ", ".join(map(str, share.training_rows))
    return f"; {share.n_training} training pairs share it" + (f", such as rows {rows}" if rows else "")


def _format_features(explanation: Explanation) -> Iterator[str]:
    if explanation.examples:
        shown = (f"row {e.row} ({sum(e.shared.values())} shared)" for e in explanation.examples)
        yield f"most alike in training: {', '.join(shown)}"
    product = explanation.query_features
    if product.features:
        shown = (f"{_format_name(feature)} {feature.share:+.4g}" for feature in product.features)
        yield (
            f"inner product {product.total:.4g} from: {', '.join(shown)}; "
            f"others {product.others:+.4g}, mean {product.mean:+.4g}"
        )
    if explanation.item_words:
        words = (word.name or f"text {word.column}" for word in explanation.item_words)
        yield f"texts that point to it: {', '.join(words)}"


def _format_name(feature: Feature) -> str:
    return feature.name or f"{feature.kind} {feature.column}"


def _format_nearer(nearer: Nearer) -> Iterator[str]:
    useful = [swap for swap in nearer.swaps if swap.gain > 0]
    if useful:
        best = max(useful, key=lambda swap: swap.gain)
        yield (
            f"nearer by {best.gain:.4g} with codeword {best.codeword} of {best.side} codebook "
            f"{best.codebook}; the best possible distance is {nearer.best_possible:.6g}"
        )
    if nearer.ahead is not None:
        yield f"one place ahead, by {nearer.ahead.gap:.4g}: {nearer.ahead.id!r}"
