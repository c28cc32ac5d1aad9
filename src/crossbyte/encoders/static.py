"""Encode texts as static sentence vectors: the direction of the mean of a learned vector per piece of a word.

The vectors are those of WordLlama (MIT), 256 numbers for each of 32,000 pieces, as they lie in its wheel.
Only its two data files are used: its own loader asks a hub.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from crossbyte.arrays import Float32, Raw
from crossbyte.encoders.base import EncoderState, digest_files, encode_texts, encoder_fingerprint
from crossbyte.errors import DataFileError, MissingExtra
from crossbyte.extras import is_installed

NAME = "static"
_PACKAGE = "wordllama"
_TABLE = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_TENSOR = "embedding.weight"
_INSTALL = "pip install 'crossbyte[photo]'"
_MAX_CHARS = 8192
"""Letters of a text that count: far more than a caption has, and a bound on the work for a book."""
_SETTINGS = {"rows": "mean of unit length", "max_chars": _MAX_CHARS}
_MIN_LETTERS = 3
_KNOWN_SHARE = 0.5
"""Share of the letters that must lie in whole words or in pieces of three letters and more. Only Latin ones
count: of Cyrillic the table has many pieces too, but these are syllables rather than words."""
_SPACE = "▁"  # how the tokenizer writes the beginning of a word


class StaticFiles(NamedTuple):
    """The two data files: a table of vectors, and the tokenizer whose numbers are its rows."""

    table: Path
    tokenizer: Path


class StaticVectors(NamedTuple):
    """The table in memory, the tokenizer, and the digest of both files."""

    table: Float32
    """(n_pieces, dimension)"""
    tokenizer: Any
    digest: str


def find_files() -> StaticFiles | None:
    """Find the data files in the installed package, without importing it; None if something is missing."""
    if not is_installed("tokenizers"):
        return None
    package = importlib.util.find_spec(_PACKAGE)
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        files = StaticFiles(Path(folder) / _TABLE, Path(folder) / _TOKENIZER)
        if files.table.is_file() and files.tokenizer.is_file():
            return files
    return None


@cache
def load_vectors(files: StaticFiles) -> StaticVectors:
    """Load both files; once in a process, since every encoder shares them.

    Raises
    ------
    DataFileError
        One of them is damaged, or they do not belong together.
    """
    import tokenizers
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        table = load_file(files.table)[_TENSOR].astype(np.float32)
        tokenizer = tokenizers.Tokenizer.from_file(str(files.tokenizer))
    except (OSError, KeyError, SafetensorError) as error:
        raise DataFileError(_describe_damage(files, error)) from error
    except Exception as error:  # the tokenizer's errors have no common base but Exception
        raise DataFileError(_describe_damage(files, error)) from error
    n_pieces = tokenizer.get_vocab_size(with_added_tokens=True)
    if table.ndim != 2 or n_pieces > len(table) or not np.isfinite(table).all():
        raise DataFileError(_describe_damage(files, f"{n_pieces} pieces, and a table of shape {table.shape}"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "<s>" in a text is text
    return StaticVectors(table, tokenizer, _digest_contents(files))


def _digest_contents(files: StaticFiles) -> str:
    """Digest the table, and what the tokenizer's JSON says: releases of the package write it differently."""
    digest = hashlib.blake2b(digest_files(files.table).encode(), digest_size=16)
    digest.update(json.dumps(json.loads(files.tokenizer.read_bytes()), sort_keys=True).encode())
    return digest.hexdigest()


def _describe_damage(files: StaticFiles, reason: object) -> str:
    return (
        f"the vectors of {_PACKAGE} cannot be used ({str(reason)[:200]}); expected its {files.table.name} "
        "and "
        f"{files.tokenizer.name}, whole; install it again: pip install --force-reinstall {_PACKAGE}"
    )


