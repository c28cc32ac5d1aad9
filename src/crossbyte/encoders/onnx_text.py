"""Encode texts with any ONNX network that takes the numbers of tokens, and the tokenizer beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32, Raw
from crossbyte.compute.executor import Workers, row_blocks
from crossbyte.encoders import onnx_model
from crossbyte.encoders.base import (
    EncoderState,
    check_rows,
    digest_files,
    encode_texts,
    encoder_fingerprint,
)
from crossbyte.errors import DataFileError, InvalidInput, WrongEncoder
from crossbyte.extras import import_extra
from crossbyte.validation import check_choice, check_integer

TOKENIZER = "tokenizer.json"
_IDS = ("input_ids", "ids", "input", "tokens")
_MASKS = ("attention_mask", "mask")
_TYPE_IDS = ("token_type_ids", "segment_ids")
_OUTPUTS = ("text_embeds", "sentence_embedding", "embeddings", "emb", "last_hidden_state", "token_embeddings")
"""Names that networks give their inputs and outputs, the preferred ones first."""
_POOLS = ("none", "mean", "first")
_FIELDS = {
    "model", "name", "tokenizer", "ids", "mask", "types", "output", "pool", "normalise", "max_tokens",
    "padding",
}  # fmt: skip
_USUAL_TOKENS = 256
_MOST_TOKENS = 8192
_MAX_CHARS = 2**17
"""Letters of a text that the tokenizer gets: more than any network's tokens, and a bound on the work."""
_LARGEST_TOKENIZER = 2**27
_BATCH = 4
"""Texts at a time, of one number of tokens, where that was seen to give the bits of each alone."""
_FAR_SMALLER, _FEW_TOKENS = 2, 100
"""A vocabulary is another network's if its table has a row of this many times its size, and a few more."""
_NO_TABLE = 2**31 - 1
"""The number of a token that no table has: a network that takes it does not look tokens up."""
PROBES = (
    "red dog big cat",
    "the man has tea",
    "two men run far",
    "one boy may sit",
    "The MAN, in 3 blue shirts, waits: naïve?",
    "The DOG, on 2 grey stones, rests: naïve?",
    "The CAT, by 4 pink houses, walks: naïve?",
    "The BOY, at 5 dark rivers, sings: naïve?",
)
"""Texts of two lengths, which show whether batches change a text's features."""


@dataclass(frozen=True)
class TextDescription:
    """Preparation of a text for a network, and of the network's output.

    Attributes
    ----------
    ids : str
        Name of the input of token numbers.
    mask, types : str or None
        Names of the inputs that mark tokens (all ones) and number sentences (all zeros), where there are any.
    output : str
    pool : {"none", "mean", "first"}
        How an output with a vector for each token becomes one vector.
    normalise : bool
        Bring rows to length one.
    max_tokens : int
        Longer texts are cut; the tokenizer's closing token stays.
    padding : int or None
        Number of the token that fills a text up to ``max_tokens``; None where texts have their own length.
    """

    ids: str
    mask: str | None
    types: str | None
    output: str
    pool: str
    normalise: bool
    max_tokens: int
    padding: int | None


class TextTokenizer(NamedTuple):
    """A tokenizer of the library of that name: its file, itself, and the digest of the file."""

    path: Path
    tokenizer: Any
    digest: str
    max_tokens: int | None
    """Where its file says how long texts may be."""
    padding: int | None
    """The number of its padding token, where its file says so."""


