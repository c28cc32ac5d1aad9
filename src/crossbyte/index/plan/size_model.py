"""Predict the bytes on disk and in memory, and the time, of an index of any size.

Codes, ids and marks grow with the documents, payloads with their mean length, columns as they grew over the
last half of the payloads given, the model with its codewords, dimensions and training pairs. How SQLite lays
blobs out in pages is known; what it adds to a payload row is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte._format import readable_bytes, readable_seconds
from crossbyte.index.docids import PackedIds
from crossbyte.index.filters.columns import build_columns
from crossbyte.index.index import Index
from crossbyte.index.mutations import Payloads
from crossbyte.index.storage.records import MAX_PIECE_BYTES
from crossbyte.model.estimator import CMCQ
from crossbyte.model.params import MAX_BITS, check_parameters, default_components, default_dims
from crossbyte.model.persistence import model_contents

ALWAYS_ALL = 100_000
"""pairs that are always fitted on, all of them: that takes no longer than a pilot and a minute"""

_UNTRIED = {
    "all": f"up to {ALWAYS_ALL:,} pairs, all are taken",
    "unknown": "too few pairs or groups were given to try whether fewer are enough",
}


@dataclass(frozen=True)
class Width:
    """The cost of one code length.

    Attributes
    ----------
    n_bits : int
        Per item and side.
    disk, memory : dict of str to int
        Bytes by part, and their ``total``.
    recall : float or None
        Recall@10 to expect; None where it was not measured.
    """

    n_bits: int
    disk: dict[str, int]
    memory: dict[str, int]
    recall: float | None


@dataclass(frozen=True)
class SampleSize:
    """The number of pairs to fit on, and the reason.

    Attributes
    ----------
    pairs : int
    why : {"all", "gain", "least", "time", "unknown"}
        All there are; more would gain too little; fewer are never taken; more would take too long; or there
        were too few pairs, or groups, to try it, and all are taken.
    gain : float or None
        Recall@10 that twice as many pairs are expected to find more; None where nothing was tried.
    tried : list of (int, float)
        Pairs of each pilot fit, and its recall@10 among held-out pairs.
    """

    pairs: int
    why: str
    gain: float | None
    tried: list[tuple[int, float]]

    @classmethod
    def all_of(cls, n_pairs: int) -> SampleSize:
        """Say that all pairs are to be fitted on, and that nothing was tried."""
        return cls(n_pairs, "all" if n_pairs <= ALWAYS_ALL else "unknown", None, [])

    def __str__(self) -> str:
        if self.gain is None:
            return _UNTRIED[self.why]
        found = " and ".join(f"{recall:.3f} from {n_pairs:,}" for n_pairs, recall in self.tried)
        expected = f"twice as many are expected to add {self.gain:.3f} to recall@10 (pilots found {found})"
        limits = {
            "least": f"never fewer than {ALWAYS_ALL:,} are taken",
            "time": "more would take over an hour",
        }
        return "; ".join(filter(None, [limits.get(self.why), expected]))


@dataclass(frozen=True)
class Plan:
    """A planned index, and its cost.

    Attributes
    ----------
    items, train : int
        Documents to index, and pairs to fit on.
    sides : {"both", "image", "text"}
    n_codes : int
        Of every document: 1 where it has one side, or one code of both.
    chosen : Width
        Also among ``widths``.
    fit_seconds, add_seconds : float
        To fit on all these pairs, and to add all documents in one call.
    widths : list of Width
        Every code length that was looked at.
    enough : SampleSize
        How many pairs are enough to fit on, and why; ``fit_pairs`` is their number.
    sample_seconds : float
        To fit on that many pairs.
    """

    items: int
    train: int
    sides: str
    n_codes: int
    chosen: Width
    fit_seconds: float
    add_seconds: float
    widths: list[Width]
    enough: SampleSize
    sample_seconds: float

    @property
    def fit_pairs(self) -> int:
        """Pairs that are enough to fit on: a sample of them, or all."""
        return self.enough.pairs

    @property
    def n_bits(self) -> int:
        """Bits per item and side, or of the one code of both."""
        return self.chosen.n_bits

    @property
    def disk(self) -> dict[str, int]:
        """Bytes of the file by part, and their ``total``."""
        return self.chosen.disk

    @property
    def memory(self) -> dict[str, int]:
        """Bytes in memory of an opened index by part, and their ``total``."""
        return self.chosen.memory

    @property
    def recall(self) -> float | None:
        """Recall@10 to expect, where it was measured."""
        return self.chosen.recall

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists."""
        shown = asdict(self) | asdict(self.chosen) | {"fit_pairs": self.fit_pairs}
        del shown["chosen"]
        return shown

    def __str__(self) -> str:
        lines = [
            f"{self.items:,} documents ({'images and texts' if self.sides == 'both' else self.sides + 's'}) "
            f"of {self.n_bits} bits a {'document' if self._one_code else 'side'}, "
            f"from a model of {self.train:,} pairs:",
            f"  on disk    {readable_bytes(self.disk['total'])}  ({_parts(self.disk)})",
            f"  in memory  {readable_bytes(self.memory['total'])}  ({_parts(self.memory)})",
            f"  to fit     about {readable_seconds(self.fit_seconds)}",
            *self._sample(),
            f"  to add     about {readable_seconds(self.add_seconds)}",
        ]
        if self.recall is not None:
            lines.append(f"  recall@10  about {self.recall:.2f}")
        return "\n".join([*lines, "", *self._table()])

    @property
    def _one_code(self) -> bool:
        """Whether documents of both sides have one code."""
        return self.sides == "both" and self.n_codes == 1

    def _sample(self) -> list[str]:
        """Say that fewer pairs are enough, or why that is not known; nothing where all are few."""
        if self.fit_pairs == self.train:
            return (
                [] if self.enough.why == "all" and not self.enough.tried else [f"    on all:  {self.enough}"]
            )
        took = readable_seconds(self.sample_seconds)
        return [f"    enough:  {self.fit_pairs:,} of these pairs, about {took}: {self.enough}"]

    def _table(self) -> list[str]:
        lines = [f"  {'bits':>6}  {'on disk':>10}  {'in memory':>10}  {'recall@10':>9}"]
        for width in self.widths:
            recall = "–" if width.recall is None else f"{width.recall:.2f}"
            sizes = f"{readable_bytes(width.disk['total']):>10}  {readable_bytes(width.memory['total']):>10}"
            mark = "*" if width.n_bits == self.n_bits else " "
            lines.append(f"{mark} {width.n_bits:>6}  {sizes}  {recall:>9}")
        return lines


