"""One file with both sides and labels as research code passes it on: I_tr, T_tr, L_tr, I_te, T_te, L_te.

Or XAll, YAll, LAll, without a split. Usually a ``.mat`` file.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from scipy import sparse

from crossbyte.data.collections.arrays import read_matrix
from crossbyte.data.collections.collection import Collection, Part, make_collection, make_part, thinned
from crossbyte.data.collections.labels import label_columns
from crossbyte.data.collections.splitting import split_part
from crossbyte.data.files.contents import Contents
from crossbyte.errors import DataFileError

__all__ = ["bundle_collection", "is_bundle"]

_SPLIT = (("I_tr", "T_tr", "L_tr"), ("I_te", "T_te", "L_te"))
_WHOLE = ("XAll", "YAll", "LAll")
_PAPER = {(128, 10, 10): "wiki", (3857, 2000, 38): "mirflickr", (500, 1000, 10): "nus-wide"}
_MOST_QUERIES = {"nus-wide": 4000}


def is_bundle(contents: Contents) -> bool:
    """Whether the names in a file are those of a bundle."""
    names = {name.split("_data")[0] for name in contents.entries}
    return bool(names & {"I_tr", "T_tr", "I_te", "T_te"}) or {"XAll", "YAll"} <= names


def bundle_collection(
    contents: Contents, stem: str, name: str | None, *, seed: int, held_out: float
) -> Collection:
    """Read both sides and labels.

    Parameters
    ----------
    contents : Contents
    stem : str
        The name of the file, for a collection of no known shape.
    name : str or None
        Overrides both; None: after the shape of one of the paper's sets, where it is one, else the stem.
    seed, held_out : int, float
        Of the queries, where the file has no split.

    Returns
    -------
    Collection

    Raises
    ------
    InvalidInput
        DataFileError, where a variable is missing or not what it should be.
    """
    if _has(contents, "XAll"):
        (part,), names = _parts(contents, [_WHOLE])
        title = name or _title(part) or stem
        most = _MOST_QUERIES.get(title)
        parts = [*split_part(part, seed=seed, held_out=held_out, at_most=most)]
    else:
        parts, names = _parts(contents, _SPLIT)
        title = name or _title(parts[0]) or stem
    return make_collection(
        title, parts[0], parts[1], names, "read from one file as research code passes it on"
    )


def _has(contents: Contents, name: str) -> bool:
    return name in contents.entries or contents.has_sparse(name)


def _title(part: Part) -> str | None:
    n_labels = 0 if part.labels is None else part.labels.shape[1]
    return _PAPER.get((part.images.shape[1], part.texts.shape[1], n_labels))


def _parts(contents: Contents, wanted: Any) -> tuple[list[Part], tuple[str, ...]]:
    missing = [name for names in wanted for name in names if not _has(contents, name)]
    without_labels = all(name.startswith("L") for name in missing) and len(missing) == len(wanted)
    if missing and not without_labels:
        raise DataFileError(
            f"expected {', '.join(name for names in wanted for name in names)} (the labels, in L, may all be "
            f"missing); missing: {', '.join(missing)}; there are: {contents.listing()}"
        )
    sides = [
        make_part(read_matrix(contents, i), thinned(read_matrix(contents, t)), None) for i, t, _ in wanted
    ]
    if missing:
        return sides, ()
    labels, names = label_columns([_dense(contents, key) for *_, key in wanted], wanted[0][2])
    return [make_part(part.images, part.texts, each) for part, each in zip(sides, labels, strict=True)], names


def _dense(contents: Contents, name: str) -> NDArray[Any]:
    values = read_matrix(contents, name)
    return values.toarray() if isinstance(values, sparse.csr_matrix) else values