def open_tokenizer(path: Path) -> TextTokenizer:
    """Open a ``tokenizer.json``.

    Raises
    ------
    FileNotFoundError
        There is none.
    DataFileError
        It is none.
    MissingExtra
        The library ``tokenizers`` is not installed.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file; a network for texts needs the {TOKENIZER} that its makers "
            'distribute with it: put it beside the network, or name it by "tokenizer" in the description'
        )
    if path.stat().st_size > _LARGEST_TOKENIZER:
        raise DataFileError(
            f"{path}: expected a tokenizer of at most {_LARGEST_TOKENIZER} bytes; give another"
        )
    library = import_extra("tokenizers", f"the tokenizer {path.name} needs")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # its errors have no common base but Exception
        raise DataFileError(
            f"{path}: expected a {TOKENIZER} as the library tokenizers writes it "
            f"({onnx_model.first_line(error)}); fetch it again from where the network came from"
        ) from error
    cut, filled = tokenizer.truncation, tokenizer.padding
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    max_tokens = int(cut["max_length"]) if cut and cut.get("max_length") else None
    padding = int(filled["pad_id"]) if filled else None
    return TextTokenizer(path, tokenizer, digest_files(path), max_tokens, padding)


def find_text_model(spec: str) -> tuple[Path, Path, dict[str, Any]]:
    """Find the ONNX file, its tokenizer, and the fields of its description.

    Parameters
    ----------
    spec : str
        As for `onnx_model.find_model`; the tokenizer is ``tokenizer.json`` beside the ONNX file or in the
        folder above, or the file that the description's ``tokenizer`` names, relative to the description.

    Returns
    -------
    path, tokenizer : Path
    fields : dict
    """
    path, fields = onnx_model.find_model(spec)
    named = fields.get("tokenizer")
    if named is not None:
        if not isinstance(named, str):
            raise InvalidInput(f"{spec}: tokenizer: expected the path of a {TOKENIZER}, got {named!r}")
        given = Path(spec).expanduser()
        home = given.parent if given.suffix.lower() == ".json" else path.parent
        return path, home / named, fields
    above = path.parent.parent / TOKENIZER  # hubs keep networks in a folder "onnx" beside it
    is_above = path.parent.name == "onnx" and above.is_file() and not (path.parent / TOKENIZER).is_file()
    return path, above if is_above else path.parent / TOKENIZER, fields


def takes_texts(spec: str) -> bool:
    """Tell whether an ONNX file, or the one that a description names, takes tokens rather than pictures."""
    path, _ = onnx_model.find_model(spec)
    return any(_takes_tokens(port) for port in onnx_model.open_onnx(path).inputs)


def describe_network(
    file: onnx_model.OnnxFile, tokenizer: TextTokenizer, fields: Mapping[str, Any], where: str
) -> TextDescription:
    """Combine what network, tokenizer and description say.

    Raises
    ------
    InvalidInput
        The network takes no tokens, the description names what is not there, or something must be said.
    """
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise InvalidInput(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    ids = _choose_input(file, fields, "ids", _IDS)
    if ids is None:
        raise InvalidInput(
            f"{file.path}: expected a network for texts, with an input of token numbers (int64, two axes) "
            f"called {_IDS[0]!r}, got {onnx_model.describe_ports(file.inputs)}; a network for pictures is "
            "given "
            "as the encoder of images (--image-encoder), other names go into the description"
        )
    mask = _choose_input(file, fields, "mask", _MASKS)
    types = _choose_input(file, fields, "types", _TYPE_IDS)
    known = [port.name for port in (ids, mask, types) if port is not None]
    others = [port for port in file.inputs if port.name not in known]
    if others:
        raise InvalidInput(
            f"{file.path}: expected no inputs but token numbers, mask and types, got also "
            f"{onnx_model.describe_ports(others)}; export the network's text side alone"
        )
    output = _choose_output(file, fields)
    length = ids.shape[1]
    usual = tokenizer.max_tokens or _USUAL_TOKENS
    normalise = fields.get("normalise", True)
    if not isinstance(normalise, bool):
        raise InvalidInput(f"{where}: normalise: expected true or false, got {normalise!r}")
    return TextDescription(
        ids=ids.name,
        mask=None if mask is None else mask.name,
        types=None if types is None else types.name,
        output=output.name,
        pool=check_choice(fields.get("pool", _usual_pool(output)), f"{where}: pool", _POOLS),
        normalise=normalise,
        max_tokens=check_integer(
            fields.get("max_tokens", length or usual), f"{where}: max_tokens", 1, length or _MOST_TOKENS
        ),
        padding=_choose_padding(fields, length, mask, tokenizer, where),
    )


def _choose_input(
    file: onnx_model.OnnxFile, fields: Mapping[str, Any], key: str, usual: Sequence[str]
) -> onnx_model.Port | None:
    ports = {port.name: port for port in file.inputs if _takes_tokens(port)}
    if fields.get(key) is not None:
        if fields[key] not in ports:
            raise InvalidInput(
                f"{file.path}: it has no input {fields[key]!r} of token numbers; it has "
                f"{onnx_model.describe_ports(file.inputs)}"
            )
        return ports[fields[key]]
    return next((ports[name] for name in usual if name in ports), None)


def _takes_tokens(port: onnx_model.Port) -> bool:
    return len(port.shape) == 2 and port.dtype in (np.int64, np.int32)


def _choose_output(file: onnx_model.OnnxFile, fields: Mapping[str, Any]) -> onnx_model.Port:
    ports = {port.name: port for port in file.outputs}
    names = (
        [fields["output"]] if "output" in fields else [*_OUTPUTS, *(list(ports) if len(ports) == 1 else ())]
    )
    for name in names:
        if name in ports:
            return ports[name]
    raise InvalidInput(
        f"{file.path}: expected an output called {names[0]!r}, got "
        f"{onnx_model.describe_ports(file.outputs)}; "
        'name the one that is the text\'s vector by "output" in the description'
    )


def _usual_pool(output: onnx_model.Port) -> str:
    return "mean" if len(output.shape) == 3 else "none"


def _choose_padding(
    fields: Mapping[str, Any],
    length: int | None,
    mask: onnx_model.Port | None,
    tokenizer: TextTokenizer,
    where: str,
) -> int | None:
    """Choose the token that fills texts up; only a network of one fixed length needs one."""
    if fields.get("padding") is not None:
        return check_integer(fields["padding"], f"{where}: padding", 0)
    if length is None:
        return None
    if tokenizer.padding is None and mask is None:
        raise InvalidInput(
            f"{where}: the network takes {length} tokens and has no mask, and {tokenizer.path.name} does not "
            'say which token fills a text up; say it by "padding" in the description (for CLIP: 0 or 49407)'
        )
    return tokenizer.padding or 0


class OnnxTextEncoder:
    """Encode texts with an ONNX network.

    Texts go through it one at a time (or in batches of texts with equally many tokens, where that was seen to
    give the same bits), so that a text's features do not depend on those beside it; several threads do so.

    Parameters
    ----------
    file : OnnxFile
    tokenizer : TextTokenizer
    description : TextDescription
    name : str
    n_jobs : int or None
        Threads; None for all cores. The features do not depend on it.

    Raises
    ------
    InvalidInput
        Network and tokenizer do not belong together.
    """

    kind = "onnx-text"

    def __init__(
        self,
        file: onnx_model.OnnxFile,
        tokenizer: TextTokenizer,
        description: TextDescription,
        name: str,
        n_jobs: int | None = None,
    ) -> None:
        self._file, self._tokenizer, self._description = file, tokenizer, description
        self._n_jobs = n_jobs
        self._dtypes = {port.name: port.dtype for port in file.inputs}
        tokenizer.tokenizer.enable_truncation(max_length=description.max_tokens)
        # None: texts go in batches of any size.
        self._fixed = next(port.shape[0] for port in file.inputs if port.name == description.ids)
        self._check_vocabulary()
        dimension = self._run_batch([self._tokenize(PROBES[0])], self._fixed or 1).shape[1]
        self._step = self._fixed or (_BATCH if self._batches_agree() else 1)
        self._state = self._build_state(name, dimension)

    @classmethod
    def from_spec(cls, spec: str, n_jobs: int | None = None) -> Self:
        """Open the network that a path names, with the tokenizer beside it; see `find_text_model`."""
        path, tokenizer, fields = find_text_model(spec)
        name = fields.get("name", path.stem)
        if not isinstance(name, str):
            raise InvalidInput(f"{spec}: expected a name as a string, got {name!r}")
        return cls.from_files(path, tokenizer, fields, name, n_jobs)

    @classmethod
    def from_files(
        cls, path: Path, tokenizer: Path, fields: Mapping[str, Any], name: str, n_jobs: int | None = None
    ) -> Self:
        """Open a network and its tokenizer; ``fields`` is what is said of them, see docs/encoders.md."""
        opened = open_tokenizer(tokenizer)
        file = onnx_model.open_onnx(path)
        return cls(file, opened, describe_network(file, opened, fields, str(path)), name, n_jobs)

    @classmethod
    def from_state(cls, state: EncoderState, given: str, n_jobs: int | None = None) -> Self:
        """Open the files again that a model was fitted with; the state has the description.

        Raises
        ------
        WrongEncoder
            One of them is another file.
        """
        path, tokenizer, _ = find_text_model(given)
        return cls.restore(state, path, tokenizer, n_jobs)

    @classmethod
    def restore(cls, state: EncoderState, path: Path, tokenizer: Path, n_jobs: int | None = None) -> Self:
        """Open two files as the state describes them; see `from_state`."""
        opened = open_tokenizer(tokenizer)
        file = onnx_model.open_onnx(path)
        for found, key, at in ((file.digest, "file", path), (opened.digest, "tokenizer", tokenizer)):
            if found != state.settings.get(key):
                raise WrongEncoder(
                    f"the model was fitted with the encoder {state.name!r} ({key} of digest "
                    f"{state.settings.get(key)}), and {at} is another file (digest {found}); give the files "
                    "that it was fitted with, or fit again with these"
                )
        return cls(file, opened, _restore_description(state, file, opened), state.name, n_jobs)

    @property
    def state(self) -> EncoderState:
        """The digests of network and tokenizer, and the whole description; no path."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode texts.

        Parameters
        ----------
        items : sequence of str

        Returns
        -------
        (n, dimension) float32 ndarray
        """
        return encode_texts(items, self._encode_texts, self._state.dimension)

    def _encode_texts(self, texts: Sequence[str]) -> Float32:
        tokens = [self._tokenize(text) for text in texts]
        features: Float32 = np.zeros((len(tokens), self._state.dimension), dtype=np.float32)
        batches = _plan_batches(tokens, self._step)

        def encode_batches(block: slice) -> None:
            for rows in batches[block]:
                features[rows] = self._run_batch([tokens[row] for row in rows], self._step)

        with Workers(self._n_jobs) as workers:
            workers.each(encode_batches, len(batches), 16)
        return np.asarray(check_rows(features, len(tokens), self._state.name))

    def _tokenize(self, text: str) -> list[int]:
        # A lone surrogate, as in a damaged file name, is no letter that the tokenizer could take.
        whole = text[:_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")
        # A text of letters that the tokenizer drops has no token at all; one keeps the network's shape.
        return list(self._tokenizer.tokenizer.encode(whole).ids) or [self._description.padding or 0]

    def _run_batch(self, tokens: Sequence[Sequence[int]], size: int) -> NDArray[Any]:
        """Encode texts of one number of tokens, filled up with the first to one size of batch."""
        full = [*tokens, *[tokens[0]] * (size - len(tokens))]
        output, mask = self._run_network(full)
        rows = _pool_tokens(output, mask, self._description, len(full))[: len(tokens)]
        if not self._description.normalise:
            return rows
        lengths = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1, keepdims=True))
        return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)

    def _run_network(self, tokens: Sequence[Sequence[int]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        width = len(tokens[0]) if self._description.padding is None else self._description.max_tokens
        ids = np.full((len(tokens), width), self._description.padding or 0, dtype=np.int64)
        mask = np.zeros_like(ids)
        ids[:, : len(tokens[0])], mask[:, : len(tokens[0])] = tokens, 1
        inputs = {self._description.ids: ids, self._description.mask: mask}
        inputs[self._description.types] = np.zeros_like(ids)
        feed = {name: array.astype(self._dtypes[name]) for name, array in inputs.items() if name is not None}
        try:
            (output,) = self._file.session.run([self._description.output], feed)
        except Exception as error:  # its errors have no common base but Exception
            raise InvalidInput(
                f"{self._file.path}: the network failed on the tokens of {self._tokenizer.path} "
                f"({onnx_model.first_line(error)}); give the tokenizer that its makers distribute with it, "
                "or a "
                'smaller "max_tokens" in the description'
            ) from error
        return np.asarray(output), mask

    def _check_vocabulary(self) -> None:
        """Give the network the tokenizer's highest number: it fails where its table is smaller.

        A table that goes far beyond belongs to another tokenizer: its makers fill up to a round number only.
        """
        highest = max(self._tokenizer.tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        usual, size = self._tokenize(PROBES[0]), self._fixed or 1
        self._run_network([usual] * size)  # fails by itself where something else is wrong
        try:
            self._run_network([[highest, *usual][: len(usual)]] * size)
        except InvalidInput as error:
            raise InvalidInput(
                f"{self._tokenizer.path} has tokens of numbers up to {highest}, and the network "
                f"{self._file.path} "
                "has no row for them: they do not belong together; give the tokenizer.json that the "
                "network's "
                "makers distribute with it"
            ) from error
        beyond = _FAR_SMALLER * (highest + 1) + _FEW_TOKENS
        if self._has_row(beyond, usual, size) and not self._has_row(_NO_TABLE, usual, size):
            raise InvalidInput(
                f"{self._tokenizer.path} has tokens of numbers up to {highest}, and the network "
                f"{self._file.path} has rows far beyond (such as {beyond}): they do not belong together; "
                "give the tokenizer.json that the network's makers distribute with it"
            )

    def _has_row(self, token: int, usual: Sequence[int], size: int) -> bool:
        """Tell whether the network takes a token of this number."""
        try:
            self._run_network([[token, *usual][: len(usual)]] * size)
        except InvalidInput:
            return False
        return True

    def _batches_agree(self) -> bool:
        """Tell whether texts get the bits that they get by themselves: in a batch, and in one filled up."""
        tokens = [self._tokenize(text) for text in PROBES]
        alone = np.concatenate([self._run_batch([text], 1) for text in tokens])
        batches = [*_plan_batches(tokens, _BATCH), *([row] for row in range(len(tokens)))]
        try:
            made = [self._run_batch([tokens[row] for row in rows], _BATCH) for rows in batches]
        except InvalidInput:  # a network for one text at a time
            return False
        return all(np.array_equal(alone[rows], found) for rows, found in zip(batches, made, strict=True))

    def _build_state(self, name: str, dimension: int) -> EncoderState:
        settings = {
            "file": self._file.digest,
            "tokenizer": self._tokenizer.digest,
            "description": asdict(self._description),
        }
        fingerprint = encoder_fingerprint(self.kind, settings, {})
        return EncoderState(self.kind, name, dimension, fingerprint, settings, {})


def _plan_batches(tokens: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Put texts with equally many tokens into batches; each batch is a list of row numbers."""
    alike: dict[int, list[int]] = {}
    for row, text in enumerate(tokens):
        alike.setdefault(len(text), []).append(row)
    return [rows[block] for rows in alike.values() for block in row_blocks(len(rows), size)]


def _pool_tokens(
    output: NDArray[Any], mask: NDArray[np.int64], description: TextDescription, n: int
) -> NDArray[Any]:
    """Reduce an (n, d) or (n, tokens, d) output to (n, d) rows."""
    if output.ndim == 2 and len(output) == n:
        return output
    if output.ndim == 3 and output.shape[:2] == mask.shape and description.pool != "none":
        if description.pool == "first":
            return output[:, 0]
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((output * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1))
    raise InvalidInput(
        f"the output {description.output!r} has shape {output.shape} for {n} texts of {mask.shape[1]} "
        "tokens, "
        'expected one vector for each; name another output, or set "pool" to "mean" (of all tokens) or '
        '"first"'
    )


def _restore_description(
    state: EncoderState, file: onnx_model.OnnxFile, tokenizer: TextTokenizer
) -> TextDescription:
    """Restore the description in a model's file, checked like any other."""
    fields = state.settings.get("description")
    if not isinstance(fields, Mapping) or set(fields) != set(TextDescription.__dataclass_fields__):
        raise InvalidInput(
            f"the model does not say how texts are prepared for {state.name!r}: it is damaged; fit again"
        )
    return describe_network(file, tokenizer, fields, state.name)