def _parts(sizes: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {readable_bytes(size)}" for name, size in sizes.items() if size and name != "total"
    )


_PAGE, _LINK = 4096, 4
_LEAST_LOCAL, _MOST_LOCAL = 489, 4061  # bytes of a row in its own page; the rest is in a chain of others
_ROW_HEAD = 8  # of a piece: length, place, and the types of its columns
_PILOT_DOCUMENTS = (1024, 8192)
_MOST_OBJECTS = 65_536
_PER_DIMENSION = {"space.image_matrix", "space.text_matrix", "space.text_basis", "space.image_map"}
_PER_DIMENSION |= {"space.image_ridge", "space.text_ridge"}
_PER_WORD = {"image.words", "text.words", "document.words"}
_PER_PAIR = {"image_codes", "text_codes"}
_REMEMBERED = {"memory.images", "memory.texts"}


class Contents(NamedTuple):
    """The documents to be indexed.

    Attributes
    ----------
    items : int
        Documents.
    train : int
        Pairs that the model is fitted on; it keeps their codes.
    n_codes : int
        Of every document: 2 where it has an image and a text with a code each, else 1.
    n_bits : int
        Per item and side.
    """

    items: int
    train: int
    n_codes: int
    n_bits: int


class Sizes(NamedTuple):
    """Bytes by part, each with a ``total``."""

    disk: dict[str, int]
    memory: dict[str, int]


