"""Encode texts without any download: weighted words, and character n-grams for unknown words.

Letters that differ only in case, width or accents are the same letter here. Scripts that put no spaces
between words are cut into single characters and pairs of them, which is what search engines do without a
dictionary.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log, sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32
from crossbyte.encoders.base import EncoderState, encoder_fingerprint
from crossbyte.errors import InvalidInput

MAX_CHARACTERS = 100_000
"""The longest part of a text that is read: no caption is longer, and the time stays bounded."""

_LONGEST_WORD = 64  # characters; longer ones are no words, and have too many pieces
_PIECES = (3, 4, 5)
_DENSE_PIECES = (2, 3)  # of characters that are syllables or words themselves

# Han, kana, bopomofo, Thai, Lao, Tibetan, Myanmar, Khmer, and the ideographs beyond the basic plane.
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_RUN = re.compile(f"([{_UNSPACED}]+)")
_DENSE = re.compile(f"[{_UNSPACED}\uac00-\ud7a3]")  # and Korean syllables, which have spaces
_ACCENTS = re.compile("[\u0300-\u036f]+")  # marks on letters; other scripts' vowel signs stay


class _Letters(dict[int, str]):
    """A table for ``str.translate``: letters, their marks and digits stay, all else becomes a space."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character.isalnum() or unicodedata.category(character)[0] == "M"
        self[code] = character if kept else " "
        return self[code]


_LETTERS = _Letters(
    {ord("ø"): "o", ord("ł"): "l", ord("đ"): "d", ord("ı"): "i", ord("æ"): "ae", ord("œ"): "oe"}
)


def fold_text(text: str) -> str:
    """Fold all spellings of the same letters into one: NFKC, no case, no accents."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


def split_words(text: str, *, pairs: bool = True) -> list[str]:
    """Split a text into words, in its order; [] where there is neither letter nor digit.

    A run of characters of a script without spaces gives its characters and, with ``pairs``, their
    neighbouring pairs.
    """
    words: list[str] = []
    for word in fold_text(text[:MAX_CHARACTERS]).translate(_LETTERS).split():
        for part in [word] if word.isascii() else _UNSPACED_RUN.split(word):
            if part:
                words.extend(_cut_unspaced(part, pairs))
    return words


def split_pieces(word: str) -> list[str]:
    """Split a word and its borders into n-grams: of 3 to 5 letters, or 2 to 3 syllables or ideographs."""
    bordered = f" {word[:_LONGEST_WORD]} "
    sizes = _DENSE_PIECES if _DENSE.search(word) else _PIECES
    pieces = [bordered[at : at + size] for size in sizes for at in range(len(bordered) - size + 1)]
    return pieces or [bordered]


def _cut_unspaced(part: str, pairs: bool) -> Iterator[str]:
    if not _UNSPACED_RUN.fullmatch(part):
        yield part
        return
    yield from part
    if pairs:
        yield from map("".join, pairwise(part))


def hash_column(piece: str, width: int) -> int:
    """Hash a piece of text to one of ``width`` columns, the same on every machine and in every process."""
    return zlib.crc32(piece.encode("utf-8", "surrogatepass")) % width


KIND = "builtin-texts"
VERSION = 1
MAX_WORDS = 50_000

_Weights = dict[int, float]


class _Shape(NamedTuple):
    """Settings that decide features, besides what was learned."""

    own_columns: int = 1024
    """of the most frequent words, one each"""
    shared_columns: int = 256
    """of all other known words"""
    piece_columns: int = 768
    piece_weight: float = 0.8
    """length of the pieces' block beside that of the words, which is 1"""