class StaticTextEncoder:
    """Encode texts by the mean of their pieces' vectors, at unit length; may be shared by threads.

    Parameters
    ----------
    vectors : StaticVectors
    """

    kind = "static"

    def __init__(self, vectors: StaticVectors) -> None:
        self._vectors = vectors
        settings = {"files": vectors.digest, **_SETTINGS}
        fingerprint = encoder_fingerprint(self.kind, settings, {})
        self._state = EncoderState(self.kind, NAME, vectors.table.shape[1], fingerprint, settings, {})

    @classmethod
    def load(cls) -> Self:
        """Load the vectors of the installed package.

        Raises
        ------
        MissingExtra
            It is not installed, or has no such files.
        DataFileError
            Its files are damaged.
        """
        files = find_files()
        if files is None:
            raise MissingExtra(
                f"the text encoder {NAME!r} needs tokenizers and {_PACKAGE} with its vectors of 256 numbers; "
                f"install them with: {_INSTALL}"
            )
        return cls(load_vectors(files))

    @property
    def state(self) -> EncoderState:
        """A digest of the vectors and of the tokenizer; no arrays."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode texts.

        Parameters
        ----------
        items : sequence of str
            The first 8,192 letters of each count.

        Returns
        -------
        (n, 256) float32 ndarray
        """
        return encode_texts(items, self._encode_rows, self._state.dimension)

    def knows_script(self, texts: Sequence[str]) -> bool:
        """Tell whether the vectors know the words of these texts, not only their letters or bytes.

        Parameters
        ----------
        texts : sequence of str
            A sample; a few hundred are enough.
        """
        known = letters = 0
        for text in texts:
            in_words, of_text = _count_letters(self._tokenize(text).tokens)
            known, letters = known + in_words, letters + of_text
        return letters > 0 and known >= _KNOWN_SHARE * letters

    def _encode_rows(self, texts: list[str]) -> Float32:
        # One at a time: its batches start threads of their own, which warn in every process forked later.
        sums = np.zeros((len(texts), self._vectors.table.shape[1]), dtype=np.float32)
        for own, text in zip(sums, texts, strict=True):
            pieces = self._vectors.table[self._tokenize(text).ids]
            own += np.add.accumulate(pieces, axis=0)[-1] if len(pieces) else 0.0  # in the order of the text
        # Short texts have long means; captions of one document are to count alike, however long they are.
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.asarray(sums / np.where(lengths > 0.0, lengths, 1.0), dtype=np.float32)

    def _tokenize(self, text: str) -> Any:
        # A lone surrogate, as in a damaged file name, is no letter that the tokenizer could take.
        whole = text[:_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")
        return self._vectors.tokenizer.encode(whole, add_special_tokens=False)


def _count_letters(tokens: Sequence[str]) -> tuple[int, int]:
    """Count the letters in whole words and long pieces, and all letters; a byte counts as one letter."""
    known = letters = 0
    for place, token in enumerate(tokens):
        piece = token.removeprefix(_SPACE)
        if token.startswith("<0x") and token.endswith(">"):
            letters += 1
            continue
        n_letters = sum(sign.isalnum() for sign in piece)
        letters += n_letters
        is_word = n_letters >= _MIN_LETTERS or (token != piece and _ends_word(tokens, place))
        if is_word and _is_latin(piece):
            known += n_letters
    return known, letters


def _is_latin(piece: str) -> bool:
    """Tell whether all letters are of Latin script: the first blocks of Unicode, and the block at 1E00."""
    return all(sign < "\u0250" or "\u1e00" <= sign <= "\u1eff" for sign in piece if sign.isalpha())


def _ends_word(tokens: Sequence[str], place: int) -> bool:
    """Tell whether the next token is no continuation of a word: another word, or punctuation."""
    if place + 1 == len(tokens):
        return True
    following = tokens[place + 1]
    return following.startswith(_SPACE) or not (following[0].isalnum() or following.startswith("<0x"))
