"""Search documents by their words: what of a payload is searched, and how a query is asked of SQLite's FTS5.

Texts are folded and cut into words here, in any script, before SQLite sees them; a query becomes an
expression of quoted words alone, so nothing that a person types is an operator.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.encoders.builtin_text import MAX_CHARACTERS, split_words
from crossbyte.errors import InvalidInput, WriteRefused
from crossbyte.index.byte_cache import ByteCache
from crossbyte.index.storage.database import has_word_search
from crossbyte.index.verdict import Evidence

KIND = "words"
"""Kind of the record that says which payload fields are searched."""
USUAL_WEIGHT = 0.5
"""What one unit of BM25 takes from a distance, where nothing was measured."""
MEAN_WORDS = 20.0
"""Words of a document, where nobody has counted them."""
MOST_WORDS = 64  # of a query; longer ones are cut, so that the time of a search is bounded
_K, _B = 1.2, 0.75  # of BM25, as everywhere
_LEAST_RARITY = 1e-6
_ENTRY_BYTES = 1_000  # of what is kept of a term, beside its letters and documents
_MOST_FIELDS = 16
# Stands before and after every caption, so that no phrase goes on from one to the next, and whole captions
# can be asked for. A character of private use: a word to FTS5, which nothing that was cut into words has.
_MARK = "\ue000"
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»＂", '"'))
_QUOTED = re.compile(r'"([^"]*)"')


@dataclass(frozen=True)
class WordSettings:
    """Payload fields whose words are searched, and how words and vectors are fused.

    Attributes
    ----------
    fields : tuple of str
    weight : float
        What one unit of BM25 takes from a distance.
    evidence : mapping of mode to Evidence
        How sure answers are; modes that are left out have the usual evidence.
    measured : mapping
        What was measured on held-out pairs, for the report; empty where nothing was.
    mean_words : float
        Words of a document, by which BM25 tells long ones.
    """

    fields: tuple[str, ...]
    weight: float = USUAL_WEIGHT
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    mean_words: float = MEAN_WORDS

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read the record of an index."""
        known = document.get("evidence", {})
        return cls(
            tuple(map(str, document["searched"])),
            float(document.get("weight", USUAL_WEIGHT)),
            {str(mode): Evidence.from_dict(each) for mode, each in known.items()},
            document.get("measured", {}),
            float(document.get("mean_words", MEAN_WORDS)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the record of an index."""
        return {
            "searched": list(self.fields),
            "weight": self.weight,
            "evidence": {mode: each.to_dict() for mode, each in self.evidence.items()},
            "measured": dict(self.measured),
            "mean_words": self.mean_words,
        }


class WordMatch(NamedTuple):
    """A document that has words of a query: its number, and its BM25 score (larger is better)."""

    number: int
    score: float


class TermMatches(NamedTuple):
    """The documents that have one word or phrase.

    Attributes
    ----------
    numbers : (n,) int64
        Of all documents that are not deleted.
    counts, lengths : (n,) int64
        How often each has it, and how many words each has in all.
    allowed : (n,) bool
        Whether a filter lets it through.
    """

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    allowed: NDArray[np.bool_]

    @classmethod
    def none(cls) -> Self:
        """Make those of a word that no document has."""
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, np.empty(0, dtype=np.bool_))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join those of several shards."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @property
    def found(self) -> set[int]:
        """Numbers of the documents that are allowed."""
        return set(self.numbers[self.allowed].tolist())


class TermCache(ByteCache[str, TermMatches]):
    """Keeps what was found of terms.

    Any text may be asked, so a term counts for its own bytes, too, even if no document has it.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes: int = 16_000_000) -> None:
        super().__init__(most_bytes, _count_bytes)


def _count_bytes(term: str, found: TermMatches) -> int:
    return _ENTRY_BYTES + 4 * len(term) + sum(each.nbytes for each in found)


class CountCache(ByteCache[tuple[str, int], int]):
    """Keeps how many documents have a term, up to a bound: by term and bound.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes: int = 4_000_000) -> None:
        super().__init__(most_bytes, lambda key, _: _ENTRY_BYTES + 4 * len(key[0]))


class WordScores(NamedTuple):
    """BM25 scores of the documents that have any word of a query, in the order of their numbers.

    Attributes
    ----------
    numbers : (n,) int64
        Ascending.
    scores : (n,) float64
        Larger is better.
    """

    numbers: NDArray[np.int64]
    scores: Float64

    def best_first(self) -> NDArray[np.intp]:
        """Order the documents (n,) by score; equal ones by their numbers."""
        return np.argsort(-self.scores, kind="stable")

    def of(self, numbers: NDArray[np.int64]) -> Float64:
        """Look up the scores (m,) of some documents; 0 for those without any word."""
        if not len(self.numbers):
            return np.zeros(len(numbers))
        places = self.numbers.searchsorted(numbers)
        same = self.numbers.take(places, mode="clip") == numbers
        return np.where(same, self.scores.take(places, mode="clip"), 0.0)

    def list_matches(self) -> list[WordMatch]:
        """List the documents, best first."""
        order = self.best_first()
        pairs = zip(self.numbers[order].tolist(), self.scores[order].tolist(), strict=True)
        return list(map(WordMatch._make, pairs))


def score_words(terms: Sequence[TermMatches], n_documents: int, mean_words: float) -> WordScores:
    """Score the allowed documents by BM25.

    Scores are sums of what each word or phrase adds, in their order, to a document that has it f times in
    |d| words:

        ln((N - n + ½) / (n + ½)) f (k + 1) / (f + k (1 - b + b |d| / mean))

    with n of N documents that have it. They depend on documents alone: not on deleted ones, nor on shards.
    """
    numbers, added = [np.empty(0, np.int64)], [np.empty(0)]
    for each in terms:
        n = len(each.numbers)
        rarity = max(float(np.log((n_documents - n + 0.5) / (n + 0.5))), _LEAST_RARITY)
        some = each.allowed
        f, length = each.counts[some], each.lengths[some]
        numbers.append(each.numbers[some])
        added.append(rarity * f * (_K + 1.0) / (f + _K * (1.0 - _B + _B * length / mean_words)))
    known, places = np.unique(np.concatenate(numbers), return_inverse=True)
    scores = np.bincount(places, np.concatenate(added), len(known)).astype(
        np.float64
    )  # in the order of terms
    return WordScores(known, scores)


def check_word_fields(fields: Any) -> tuple[str, ...]:
    """Check the payload fields whose words are searched; refuse where SQLite cannot search words.

    Raises
    ------
    InvalidInput
        Not a few names of fields.
    WriteRefused
        This SQLite has no FTS5.
    """
    if isinstance(fields, str) or not isinstance(fields, Sequence):
        raise InvalidInput(f"words: expected names of payload fields, such as ['captions'], got {fields!r}")
    names = tuple(fields)
    if not all(isinstance(name, str) and name for name in names) or not 1 <= len(names) <= _MOST_FIELDS:
        raise InvalidInput(f"words: expected 1 to {_MOST_FIELDS} names of payload fields, got {fields!r}")
    if not has_word_search():
        raise WriteRefused(
            "words: this SQLite cannot search words (it was built without FTS5); leave words out to search "
            "by vectors alone, or use a Python whose SQLite has FTS5"
        )
    return names


def searched_text(payload: Mapping[str, Any] | None, fields: Iterable[str]) -> str:
    """Give the words of a payload's fields as they are kept: folded, and every text between two marks.

    Fields may be texts or lists of texts, and dotted names reach into objects; other values have no words.
    Spaces stand between words alone, so that one more than there are spaces is the number of words.
    """
    found = [text for field in fields for text in _list_texts(_read_field(payload, field))]
    kept = [" ".join(words) for text in found if (words := split_words(text, pairs=False))]
    return f"{_MARK}\n" + f" {_MARK}\n".join(kept) + f"\n{_MARK}" if kept else ""


def count_mean_words(payloads: Iterable[Mapping[str, Any] | None], fields: Sequence[str]) -> float:
    """Count the words that a document has on average, of those that have any."""
    counts = [text.count(" ") + 1 for text in (searched_text(each, fields) for each in payloads) if text]
    return sum(counts) / len(counts) if counts else MEAN_WORDS


def _read_field(payload: Any, field: str) -> Any:
    if isinstance(payload, Mapping) and field in payload:
        return payload[field]
    head, _, rest = field.partition(".")
    inner = payload.get(head) if isinstance(payload, Mapping) else None
    return _read_field(inner, rest) if rest else None


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _list_texts(each)


@dataclass(frozen=True)
class WordQuery:
    """The words of a query.

    Attributes
    ----------
    words : tuple of str
        Each once, in their order, without those of phrases.
    phrases : tuple of str
        What stood in quotes: words with spaces between them.
    sentence : str
        All words in their order, quoted or not: what a caption would have to say, word by word.
    caption : str
        The sentence as a whole caption, with nothing before it and nothing after it.
    """

    words: tuple[str, ...]
    phrases: tuple[str, ...]
    sentence: str
    caption: str

    @classmethod
    def parse(cls, text: str) -> WordQuery:
        """Take the words of a text; never refuses one."""
        plain = text.translate(_QUOTES)
        quoted = [" ".join(split_words(each, pairs=False)[:MOST_WORDS]) for each in _QUOTED.findall(plain)]
        words = dict.fromkeys(split_words(_QUOTED.sub(" ", plain), pairs=False))
        every = split_words(plain, pairs=False)
        sentence = " ".join(every[:MOST_WORDS])
        # Of a longer caption no more is compared than is asked.
        caption = f"{_MARK} {sentence}" + (f" {_MARK}" if len(every) <= MOST_WORDS else "")
        phrases = tuple(dict.fromkeys(each for each in quoted if each))
        return cls(tuple(words)[:MOST_WORDS], phrases, sentence, caption if sentence else "")

    @property
    def terms(self) -> tuple[str, ...]:
        """Phrases and words."""
        return tuple(dict.fromkeys((*self.phrases, *self.words)))[:MOST_WORDS]


def name_as_typed(text: str, terms: Iterable[str]) -> list[str]:
    """Name some words and phrases of a text as they were typed, each once.

    What was typed without spaces, in a script that has none, is named whole if these are all of its pieces,
    else by its pieces.
    """
    wanted = list(dict.fromkeys(terms))
    if not wanted:
        return []
    plain = text.translate(_QUOTES)[:MAX_CHARACTERS]
    named: dict[str, str] = {}
    for each in _QUOTED.findall(plain):
        named.setdefault(" ".join(split_words(each, pairs=False)[:MOST_WORDS]), " ".join(each.split()))
    for run in _split_typed(_QUOTED.sub(" ", plain)):
        if all(term in named for term in wanted):
            break
        pieces = split_words(run, pairs=False)
        if len(pieces) == 1 or (len(pieces) <= MOST_WORDS and all(each in wanted for each in pieces)):
            for piece in pieces:
                named.setdefault(piece, run)
    return list(dict.fromkeys(named.get(term, term) for term in wanted))


def _split_typed(text: str) -> Iterator[str]:
    """Split a text where :func:`split_words` does, but for scripts without spaces; letters stay as typed."""
    kinds = {letter: _find_kind(letter) for letter in set(text)}
    spaced = "".join(letter if kinds[letter] is not None else " " for letter in text)
    for word in dict.fromkeys(spaced.split()):
        for _, run in groupby(word, key=kinds.__getitem__):
            yield "".join(run)


@lru_cache(maxsize=4096)
def _find_kind(letter: str) -> str | None:
    """Say whether spaces stand between words of a letter's script; None of what is no letter."""
    if not split_words(letter):
        return "spaced" if unicodedata.category(letter)[0] == "M" else None
    return "spaced" if len(split_words(letter * 2, pairs=False)) == 1 else "unspaced"


def quote_term(term: str) -> str:
    """Write the expression of FTS5 that finds documents with a word or phrase."""
    return '"' + term.replace('"', "") + '"'
