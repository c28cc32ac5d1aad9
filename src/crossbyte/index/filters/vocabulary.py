"""Sorted distinct texts, packed: the vocabulary that the codes of a text column point into.

UTF-8 keeps the order of code points, so the packed bytes are compared as they are, and a comparison of
texts becomes a comparison of codes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput

_FEW = 256  # texts; up to here they are compared one by one
_ONE = rb"[\x00-\x7f\xc0-\xff][\x80-\xbf]*+"  # one character in UTF-8


class Vocabulary(Sequence[bytes]):
    """Distinct texts as UTF-8, ascending.

    Parameters
    ----------
    data : bytes-like
        The texts one after the other.
    offsets : ndarray of uint32 or int64, shape (n + 1,)
        Where each begins; the last is the length of `data`.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: bytes, offsets: NDArray[Any]) -> None:
        self.data = data
        self.offsets = offsets

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Vocabulary:
        """Pack distinct texts that are already in order.

        Parameters
        ----------
        texts : iterable of bytes

        Returns
        -------
        Vocabulary
        """
        ordered = list(texts)
        return cls(b"".join(ordered), _offsets(np.fromiter(map(len, ordered), np.int64, len(ordered))))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, code: int) -> bytes: ...
    @overload
    def __getitem__(self, code: slice) -> list[bytes]: ...
    def __getitem__(self, code: int | slice) -> bytes | list[bytes]:
        if isinstance(code, slice):
            return [self[each] for each in range(*code.indices(len(self)))]
        return self.data[self.offsets[code] : self.offsets[code + 1]]

    def __iter__(self) -> Iterator[bytes]:
        return (self.data[start:end] for start, end in pairwise(self.offsets.tolist()))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each text, (n,)."""
        offsets = self.offsets.astype(np.int64)
        return offsets[1:] - offsets[:-1]

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return len(self.data) + self.offsets.nbytes

    def range_of(self, operator: str, text: str) -> tuple[int, int]:
        """Find the codes of the texts that satisfy a comparison.

        Parameters
        ----------
        operator : {"=", "<", "<=", ">", ">="}
        text : str

        Returns
        -------
        tuple of int
            First code, and one behind the last.
        """
        wanted = text.encode("utf-8", "surrogatepass")
        low = bisect_left(self, wanted)
        high = low + (low < len(self) and self[low] == wanted)
        n = len(self)
        return {"=": (low, high), "<": (0, low), "<=": (0, high), ">": (high, n), ">=": (low, n)}[operator]

    def matching(self, pattern: re.Pattern[bytes]) -> NDArray[np.bool_]:
        """Say which texts a pattern matches as a whole.

        Parameters
        ----------
        pattern : re.Pattern
            See `compile_like_pattern`.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        matches, data = pattern.fullmatch, self.data
        ends = pairwise(self.offsets.tolist())
        return np.fromiter((matches(data, start, end) is not None for start, end in ends), bool, len(self))

    def taken(self, kept: NDArray[np.bool_]) -> Vocabulary:
        """Keep some of the texts.

        Parameters
        ----------
        kept : ndarray of bool, shape (n,)

        Returns
        -------
        Vocabulary
        """
        lengths = self.lengths
        data = np.frombuffer(self.data, np.uint8)[np.repeat(kept, lengths)].tobytes()
        return Vocabulary(data, _offsets(lengths[kept]))

    def check(self) -> None:
        """Verify what came from outside.

        Raises
        ------
        ValueError
            Offsets, encoding or order are wrong.
        """
        offsets, data = self.offsets.astype(np.int64), np.frombuffer(self.data, np.uint8)
        if (
            len(offsets) < 1
            or offsets[0] != 0
            or offsets[-1] != len(data)
            or (offsets[1:] < offsets[:-1]).any()
        ):
            raise ValueError("a vocabulary's offsets do not fit its texts")
        self.data.decode()  # UnicodeDecodeError is a ValueError
        starts = offsets[:-1][offsets[:-1] < len(data)]
        if ((data[starts] & 0xC0) == 0x80).any():
            raise ValueError("a vocabulary's text begins inside a character")
        if not _is_ascending(self):
            raise ValueError("a vocabulary's texts are not in order")