@dataclass(frozen=True)
class ModelSize:
    """Bytes of a model file as a function of bits and training pairs.

    Attributes
    ----------
    fixed : float
        Whatever does not depend on them.
    per_dimension : float
        Of the common space.
    n_dims : int or None
        Its dimensions, where they are set or chosen; None where they follow the bits.
    max_dims : int
        More the data cannot have.
    codes_per_pair : int
        Codes that it keeps of every fitted pair: 1 where a document has one code, else 2.
    most_remembered : int
        Fitted pairs that it remembers the coordinates of, at most.
    image_width : int
        Of raw images, where their principal components follow the bits; 0 where they do not.
    """

    fixed: float
    per_dimension: float
    n_dims: int | None
    max_dims: int
    codes_per_pair: int
    most_remembered: int = 0
    image_width: int = 0

    def bytes_at(self, n_bits: int, train: int) -> int:
        """Give the bytes of a model of ``n_bits`` bits, fitted on ``train`` pairs."""
        one_code = self.codes_per_pair == 1
        wanted = self.n_dims or default_dims(n_bits // 8, one_code)
        n_dims = min(wanted, self.max_dims)
        components = default_components(n_bits // 8, one_code) if self.image_width else 0
        words = 2 * (n_bits // 8) * 256 * n_dims * 4  # of image and text, or of one half and the document
        codes = self.codes_per_pair * (n_bits // 8) * train
        remembered = 2 * 4 * n_dims * min(train, self.most_remembered)
        images = component_bytes(components, self.image_width, n_dims)
        return round(self.fixed + self.per_dimension * n_dims + words + codes + remembered + images)


def component_bytes(components: int, width: int, n_dims: int) -> int:
    """Give the bytes of principal components of images of some width, and of their map to the space."""
    kept = components * width if components < width else 0
    return 8 * (kept + min(components, width) * n_dims)


class PerDocument(NamedTuple):
    """Bytes per document, but for its codes.

    Attributes
    ----------
    ids : list of float
        Of each part that ids have on disk.
    ids_in_memory : float
    columns : list of (float, float)
        Of each field: per document, and fixed.
    payloads : float or None
        Mean body; None for documents without.
    rows : float
        Payload rows: 1 where every document has one.
    row : float
        What SQLite adds to the body of a payload, but for numbers.
    cross : int
        Bytes in memory that the stored cross term takes of each code.
    fixed : float
        The empty file without its model.
    """

    ids: list[float]
    ids_in_memory: float
    columns: list[tuple[float, float]]
    payloads: float | None
    rows: float
    row: float
    cross: int
    fixed: float


def index_sizes(contents: Contents, model: ModelSize, each: PerDocument) -> Sizes:
    """Compute the bytes of an index on disk and in memory, the model's included."""
    n, n_codes, n_bytes = contents.items, contents.n_codes, contents.n_bits // 8
    model_bytes, blocks = model.bytes_at(contents.n_bits, contents.train), -(-n // 64)
    blobs = {
        "model": [model_bytes],
        "codes": n_codes * [n * n_bytes],
        "ids": [round(n * part) for part in each.ids],
        "filters": [round(n * slope + fixed) for slope, fixed in each.columns],
    }
    if each.payloads is not None:
        blobs["filters"].append(8 * blocks)
    disk = {name: sum(sizes) for name, sizes in blobs.items()}
    pages = _count_pages([size for sizes in blobs.values() for size in sizes])
    around_payloads = n * each.row + each.rows * _number_bytes(n)
    disk["overhead"] = round(each.fixed + _PAGE * pages - sum(disk.values()) + around_payloads)
    disk["payloads"] = round(n * (each.payloads or 0))
    memory = {
        "model": model_bytes,
        "codes": 64 * blocks * n_codes * (n_bytes + each.cross),
        "ids": round(n * each.ids_in_memory),
        "marks": 2 * 8 * blocks,
    }
    return Sizes(_add_total(disk), _add_total(memory))


def _count_pages(blobs: Sequence[int]) -> int:
    """Count the pages of SQLite's table of pieces: leaves with the first bytes of rows, and overflow."""
    chained, leaves, room = 0, 1, 0
    for size in (min(left, MAX_PIECE_BYTES) for blob in blobs for left in range(blob, 0, -MAX_PIECE_BYTES)):
        row = size + _ROW_HEAD
        local = row
        if row > _MOST_LOCAL:
            local = _LEAST_LOCAL + (row - _LEAST_LOCAL) % (_PAGE - _LINK)
            local = local if local <= _MOST_LOCAL else _LEAST_LOCAL
            chained += -(-(row - local) // (_PAGE - _LINK))
        leaves, room = (leaves, room - local) if local <= room else (leaves + 1, _PAGE - _ROW_HEAD - local)
    leaves -= 1  # the one that was never begun
    return chained + max(1, leaves) + (leaves > 1)


def _number_bytes(n: int) -> int:
    """Count the bytes of the numbers of n payload rows: each has four integers of variable size."""
    integers, lengths = (2**7, 2**15, 2**23, 2**31), (2**7, 2**14, 2**21, 2**28)
    longer = (3 * sum(max(0, n - limit) for limit in integers), sum(max(0, n - limit) for limit in lengths))
    return 4 * n + sum(longer)


def _add_total(parts: dict[str, int]) -> dict[str, int]:
    return parts | {"total": sum(parts.values())}


def measure_model(model: CMCQ, rounds: float, like: CMCQ) -> ModelSize:
    """Measure the parts of a fitted pilot model.

    Parameters
    ----------
    rounds : float
        How many times as many records of the objective the real model will keep.
    like : CMCQ
        If it is fitted, the real model will have a document as long as its: with a quality report, perhaps.
    """
    learned = model.fitted_
    arrays, _ = model_contents(learned)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    n_dims = learned.settings.n_components
    scaled = sum(sizes[name] for name in sizes if name in _PER_DIMENSION)
    others = sum(sizes[name] for name in sizes if name in _PER_PAIR | _PER_WORD | _REMEMBERED)
    document = max(_document_bytes(one) for one in (model, like) if one.__sklearn_is_fitted__())
    fixed = document + sum(sizes.values()) - scaled - others + (rounds - 1) * sizes["history"]
    n_codes = len(_PER_PAIR & sizes.keys())
    one_code = learned.settings.one_code
    told = like if like.__sklearn_is_fitted__() else model
    remembered = check_parameters(model).memory if told.memory_ else 0
    if model.n_components is not None or (model.mapping == "auto" and one_code):
        return ModelSize(fixed, scaled / n_dims, n_dims, n_dims, n_codes, remembered)
    capped = n_dims < default_dims(learned.settings.n_codebooks, one_code)
    widest = min(learned.image_preparation.n_dims, learned.text_preparation.n_dims)
    unbounded = learned.settings.mapping == "sparse"  # its space may be wider than the features
    most = n_dims if capped else MAX_BITS if unbounded else widest
    width, components = learned.image_preparation.n_features, learned.image_preparation.n_dims
    usual = default_components(learned.settings.n_codebooks, one_code)
    if not one_code or model.image_components is not None or components != min(width, usual):
        return ModelSize(fixed, scaled / n_dims, None, most, n_codes, remembered)
    if widest == components < width and not capped:
        most = min(width, learned.text_preparation.n_dims)  # longer codes have more components
    fixed -= component_bytes(components, width, 0)
    scaled -= component_bytes(components, width, n_dims) - component_bytes(components, width, 0)
    return ModelSize(fixed, scaled / n_dims, None, most, n_codes, remembered, width)


def _document_bytes(model: CMCQ) -> int:
    """Count the bytes of a model file that are not arrays."""
    arrays, _ = model_contents(model.fitted_)
    return len(model.to_bytes()) - sum(array.nbytes for array in arrays.values())


def measure_documents(
    model: CMCQ, ids: Sequence[Any] | None, payloads: Payloads | None, folder: Path
) -> PerDocument:
    """Measure how an index of ready codes grows, with payloads of one field and of the given lengths."""
    bodies = None if payloads is None else payloads.bodies
    with Index.create(folder / "sizes.cb", model) as index:
        empty = index.stats()["disk"]["bytes"]
        before, after = (_add_documents(index, count, bodies) for count in _PILOT_DOCUMENTS)
        memory = index.stats()["memory"]["bytes"]["codes"]
    first, count = _PILOT_DOCUMENTS
    rows = 0.0 if bodies is None else sum(body is not None for body in bodies) / len(bodies)
    numbers = rows * (_number_bytes(first + count) - _number_bytes(first))
    grown = _count_other_bytes(after) - _count_other_bytes(before) - (after.payloads - before.payloads)
    packed = PackedIds.of([0] if not ids else list(ids))
    return PerDocument(
        ids=[len(part) / len(packed) for part in packed.to_parts().values()],
        ids_in_memory=packed.n_bytes / len(packed),
        columns=[] if payloads is None else _fit_column_growth(payloads.objects[:_MOST_OBJECTS]),
        payloads=None if bodies is None else sum(len(body or b"") for body in bodies) / len(bodies),
        rows=rows,
        row=(grown - numbers) / count,
        cross=memory // (first + count) - len(model.image_codebooks_),
        # Table and index of the payloads end with half a page each, on average.
        fixed=empty["file"] - _PAGE * _count_pages([empty["model:model"]]) + _PAGE * (bodies is not None),
    )


class _GrownIndex(NamedTuple):
    """An index after some adds: bytes of its file, of its payloads, and of each piece."""

    file: int
    payloads: int
    pieces: list[int]


def _add_documents(index: Index, count: int, bodies: Sequence[bytes | None] | None) -> _GrownIndex:
    """Add ``count`` documents, and measure the file."""
    codes = np.zeros((count, len(index.model.image_codebooks_)), dtype=np.uint8)
    objects = None if bodies is None else [_dummy_payload(body) for body in islice(cycle(bodies), count)]
    index.add(range(len(index), len(index) + count), image_codes=codes, payloads=objects)
    store = index.snapshot().store
    with store.reading():
        pieces = [part.n_bytes for record in store.records() for part in record.parts.values()]
    sizes = store.sizes()
    return _GrownIndex(sizes["file"], sizes["payloads"], pieces)


def _dummy_payload(body: bytes | None) -> dict[str, str] | None:
    """Make a payload of one field and about as many bytes: columns are measured on their own."""
    return None if body is None else {"a": "x" * max(0, len(body) - len('{"a":""}'))}


def _count_other_bytes(grown: _GrownIndex) -> int:
    return grown.file - _PAGE * _count_pages(grown.pieces)


def _fit_column_growth(objects: Sequence[Any]) -> list[tuple[float, float]]:
    """Fit the bytes of each column per document, and its fixed part; repeats would hide vocabulary growth."""
    half = len(objects) // 2
    some, whole = (
        {field: len(column.to_bytes()) for field, column in build_columns(part, len(part)).items()}
        for part in (objects[:half], objects)
    )
    slopes = {field: (size - some.get(field, 0)) / (len(objects) - half) for field, size in whole.items()}
    return [(slope, max(0.0, whole[field] - slope * len(objects))) for field, slope in slopes.items()]