class BuiltinTextEncoder:
    """Encode texts as sparse rows: a block of words and a block of pieces of words, each of fixed length.

    A word weighs (1 + log of its count) times its idf, log((1 + n) / (1 + df)) + 1, learned from the sample:
    words that are everywhere weigh little, in any language. Known words have columns; the rarer ones share
    theirs. A word that the sample did not have is represented by its pieces alone, which it shares with its
    relatives ("dogz" with "dog"); known words dominate otherwise.

    The rows are not centred: that would make them dense. CMCQ's preparation subtracts the mean on the fly
    (see ``crossbyte.data.preparation.CentredSparseRows``), and leaves zero rows zero.
    """

    def __init__(self, words: Sequence[str], word_idf: Float32, piece_idf: Float32, shape: _Shape) -> None:
        self._words, self._word_idf, self._piece_idf, self._shape = words, word_idf, piece_idf, shape
        self._number = {word: number for number, word in enumerate(words)}
        self._columns = [_choose_column(word, number, shape) for number, word in enumerate(words)]
        self._state: EncoderState | None = None

    @classmethod
    def learn(cls, texts: Sequence[str]) -> Self:
        """Learn the known words and all weights from a sample of texts; it may be empty."""
        shape = _Shape()
        words: Counter[str] = Counter()
        pieces = np.zeros(shape.piece_columns, dtype=np.int64)
        for text in texts:
            found = set(split_words(_check_text(text)))
            words.update(found)
            pieces[list(_piece_columns(found, shape.piece_columns))] += 1
        known = sorted(words, key=lambda word: (-words[word], word))[:MAX_WORDS]
        counts = np.array([words[word] for word in known], dtype=np.int64)
        return cls(known, _compute_idf(counts, len(texts)), _compute_idf(pieces, len(texts)), shape)

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Make the same encoder again."""
        if state.kind != KIND or state.settings.get("version") != VERSION:
            raise InvalidInput(
                f"expected a text encoder of kind {KIND!r}, version {VERSION}, got {state.kind!r}, version "
                f"{state.settings.get('version')!r}; a newer crossbyte may be needed"
            )
        settings, arrays = state.settings, state.arrays
        shape = _Shape(**{name: settings[name] for name in _Shape._fields})
        text = np.asarray(arrays["words"], dtype=np.uint8).tobytes().decode("utf-8")
        words = text.split("\n") if text else []
        idf = [np.asarray(arrays[name], dtype=np.float32) for name in ("word_idf", "piece_idf")]
        return cls(words, idf[0], idf[1], shape)

    @property
    def state(self) -> EncoderState:
        """State that goes into the model's file."""
        if self._state is None:
            settings = {"version": VERSION, **self._shape._asdict()}
            words = np.frombuffer("\n".join(self._words).encode("utf-8"), dtype=np.uint8)
            arrays: dict[str, NDArray[Any]] = {
                "words": words,
                "word_idf": self._word_idf,
                "piece_idf": self._piece_idf,
            }
            fingerprint = encoder_fingerprint(KIND, settings, arrays)
            self._state = EncoderState(KIND, "built-in words", self._dimension, fingerprint, settings, arrays)
        return self._state

    def encode(self, items: Sequence[str]) -> sparse.csr_matrix:
        """Encode texts.

        Parameters
        ----------
        items : sequence of str

        Returns
        -------
        (n, dimension) csr_matrix of float32
            A text without letters and digits is a row of zeros.
        """
        rows = [sorted(self._encode_one(_check_text(text)).items()) for text in items]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        columns = np.fromiter((c for row in rows for c, _ in row), dtype=np.int32, count=indptr[-1])
        values = np.fromiter((v for row in rows for _, v in row), np.float32, count=indptr[-1])
        return sparse.csr_matrix((values, columns, indptr), shape=(len(rows), self._dimension))

    def words_of(self, text: str) -> list[str]:
        """List the words of a text as the encoder sees them, known or not, each once, in their order."""
        return list(dict.fromkeys(split_words(_check_text(text))))

    def vocabulary(self) -> dict[str, int] | None:
        """Map the known words to their columns, the most frequent first; rarer words may share a column."""
        return dict(zip(self._words, self._columns, strict=True))

    @property
    def _dimension(self) -> int:
        shape = self._shape
        return shape.own_columns + shape.shared_columns + shape.piece_columns

    def _encode_one(self, text: str) -> _Weights:
        counts = Counter(split_words(text))
        row = _scale_to_length(self._weigh_words(counts), 1.0)
        row.update(_scale_to_length(self._weigh_pieces(counts), self._shape.piece_weight))
        return row

    def _weigh_words(self, counts: Mapping[str, int]) -> _Weights:
        weights: _Weights = {}
        for word, count in counts.items():
            if (number := self._number.get(word)) is not None:
                weight = (1.0 + log(count)) * float(self._word_idf[number])
                weights[self._columns[number]] = weights.get(self._columns[number], 0.0) + weight
        return weights

    def _weigh_pieces(self, counts: Mapping[str, int]) -> _Weights:
        width, first = self._shape.piece_columns, self._shape.own_columns + self._shape.shared_columns
        totals: Counter[int] = Counter()
        for word, count in counts.items():
            for column in _cached_piece_columns(word, width):
                totals[column] += count
        return {
            first + column: (1.0 + log(count)) * float(self._piece_idf[column])
            for column, count in totals.items()
        }


def _check_text(text: Any) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"texts: expected str, got {type(text).__name__}; give each text as a string")
    return text


def _choose_column(word: str, number: int, shape: _Shape) -> int:
    if number < shape.own_columns:
        return number
    return shape.own_columns + hash_column(word, shape.shared_columns)


@lru_cache(maxsize=65536)
def _cached_piece_columns(word: str, width: int) -> tuple[int, ...]:
    return tuple(hash_column(piece, width) for piece in split_pieces(word))


def _piece_columns(words: Iterable[str], width: int) -> set[int]:
    return {column for word in words for column in _cached_piece_columns(word, width)}


def _compute_idf(counts: NDArray[np.int64], n_texts: int) -> Float32:
    """Compute the smoothed idf: a word of every text weighs 1."""
    return (np.log((1 + n_texts) / (1 + counts)) + 1).astype(np.float32)


def _scale_to_length(weights: _Weights, length: float) -> _Weights:
    norm = sqrt(sum(weight * weight for weight in weights.values()))
    return {column: length * weight / norm for column, weight in weights.items()} if norm else {}
