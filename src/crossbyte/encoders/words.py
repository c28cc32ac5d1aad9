"""Texts to words and pieces of words, in any script.

Letters that differ only in case, width or accents are the same letter here. Scripts that put no spaces
between words are cut into single characters and pairs of them, which is what search engines do without a
dictionary.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["column_of", "folded", "pieces_of", "split_words"]

MAX_CHARACTERS = 100_000
"""Of a text; what comes after is not read: no caption is that long, and time stays bounded."""

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
    """For ``str.translate``: letters, their marks and digits stay, everything else parts words."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kept = character.isalnum() or unicodedata.category(character)[0] == "M"
        self[code] = character if kept else " "
        return self[code]


_LETTERS = _Letters(
    {ord("ø"): "o", ord("ł"): "l", ord("đ"): "d", ord("ı"): "i", ord("æ"): "ae", ord("œ"): "oe"}
)


def folded(text: str) -> str:
    """One form for all spellings of the same letters: NFKC, no case, no accents."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


def split_words(text: str) -> list[str]:
    """Words in the order of the text; [] where there is neither letter nor digit.

    A run of characters of a script without spaces gives its characters and their neighbouring pairs.
    """
    words: list[str] = []
    for word in folded(text[:MAX_CHARACTERS]).translate(_LETTERS).split():
        for part in [word] if word.isascii() else _UNSPACED_RUN.split(word):
            if part:
                words.extend(_cut(part))
    return words


def pieces_of(word: str) -> list[str]:
    """Character n-grams of a word with its borders: 3 to 5 letters, or 2 to 3 syllables or ideographs."""
    bordered = f" {word[:_LONGEST_WORD]} "
    sizes = _DENSE_PIECES if _DENSE.search(word) else _PIECES
    pieces = [bordered[at : at + size] for size in sizes for at in range(len(bordered) - size + 1)]
    return pieces or [bordered]


def _cut(part: str) -> Iterator[str]:
    if not _UNSPACED_RUN.fullmatch(part):
        yield part
        return
    yield from part
    yield from map("".join, pairwise(part))


def column_of(piece: str, width: int) -> int:
    """Give the column of a piece of text among ``width``, the same on every machine and in every process."""
    return zlib.crc32(piece.encode("utf-8", "surrogatepass")) % width
