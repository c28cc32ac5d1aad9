"""Documents on their way into an index: judged as a whole, then coded, then cut into segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.blocks import BLOCK_ROWS, SHARE_ROWS, row_blocks
from crossbyte.errors import InvalidInput, PayloadTooLarge
from crossbyte.executors.choosing import make_executor
from crossbyte.executors.protocol import Executor
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.learned import Learned
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.search.bits import pack_bits
from crossbyte.search.filters.columns import build_columns
from crossbyte.search.ids import Id, PackedIds, check_id, check_ids
from crossbyte.search.numbers import Numbers
from crossbyte.search.segment import SEGMENT_ROWS, Groups, Segment
from crossbyte.strict_json import canonical_json, plain_json
from crossbyte.validation import check_codes, check_features

__all__ = ["MAX_PAYLOAD_BYTES", "Batch", "Documents", "Payloads", "check_payloads"]

MAX_PAYLOAD_BYTES = 2**20
_ROWS_AT_ONCE = 16 * BLOCK_ROWS  # points of so many rows are in memory at a time


@dataclass(frozen=True)
class Payloads:
    """Payloads as JSON objects, and as the bytes that are stored.

    Attributes
    ----------
    objects : list of dict or None
    bodies : list of bytes or None
    """

    objects: list[dict[str, Any] | None]
    bodies: list[bytes | None]

    def __getitem__(self, rows: slice) -> Payloads:
        return Payloads(self.objects[rows], self.bodies[rows])

    def take(self, rows: NDArray[np.intp]) -> Payloads:
        """Those of some documents."""
        chosen = rows.tolist()
        return Payloads([self.objects[row] for row in chosen], [self.bodies[row] for row in chosen])

    def present(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which documents have one."""
        return np.array([body is not None for body in self.bodies], dtype=bool)


def check_payloads(payloads: Any, n_rows: int) -> Payloads:
    """Take one JSON object (or None) per document; what is checked already stays as it is."""
    if isinstance(payloads, Payloads):
        return payloads
    if payloads is None:
        return Payloads([None] * n_rows, [None] * n_rows)
    if isinstance(payloads, str | bytes | Mapping) or not hasattr(payloads, "__iter__"):
        raise InvalidInput(f"payloads: expected one JSON object per document, got {type(payloads).__name__}")
    objects = [_check_payload(payload, row) for row, payload in enumerate(payloads)]
    if len(objects) != n_rows:
        raise InvalidInput(f"payloads: expected {n_rows}, one per document, got {len(objects)}")
    return Payloads(objects, [_body(payload, row) for row, payload in enumerate(objects)])


def _check_payload(payload: Any, row: int) -> dict[str, Any] | None:
    if payload is None:
        return None
    if not isinstance(payload, Mapping):
        kind = type(payload).__name__
        raise InvalidInput(f"payloads: expected a JSON object or None at row {row}, got {kind}")
    plain: dict[str, Any] = plain_json(payload, f"payloads[{row}]")
    return plain


def _body(payload: dict[str, Any] | None, row: int) -> bytes | None:
    if payload is None:
        return None
    try:
        body = canonical_json(payload).encode()
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidInput(f"payloads: row {row} cannot be written as JSON ({error})") from error
    if len(body) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payloads: expected at most {MAX_PAYLOAD_BYTES} bytes of JSON per document, got {len(body)} "
            f"at row {row}; store large values elsewhere and keep a reference"
        )
    return body


class Documents(TypedDict, total=False):
    """What may be said of documents beside their ids; :meth:`crossbyte.Index.add` explains each."""

    images: Any
    texts: Any
    image_codes: Any
    text_codes: Any
    payloads: Any
    groups: Any


