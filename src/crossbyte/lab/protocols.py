"""Define the protocols: who learns from what, what is searched and how it is coded, and what counts as found.

A protocol turns a collection into a :class:`Trial`, the same for all systems. No query's label and no
searched document's other half ever reaches a system, but where a protocol says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.errors import InvalidInput
from crossbyte.lab.datasets.collection import Collection, Part
from crossbyte.lab.latent_classes import infer_latent_classes
from crossbyte.lab.methods.method import Coding, Method, Side
from crossbyte.model.selection import MIN_GROUPS

Rows = NDArray[np.intp]

N_VALIDATION = 1_000
MAX_VALIDATED = 10_000
_VALIDATED_SHARE = 4  # of few training documents, this fraction asks the rest
_VALIDATION_SEED = 0  # one validation part for all systems and seeds


@dataclass(frozen=True, eq=False)
class Database:
    """Documents that are searched.

    Attributes
    ----------
    coding : {"training", "side", "pair"}
        The codes learned for the training documents; codes made from the searched side alone; or codes
        made from both sides.
    part : Part
        The documents; for ``"training"``, those that were learned from.
    labels : (N, C) uint8 or None
        Labels that count; None if none do.
    """

    coding: Coding
    part: Part
    labels: NDArray[np.uint8] | None

    def items(self, method: Method, side: Side) -> Any:
        """Let a system code the searched side."""
        if self.coding == "training":
            return method.training_items(side)
        if self.coding == "pair":
            return method.pair_items(side, self.part.images, self.part.texts)
        return method.side_items(side, self.part.images if side == "image" else self.part.texts)


@dataclass(frozen=True, eq=False)
class Task:
    """Queries of one side that look for the other, or for their own.

    Attributes
    ----------
    asks, searched : {"image", "text"}
    queries : (n, d) array or sparse matrix
    labels : (n, C) uint8 or None
        What a query shares one of with a relevant item; the system never sees it.
    partners : (n,) int or None
        Number of the one item that belongs to each query, where it is in the database.
    """

    asks: Side
    searched: Side
    queries: Any
    labels: NDArray[np.uint8] | None = None
    partners: Rows | None = None

    @property
    def name(self) -> str:
        """Such as ``"image-to-text"``."""
        return f"{self.asks}-to-{self.searched}"


@dataclass(frozen=True, eq=False)
class Trial:
    """What a protocol makes of a collection.

    Attributes
    ----------
    train : Part
        What systems learn from.
    database : Database
    tasks : tuple of Task
    notes : dict
        What else a reader of the result should know, such as which labels are new.
    """

    train: Part
    database: Database
    tasks: tuple[Task, ...]
    notes: dict[str, Any] = field(default_factory=dict)

    def tasks_of(self, method: Method) -> tuple[Task, ...]:
        """List the tasks that a system can answer; most can answer all."""
        coding = self.database.coding
        return tuple(task for task in self.tasks if method.answers(task.asks, task.searched, coding))


def make_trial(protocol: str, collection: Collection, variant: str = "") -> Trial:
    """Apply a protocol, or say why it cannot be applied to this collection."""
    if protocol not in PROTOCOLS:
        raise InvalidInput(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    return PROTOCOLS[protocol](collection, variant)


# The protocols


def _training_documents(collection: Collection, variant: str) -> Trial:
    """A: the database is what was learned from, with its learned codes; relevant is what shares a label."""
    return _query_by_labels(_keep_labelled(collection.train, "A"), _keep_labelled(collection.query, "A"))


def _unseen_by_one_side(collection: Collection, variant: str) -> Trial:
    """B: unseen documents coded from the searched side alone; the other side looks for its partner."""
    return _query_by_partners(collection.train, collection.query)


def _unseen_pairs(collection: Collection, variant: str) -> Trial:
    """C: unseen documents coded as pairs, asked by other texts than the one that was folded in."""
    query = collection.query
    if not has_other_texts(query):
        raise InvalidInput(
            f"protocol C asks with further texts of the same documents, and {collection.name} has none; "
            "use protocol B"
        )
    if query.other_texts:
        times, searched = len(query.other_texts), query
        asked = _stack_rows(query.other_texts)
        labels = None if query.labels is None else np.tile(query.labels, (times, 1))
        partners = np.tile(np.arange(len(query)), times)
    else:
        documents, rows, partners = _ask_within_groups(query)
        times, searched = 1, query.take(documents)
        asked, labels = query.texts[rows], None if query.labels is None else query.labels[rows]
    tasks = tuple(Task("text", side, asked, labels, partners) for side in _SEARCHED_BY_TEXT)
    database = Database("pair", searched, searched.labels)
    return Trial(collection.train, database, tasks, {"texts_per_item": times})


def has_other_texts(part: Part) -> bool:
    """Whether documents have other texts to ask with: of their own, or in other rows of their groups."""
    return bool(part.other_texts) or len(_ask_within_groups(part)[1]) > 0


def _ask_within_groups(part: Part) -> tuple[Rows, Rows, Rows]:
    """Choose the first row (g,) of each group as its document, and a row with another text (k,) that asks.

    The last are the places (k,) of what these look for, among the documents. A text that is repeated would
    find itself, so it does not ask; nor does anything where there are no groups.
    """
    none = np.empty(0, dtype=np.intp)
    if part.groups is None:
        return np.arange(len(part)), none, none
    _, firsts, group = np.unique(part.groups, return_index=True, return_inverse=True)
    gaps = abs(part.texts - part.texts[firsts[group]]).sum(axis=1)
    others = np.flatnonzero(np.asarray(gaps).ravel() > 0)
    partners, at = np.unique(group[others], return_index=True)
    return firsts, others[at], partners


def _new_classes(collection: Collection, variant: str) -> Trial:
    """D: documents of classes that were not learned from (Table 3 B of the paper)."""
    train, query = _keep_labelled(collection.train, "D"), _keep_labelled(collection.query, "D")
    labels = _require_labels(train)
    old, new = _halve_labels(labels)
    has_new = labels[:, new].any(axis=1)
    learned = train.take(np.flatnonzero(~has_new & labels[:, old].any(axis=1)))
    learned = Part(learned.images, learned.texts, _require_labels(learned)[:, old])
    searched = train.take(np.flatnonzero(has_new))
    asking = query.take(np.flatnonzero(_require_labels(query)[:, new].any(axis=1)))
    for part, what in ((learned, "old classes alone"), (searched, "new classes"), (asking, "new classes")):
        _check_not_empty(part, "D", f"documents of {what}")
    coding: Coding = "side" if variant == "side" else "pair"
    database = Database(coding, searched, _require_labels(searched)[:, new])
    tasks = _tasks_both_ways(asking, _require_labels(asking)[:, new], None)
    return Trial(learned, database, tasks, {"new_labels": _name_labels(collection, new)})


def _validate_by_labels(collection: Collection, variant: str) -> Trial:
    """V: as A, with a part of the training documents as queries against the rest."""
    learned, asking = _split_for_validation(_keep_labelled(collection.train, "V"))
    return _query_by_labels(learned, asking)


def _validate_by_partners(collection: Collection, variant: str) -> Trial:
    """P: as B, with a part of the training documents as the unseen ones."""
    return _query_by_partners(*_split_for_validation(collection.train))


def _validate_by_classes(collection: Collection, variant: str) -> Trial:
    """L: as V, with classes that the training pairs themselves show in place of labels."""
    learned, asking = _split_for_validation(collection.train)
    found = infer_latent_classes(
        _stack_rows((learned.images, asking.images)), _stack_rows((learned.texts, asking.texts))
    )
    classes = np.eye(found.n_classes, dtype=np.uint8)[found.classes]
    database = Database("training", learned, classes[: len(learned)])
    tasks = _tasks_both_ways(asking, classes[len(learned) :], None)
    return Trial(learned, database, tasks, {"n_classes": found.n_classes})


PROTOCOLS: dict[str, Callable[[Collection, str], Trial]] = {
    "A": _training_documents,
    "B": _unseen_by_one_side,
    "C": _unseen_pairs,
    "D": _new_classes,
    "V": _validate_by_labels,
    "P": _validate_by_partners,
    "L": _validate_by_classes,
}

FITTED_ON = {"A": "labelled", "B": "all", "C": "all", "D": "old classes", "V": "validation"}
FITTED_ON |= dict.fromkeys(("P", "L"), "partners")
"""Protocols with the same word learn from the same documents, so that one fit serves them all."""

_SEARCHED_BY_TEXT: tuple[Side, ...] = ("image", "text")


# Their parts


def _keep_labelled(part: Part, protocol: str) -> Part:
    """The documents that have a label: without one, nothing can be relevant to a document."""
    _require_labels(part, protocol)
    found = part.labelled()
    _check_not_empty(found, protocol, "documents with a label")
    return found


def _query_by_labels(learned: Part, asking: Part) -> Trial:
    database = Database("training", learned, _require_labels(learned))
    return Trial(learned, database, _tasks_both_ways(asking, _require_labels(asking), None))


def _query_by_partners(learned: Part, unseen: Part) -> Trial:
    tasks = _tasks_both_ways(unseen, unseen.labels, np.arange(len(unseen)))
    return Trial(learned, Database("side", unseen, unseen.labels), tasks)


def _tasks_both_ways(
    asking: Part, labels: NDArray[np.uint8] | None, partners: Rows | None
) -> tuple[Task, ...]:
    return (
        Task("image", "text", asking.images, labels, partners),
        Task("text", "image", asking.texts, labels, partners),
    )


def _split_for_validation(train: Part) -> tuple[Part, Part]:
    """Split training documents, or a sample of many, into those to learn from and those that ask."""
    order = np.random.default_rng(_VALIDATION_SEED).permutation(len(train))[: MAX_VALIDATED + N_VALIDATION]
    n_asking = min(N_VALIDATION, len(order) // _VALIDATED_SHARE)
    if len(order) < MIN_GROUPS:
        raise InvalidInput(
            f"a validation part needs at least {MIN_GROUPS} training documents, got {len(order)}; "
            "give more pairs"
        )
    return train.take(np.sort(order[n_asking:])), train.take(np.sort(order[:n_asking]))


def _halve_labels(labels: NDArray[np.uint8]) -> tuple[Rows, Rows]:
    """Deal the labels out in two halves, alternating from the most frequent to the rarest."""
    if labels.shape[1] < 2:
        raise InvalidInput(f"protocol D needs at least two labels, got {labels.shape[1]}; use protocol A")
    order = np.argsort(-labels.sum(axis=0, dtype=np.int64), kind="stable")
    return np.sort(order[::2]), np.sort(order[1::2])


def _name_labels(collection: Collection, columns: Rows) -> list[Any]:
    names = collection.label_names
    return [names[column] if names else int(column) for column in columns]


def _require_labels(part: Part, protocol: str = "A") -> NDArray[np.uint8]:
    if part.labels is None:
        raise InvalidInput(
            f"protocol {protocol} judges by labels, and these data have none; use --protocol B, which looks "
            "for true partners"
        )
    return part.labels


def _check_not_empty(part: Part, protocol: str, what: str) -> None:
    if len(part) == 0:
        raise InvalidInput(f"protocol {protocol} needs {what}, and there are none; use another protocol")


def _stack_rows(parts: tuple[Any, ...]) -> Any:
    """Rows below rows: dense or sparse, as they come."""
    if any(sparse.issparse(part) for part in parts):
        return sparse.vstack(parts, format="csr")
    return np.vstack(parts)