def merge_vocabularies(
    vocabularies: Sequence[Vocabulary],
) -> tuple[Vocabulary, list[NDArray[np.int64]]]:
    """Unite vocabularies.

    Parameters
    ----------
    vocabularies : sequence of Vocabulary

    Returns
    -------
    union : Vocabulary
    codes : list of ndarray of int64
        For each vocabulary, the new code of each of its texts.
    """
    if len(vocabularies) == 1:
        return vocabularies[0], [np.arange(len(vocabularies[0]))]
    if len(vocabularies) == 2 and 20 * len(vocabularies[1]) < len(vocabularies[0]):
        return _merge_few(*vocabularies)
    union = sorted(set().union(*vocabularies))
    code_of = {text: code for code, text in enumerate(union)}
    codes = [np.fromiter((code_of[text] for text in each), np.int64, len(each)) for each in vocabularies]
    return Vocabulary.of(union), codes


def _merge_few(many: Vocabulary, few: Vocabulary) -> tuple[Vocabulary, list[NDArray[np.int64]]]:
    """Unite a large vocabulary with a small one without unpacking the large one."""
    ranges = [(bisect_left(many, text), text) for text in few]
    added = [(at, text) for at, text in ranges if at == len(many) or many[at] != text]
    places = np.array([at for at, _ in added], np.int64)
    cuts = many.offsets[places].tolist()
    pieces = [many.data[start:end] for start, end in pairwise([0, *cuts, len(many.data)])]
    texts = [text for _, text in added]
    data = b"".join(b"".join(pair) for pair in zip(pieces, [*texts, b""], strict=True))
    lengths = np.insert(many.lengths, places, [len(text) for text in texts])
    codes_of_many = np.arange(len(many)) + np.searchsorted(places, np.arange(len(many)), side="right")
    union = Vocabulary(data, _offsets(lengths))
    codes_of_few = np.array([bisect_left(union, text) for text in few], np.int64)
    return union, [codes_of_many, codes_of_few]


def _offsets(lengths: NDArray[np.int64]) -> NDArray[Any]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets.astype(np.uint32) if offsets[-1] < 2**32 else offsets


def _is_ascending(texts: Vocabulary) -> bool:
    """Compare each text with the next, eight bytes at a time for all of them together while they are many."""
    starts, lengths = texts.offsets[:-1].astype(np.int64), texts.lengths
    words = np.ndarray(len(texts.data) + 1, ">u8", texts.data + bytes(8), strides=(1,))  # at every byte
    pairs, done = np.arange(len(lengths) - 1), 0
    while len(pairs) > _FEW:
        first, second = (
            _next_words(words, starts[at] + done, lengths[at] - done) for at in (pairs, pairs + 1)
        )
        if (first > second).any():
            return False
        pairs, done = pairs[first == second], done + 8
        over = np.minimum(lengths[pairs], lengths[pairs + 1]) <= done  # equal so far: the shorter is first
        if (lengths[pairs[over]] >= lengths[pairs[over] + 1]).any():
            return False
        pairs = pairs[~over]
    return all(texts[pair] < texts[pair + 1] for pair in pairs.tolist())


def _next_words(words: NDArray[Any], at: NDArray[np.int64], left: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Fetch the next eight bytes of some texts as numbers; behind a text's end there are zeros."""
    unused = 8 * (8 - np.clip(left, 1, 8)).astype(np.uint64)
    fetched = words[np.minimum(at, len(words) - 1)].astype(np.uint64) >> unused << unused
    return np.where(left > 0, fetched, 0)


def encode_text(text: str) -> bytes:
    """Encode a text of a document.

    Parameters
    ----------
    text : str

    Returns
    -------
    bytes

    Raises
    ------
    InvalidInput
        It holds half a surrogate pair, which no UTF-8 file can keep.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"expected valid Unicode in a payload, got {text[:80]!r}") from error


def compile_like_pattern(pattern: str, escape: str) -> re.Pattern[bytes]:
    """Translate the pattern of a LIKE; letters a to z match in either case, as in SQLite.

    Parameters
    ----------
    pattern : str
        ``%`` stands for any text, ``_`` for one character.
    escape : str
        The character after which the next one stands for itself, or "".

    Returns
    -------
    re.Pattern of bytes
        For `re.Pattern.fullmatch`. It never backtracks from one piece between two ``%`` into an earlier
        one, so no pattern takes exponential time.
    """
    pieces, at = [b""], 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            pieces[-1] += _escape_literal(pattern[at])
        elif character == "%":
            pieces.append(b"")
        else:
            pieces[-1] += _ONE if character == "_" else _escape_literal(character)
        at += 1
    return re.compile(_join_texts(pieces), re.IGNORECASE | re.DOTALL)


def _join_texts(pieces: list[bytes]) -> bytes:
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    found = b"".join(b"(?>.*?" + piece + b")" for piece in middle if piece)
    return first + found + b".*" + last


def _escape_literal(character: str) -> bytes:
    return re.escape(character.encode("utf-8", "surrogatepass"))