@dataclass(frozen=True)
class Batch:
    """Documents that have passed every check but that of their ids against the index.

    Attributes
    ----------
    ids : list of str or int
    coding : str
    sides : mapping of side to features or ready codes
    ready : bool
        Whether the sides are codes.
    payloads : Payloads
    groups : list or None
    """

    ids: list[Id]
    coding: str
    sides: Mapping[str, Any]
    ready: bool
    payloads: Payloads
    groups: list[Id | None] | None

    @classmethod
    def check(cls, model: CMCQ, ids: Any, documents: Documents, coding: str | None = None) -> Batch:
        """Judge everything before anything is coded or written."""
        _refuse_unknown(documents)
        names = check_ids(ids)
        features = _given(documents, {"image": "images", "text": "texts"})
        codes = _given(documents, {"image": "image_codes", "text": "text_codes"})
        if bool(features) == bool(codes):
            raise InvalidInput(
                "expected features (images=, texts= or both) or ready codes (image_codes=, text_codes= or "
                f"both), got {'both kinds' if features else 'neither'}"
            )
        n_codebooks = len(model.image_codebooks_)
        sides = {
            side: check_codes(value, n_codebooks) if codes else _check_side(model, side, value)
            for side, value in (codes or features).items()
        }
        for side, value in sides.items():
            if value.shape[0] != len(names):
                raise InvalidInput(f"expected one {side} per id ({len(names)}), got {value.shape[0]} rows")
        known = "pair" if len(sides) == 2 else next(iter(sides))
        return cls(
            names,
            coding or known,
            sides,
            bool(codes),
            check_payloads(documents.get("payloads"), len(names)),
            _check_groups(documents.get("groups"), len(names)),
        )

    def codes(
        self, model: CMCQ, callback: ProgressCallback | None = None, cluster: str | None = None
    ) -> dict[str, Codes]:
        """Code the documents with what is known of them, here or on a cluster."""
        if self.ready:
            return {side: np.asarray(codes) for side, codes in self.sides.items()}
        learned, parts, done = model.fitted_, [], 0  # not through the model: features are judged already
        with make_executor(model.n_jobs, cluster=cluster) as workers:
            for part in self._coded(learned, workers, cluster):
                parts.append(part)
                done += len(part[0])
                if callback is not None:
                    callback(Progress("code", self.coding, done, len(self.ids)))
        nothing = np.empty((0, len(model.image_codebooks_)), dtype=np.uint8)
        return {
            side: np.concatenate([nothing, *(part[i] for part in parts)]) for i, side in enumerate(self.sides)
        }

    def _coded(self, learned: Learned, workers: Executor, cluster: str | None) -> Iterator[Sequence[Codes]]:
        """Codes block by block: each by all threads, or each by one task."""
        blocks = row_blocks(len(self.ids), _ROWS_AT_ONCE if cluster is None else SHARE_ROWS)
        some = ({side: features[rows] for side, features in self.sides.items()} for rows in blocks)
        if cluster is None:
            return (_encode(learned, block, workers) for block in some)
        light = replace(learned, image_codes=learned.image_codes[:0], text_codes=learned.text_codes[:0])
        return workers.map(lambda block: _encode(light, block, workers), some)

    def coded(self, codes: Mapping[str, Codes]) -> Batch:
        """The same documents with ready codes, which :meth:`codes` gave."""
        return replace(self, sides=codes, ready=True)

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Some of the documents."""
        chosen = rows.tolist()
        return replace(
            self,
            ids=[self.ids[row] for row in chosen],
            sides={side: values[rows] for side, values in self.sides.items()},
            payloads=self.payloads.take(rows),
            groups=None if self.groups is None else [self.groups[row] for row in chosen],
        )

    def segments(self, codes: Mapping[str, Codes], numbers: Numbers) -> Iterator[Segment]:
        """Cut the coded documents, which have these numbers, into segments."""
        for rows in row_blocks(len(self.ids), SEGMENT_ROWS):
            count = rows.stop - rows.start
            payloads = self.payloads[rows]
            present = payloads.present()
            yield Segment(
                self.coding,
                numbers.cut(rows),
                PackedIds.of(self.ids[rows]),
                {side: np.ascontiguousarray(values[rows]) for side, values in codes.items()},
                pack_bits(present),
                None if self.groups is None else Groups.of(self.groups[rows]),
                build_columns(payloads.objects, count) if present.any() else {},
            )

    def payload_rows(self, numbers: Numbers) -> Iterator[tuple[int, int, bytes]]:
        """Number, version and body of every payload."""
        rows = np.flatnonzero(self.payloads.present())
        for number, row in zip(numbers[rows].tolist(), rows.tolist(), strict=True):
            yield number, 0, self.payloads.bodies[row] or b""


def _refuse_unknown(documents: Documents) -> None:
    known = Documents.__annotations__
    unknown = sorted(set(documents) - set(known))
    if unknown:
        raise InvalidInput(f"documents: expected any of {', '.join(known)}, got {', '.join(unknown)}")


def _given(documents: Documents, names: Mapping[str, str]) -> dict[str, Any]:
    """What was given of each side, under these names."""
    values = {side: dict(documents).get(name) for side, name in names.items()}
    return {side: value for side, value in values.items() if value is not None}


def _check_side(model: CMCQ, side: str, features: Any) -> Any:
    width = model.n_features_in_ if side == "image" else model.n_text_features_
    return check_features(features, f"{side}s", width)


def _encode(learned: Learned, sides: Mapping[str, Any], workers: Executor) -> Sequence[Codes]:
    if len(sides) == 2:
        return learned.encode_pairs(sides["image"], sides["text"], workers)
    if "image" in sides:
        return (learned.encode_images(sides["image"], workers),)
    return (learned.encode_texts(sides["text"], workers),)


def _check_groups(groups: Any, n_rows: int) -> list[Id | None] | None:
    if groups is None:
        return None
    if isinstance(groups, str | bytes | Mapping) or not hasattr(groups, "__iter__"):
        raise InvalidInput(f"groups: expected one label per document, got {type(groups).__name__}")
    labels = [None if label is None else check_id(label) for label in groups]
    if len(labels) != n_rows:
        raise InvalidInput(f"groups: expected {n_rows}, one per document, got {len(labels)}")
    return labels
