"""Identify documents by the user's ids, packed and hashed, and by the index's own numbers.

Ids are strings or integers; ``1`` and ``"1"`` are different. Millions of Python objects would take ten times
the memory of the codes, so ids become objects only when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.compute.kernels import take_texts
from crossbyte.errors import DuplicateId, InvalidInput

Id = str | int

_MAX_BYTES = 1024
_INT64 = range(-(2**63), 2**63)
_ROWS_AT_ONCE = 1 << 18  # bounds the temporary arrays of hashing


def check_id(value: Any) -> Id:
    """Return one id as a plain string or integer."""
    if isinstance(value, str):
        return _check_text(str(value))
    if not isinstance(value, bool) and isinstance(value, Integral):
        if int(value) not in _INT64:
            raise InvalidInput(f"ids: expected integers of 64 bits, got {value}; use a string")
        return int(value)
    raise InvalidInput(f"ids: expected strings or integers, got {type(value).__name__} {value!r}")


def _check_text(value: str) -> str:
    if len(value) > _MAX_BYTES // 4 or not value.isascii():
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"ids: expected valid Unicode, got {value!r}") from error
        if size > _MAX_BYTES:
            raise InvalidInput(f"ids: expected at most {_MAX_BYTES} bytes, got {size} ({value[:40]!r}…)")
    return value


def check_ids(values: Any) -> list[Id]:
    """Return ids as plain objects; no id may come twice."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidInput(f"ids: expected a sequence of strings or integers, got {type(values).__name__}")
    given = list(values)
    ids = given if _as_plain_id(given) else [check_id(value) for value in given]
    if len(set(ids)) < len(ids):  # True == 1 cannot disturb this: booleans are refused above
        seen: set[Id] = set()
        twice = next(value for value in ids if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        raise DuplicateId(f"ids: expected every id once, got {twice!r} twice; give each document its own")
    return ids


def resolve_id(known: Container[object], name: str) -> Id:
    """Find what an id in writing means: the text itself, or else the number it spells, if that is known."""
    digits = name.removeprefix("-")
    if name in known or not (digits.isdecimal() and digits.isascii() and len(digits) < 20):
        return name
    return int(name) if int(name) in known else name


def _as_plain_id(values: list[Any]) -> bool:
    """Say whether all are short ASCII strings, or all integers of 64 bits, without checking each."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return max(map(len, values)) <= _MAX_BYTES and all(map(str.isascii, values))
    return kinds == {int} and min(values) in _INT64 and max(values) in _INT64


@dataclass(frozen=True, eq=False)
class PackedIds:
    """``n`` ids in order.

    Attributes
    ----------
    kind : {"integer", "text", "tagged"}
        All integers; all strings; or both, as text that begins with ``i`` or ``s``.
    values : (n,) int64
        The ids of kind "integer"; otherwise where each id ends in ``text``.
    text : bytes
        UTF-8 of all ids, one after the other.
    """

    kind: str
    values: NDArray[np.int64]
    text: bytes = b""

    @classmethod
    def of(cls, ids: Sequence[Id]) -> PackedIds:
        """Pack ids that :func:`check_ids` has seen."""
        kinds = set(map(type, ids))
        if kinds <= {int}:
            return cls("integer", np.array(ids, dtype=np.int64))
        if kinds == {str}:
            return cls._of_text("text", [str(value) for value in ids])
        return cls._of_text(
            "tagged", [("i" if isinstance(value, int) else "s") + str(value) for value in ids]
        )

    @classmethod
    def _of_text(cls, kind: str, texts: list[str]) -> PackedIds:
        encoded = [text.encode() for text in texts]
        return cls(kind, np.cumsum([len(item) for item in encoded], dtype=np.int64), b"".join(encoded))

    @classmethod
    def join(cls, parts: Sequence[PackedIds]) -> PackedIds:
        """Concatenate the ids of parts."""
        filled = [part for part in parts if len(part)]
        kinds = {part.kind for part in filled}
        if len(kinds) > 1:
            return cls.of([value for part in filled for value in part])
        if kinds == {"integer"} or not kinds:
            return cls("integer", np.concatenate([np.empty(0, np.int64), *(part.values for part in filled)]))
        sizes = np.cumsum([0] + [len(part.text) for part in filled])
        ends = [part.values + size for part, size in zip(filled, sizes[:-1].tolist(), strict=True)]
        return cls(kinds.pop(), np.concatenate(ends), b"".join(part.text for part in filled))

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Id]:
        return iter(self.take(np.arange(len(self))))

    def __getitem__(self, row: int) -> Id:
        return self.take(np.array([row]))[0]

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.values.nbytes + len(self.text)

    def take(self, rows: NDArray[np.integer[Any]]) -> list[Id]:
        """Give the ids of some rows."""
        if self.kind == "integer":
            return list(self.values[rows].tolist())
        texts = take_texts(self.text, self.values, np.asarray(rows, dtype=np.int64))
        return [*texts] if self.kind == "text" else [_strip_tags(text) for text in texts]

    def select(self, rows: NDArray[np.integer[Any]]) -> PackedIds:
        """Pack the ids of some rows again."""
        if self.kind == "integer":
            return PackedIds("integer", self.values[rows])
        starts, ends = self._starts(rows), self.values[rows]
        lengths = ends - starts
        new_ends = np.cumsum(lengths)
        places = np.repeat(starts - new_ends + lengths, lengths) + np.arange(int(lengths.sum()))
        return PackedIds(self.kind, new_ends, np.frombuffer(self.text, np.uint8)[places].tobytes())

    def _starts(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        return self.values[rows - 1] * (rows > 0)  # of the first id, the end of the last one, times zero

    def hashes(self) -> NDArray[np.uint64]:
        """(n,) uint64: equal for equal ids; others may collide, so compare."""
        if self.kind == "integer":
            return _mix_hash(self.values.view(np.uint64))
        if self.kind == "tagged":
            return np.array([PackedIds.of([value]).hashes()[0] for value in self], dtype=np.uint64)
        parts = [self._text_hashes(start) for start in range(0, len(self), _ROWS_AT_ONCE)]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def _text_hashes(self, first: int) -> NDArray[np.uint64]:
        ends = self.values[first : first + _ROWS_AT_ONCE]
        start = int(self.values[first - 1]) if first else 0
        octets = np.frombuffer(self.text, np.uint8, int(ends[-1]) - start, start)
        lengths = np.diff(ends, prepend=start)
        starts = ends - start - lengths
        places = np.arange(len(octets)) - np.repeat(starts, lengths)
        # One zero more, because an empty id at the end begins behind the last byte.
        terms = np.append((octets + np.uint64(1)) * _POWERS[places], np.uint64(0))
        sums = np.where(lengths > 0, np.add.reduceat(terms, starts), np.uint64(0))
        return _mix_hash(np.bitwise_xor(sums, lengths.view(np.uint64)))

    def to_parts(self) -> dict[str, bytes]:
        """Give what goes into the file, by name."""
        if self.kind == "integer":
            return {"ids": self.values.astype("<i8").tobytes()}
        lengths = np.diff(self.values, prepend=0).astype("<u2")
        return {"ids": lengths.tobytes(), "ids.text": self.text}

    @classmethod
    def from_parts(cls, kind: str, parts: Mapping[str, bytes], n_rows: int) -> PackedIds:
        """Take them back; ValueError where they do not fit together."""
        if kind == "integer":
            values = np.frombuffer(parts["ids"], "<i8").astype(np.int64, copy=False)
        elif kind in ("text", "tagged"):
            values = np.cumsum(np.frombuffer(parts["ids"], "<u2"), dtype=np.int64)
        else:
            raise ValueError(f"ids of an unknown kind {kind!r}")
        text = parts.get("ids.text", b"")
        if len(values) != n_rows or (kind != "integer" and len(text) != (values[-1] if n_rows else 0)):
            raise ValueError("ids of another number or length")
        ids = cls(kind, values, text)
        ids._check_text()
        return ids

    def _check_text(self) -> None:
        """Refuse text that is not UTF-8 id by id, and ids without a tag where all have one; ValueError."""
        if self.kind == "integer" or not len(self):
            return
        octets = np.frombuffer(self.text, np.uint8)
        starts = self._starts(np.arange(len(self)))
        filled = starts < self.values
        if not self.text.isascii():
            self.text.decode()
            if ((octets[starts[filled]] & 0xC0) == 0x80).any():
                raise ValueError("ids that begin within a character")
        if self.kind == "tagged":
            if not filled.all() or not np.isin(octets[starts], (ord("i"), ord("s"))).all():
                raise ValueError("ids without their type")
            if not all(value in _INT64 for value in self if isinstance(value, int)):
                raise ValueError("integers of more than 64 bits")


def _strip_tags(text: str) -> Id:
    return int(text[1:]) if text[0] == "i" else text[1:]


def _mix_hash(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_POWERS = np.cumprod(np.full(_MAX_BYTES, 0x9E3779B97F4A7C15, dtype=np.uint64), dtype=np.uint64)


_STORED = {"numbers.32": "<u4", "numbers.64": "<u8"}


@dataclass(frozen=True, eq=False)
class DocIds:
    """Ascending numbers.

    Attributes
    ----------
    first : int
        The smallest.
    count : int
    steps : (count,) uint32 or uint64, or None
        What to add to ``first``; None: 0, 1, 2, …
    """

    first: int
    count: int
    steps: NDArray[Any] | None = None

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> DocIds:
        """Keep ascending numbers."""
        if not len(values):
            return cls(0, 0)
        first, span = int(values[0]), int(values[-1] - values[0])
        if span == len(values) - 1:
            return cls(first, len(values))
        return cls(first, len(values), (values - first).astype(np.uint32 if span < 2**32 else np.uint64))

    @classmethod
    def join(cls, parts: Sequence[DocIds]) -> DocIds:
        """Concatenate numbers; those of each part are larger than those of the parts before."""
        filled = [part for part in parts if part.count]
        gapless = all(part.steps is None for part in filled) and all(
            left.first + left.count == right.first for left, right in zip(filled, filled[1:], strict=False)
        )
        if gapless:  # the usual case, and no array is ever made
            return cls(filled[0].first if filled else 0, sum(part.count for part in filled))
        return cls.of(np.concatenate([part[np.arange(part.count)] for part in filled]))

    def __getitem__(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        steps = rows if self.steps is None else self.steps[rows]
        return steps.astype(np.int64) + self.first

    @property
    def end(self) -> int:
        """One more than the largest."""
        return self.first + (self.count if self.steps is None else int(self.steps[-1]) + 1)

    def cut(self, rows: slice) -> DocIds:
        """Give the numbers of consecutive rows."""
        start, stop, _ = rows.indices(self.count)
        if self.steps is None:
            return DocIds(self.first + start, stop - start)
        return DocIds.of(self[np.arange(start, stop)])

    def find(self, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Give the rows of some numbers, and which of them are there at all."""
        wanted = values - self.first
        if self.steps is None:
            return wanted, (wanted >= 0) & (wanted < self.count)
        inside = (wanted >= 0) & (wanted <= int(self.steps[-1]))
        rows = np.searchsorted(self.steps, np.where(inside, wanted, 0).astype(self.steps.dtype))
        return rows.astype(np.int64), inside & (self.steps[rows] == wanted)

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return 0 if self.steps is None else self.steps.nbytes

    def to_parts(self) -> dict[str, bytes]:
        """Give what goes into the file beside ``first`` and ``count``, by name."""
        if self.steps is None:
            return {}
        name = f"numbers.{8 * self.steps.itemsize}"
        return {name: self.steps.astype(_STORED[name]).tobytes()}

    @classmethod
    def from_parts(cls, first: int, count: int, parts: Mapping[str, bytes]) -> DocIds:
        """Take them back; ValueError where they do not fit together."""
        stored = [(dtype, parts[name]) for name, dtype in _STORED.items() if name in parts]
        if not stored:
            return cls(first, count)
        steps = np.frombuffer(stored[0][1], stored[0][0]).astype(np.int64)
        in_order = len(steps) == count > 0 and steps[0] == 0 and not (np.diff(steps) <= 0).any()
        if not in_order or steps[-1] >= 2**62:
            raise ValueError("document numbers that do not ascend")
        return cls.of(steps + first)


_Run = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""hashes in ascending order, and the numbers of their documents"""


@dataclass(frozen=True)
class IdLookup:
    """Which documents may have an id: all with its hash, deleted ones included.

    Attributes
    ----------
    runs : tuple of (hashes, numbers)
        Each more than twice as long as the next, so there are few, and adding stays cheap.
    """

    runs: tuple[_Run, ...] = ()

    def with_documents(self, ids: PackedIds, numbers: NDArray[np.int64]) -> IdLookup:
        """Give a lookup with more documents."""
        hashes = ids.hashes()
        order = np.argsort(hashes, kind="stable")
        runs = [*self.runs, (hashes[order], numbers[order])]
        while len(runs) > 1 and len(runs[-2][0]) <= 2 * len(runs[-1][0]):
            runs[-2:] = [_merge_runs(runs[-2], runs[-1])]
        return IdLookup(tuple(runs))

    def candidates(self, ids: Sequence[Id]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places in ``ids``, and beside each the number of a document that may have that id."""
        hashes = PackedIds.of(ids).hashes()
        order = np.argsort(hashes)  # looked up in order, neighbours share their cache lines
        found = [_match_run(run, hashes[order]) for run in self.runs]
        nothing = np.empty(0, dtype=np.int64)
        places, numbers = zip(*found, strict=True) if found else ((), ())
        return order[np.concatenate([nothing, *places])], np.concatenate([nothing, *numbers])

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return sum(hashes.nbytes + numbers.nbytes for hashes, numbers in self.runs)


def _merge_runs(left: _Run, right: _Run) -> _Run:
    hashes = np.concatenate([left[0], right[0]])
    order = np.argsort(hashes, kind="stable")  # fast on two sorted runs
    return hashes[order], np.concatenate([left[1], right[1]])[order]


def _match_run(run: _Run, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first = np.searchsorted(run[0], hashes, side="left")
    counts = np.searchsorted(run[0], hashes, side="right") - first
    places = np.repeat(np.arange(len(hashes)), counts)
    within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, run[1][np.repeat(first, counts) + within]
