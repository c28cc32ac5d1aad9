"""Define a run, everything that decides a result, and keep results: one JSON file per run.

Files are written in one step and read with distrust.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from crossbyte._fs import replace_file
from crossbyte._json import canonical_json, parse_json
from crossbyte.errors import InvalidInput

FORMAT = 1
SIDE = "side"
"""The variant of protocol D whose documents are coded from the searched side alone."""


@dataclass(frozen=True)
class Run:
    """One system on one collection by one protocol.

    Attributes
    ----------
    data : str
        Name of the collection.
    data_digest : str
        Digest of its contents: a run on other features is another run.
    protocol : str
        ``"A"`` to ``"D"``, or ``"V"``, ``"P"`` and ``"L"`` for a validation part of the training documents.
    method : str
        Key of the system.
    bits, seed : int
    variant : str
        An ablation or another setting, such as ``"gamma=0"``; empty for the plain system.
    similarity : str
        What the system is taught with.
    parameters : dict
        Those that differ from the system's own defaults.
    full : bool
        Without the limits of systems that take too long.
    """

    data: str
    data_digest: str
    protocol: str
    method: str
    bits: int
    seed: int
    variant: str = ""
    similarity: str = "pairs"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False

    @property
    def digest(self) -> str:
        """32 hexadecimal digits of everything that decides the result."""
        return hashlib.blake2b(canonical_json(self._document()).encode(), digest_size=16).hexdigest()

    @property
    def file_name(self) -> str:
        """Name of the result file: readable first, then enough of the digest to tell settings apart."""
        parts = [self.data, self.protocol, self.method, self.variant, str(self.bits), str(self.seed)]
        readable = "-".join(re.sub(r"[^\w.=+-]+", "_", part) for part in parts if part)
        return f"{readable}-{self.digest[:8]}.json"

    @property
    def fit_key(self) -> str:
        """The same for runs that need only one fit between them, if they learn from the same documents."""
        own = {"protocol": "", "variant": ""}
        return canonical_json(self._document() | own)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a reader of tables tells runs apart by: everything but parameters and digests."""
        return self.data, self.protocol, self.method, self.variant, self.bits, self.seed, self.similarity

    def to_dict(self) -> dict[str, Any]:
        """Its part of a result file."""
        return {name: value for name, value in self._document().items() if name != "data_digest"}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], data_digest: str) -> Self:
        """Read what :meth:`to_dict` wrote."""
        return cls(data_digest=data_digest, **document)

    def __str__(self) -> str:
        variant = f" {self.variant}" if self.variant else ""
        return f"{self.method}{variant}, {self.bits} bits, protocol {self.protocol}, seed {self.seed}"

    def _document(self) -> dict[str, Any]:
        return asdict(self) | {"parameters": dict(self.parameters)}


TASKS = ("image-to-text", "text-to-image", "text-to-text")
"""Names of tasks in the order of tables; the last one is only in protocol C."""

_MAPPINGS = ("about", "data", "versions", "seconds", "scores", "chance", "details", "per_query")
_PARTS: dict[str, Any] = dict.fromkeys(_MAPPINGS, dict) | {"finished": (int, float)}


@dataclass(frozen=True, eq=False)
class Result:
    """What one run found.

    Attributes
    ----------
    run : Run
    about : dict
        What the system declares of itself.
    data : dict
        Name, digest and sizes of the collection under this protocol.
    versions, seconds, details : dict
    scores, chance : dict of task to dict
        By the names of metrics; what a random order would score beside it.
    per_query : dict of task to dict of lists
    finished : float
        When, in seconds since 1970.
    """

    run: Run
    about: Mapping[str, Any]
    data: Mapping[str, Any]
    versions: Mapping[str, str]
    seconds: Mapping[str, float]
    scores: Mapping[str, Mapping[str, Any]]
    chance: Mapping[str, Mapping[str, Any]]
    details: Mapping[str, Any]
    per_query: Mapping[str, Mapping[str, Any]]
    finished: float

    @property
    def tasks(self) -> list[str]:
        """Its tasks, in the order of tables."""
        return [task for task in TASKS if task in self.scores]

    def score(self, metric: str, task: str | None = None) -> float | None:
        """One figure; the mean over tasks if none is named, and None where it was not measured."""
        found = [self.scores[name].get(metric) for name in ([task] if task else self.tasks)]
        numbers = [float(value) for value in found if value is not None]
        return sum(numbers) / len(numbers) if numbers and len(numbers) == len(found) else None

    def to_dict(self) -> dict[str, Any]:
        """The document of the file."""
        parts = {name: getattr(self, name) for name in _PARTS}
        return {"format": FORMAT, "run": self.run.to_dict(), **parts}


def runs_folder(directory: Path) -> Path:
    """Name the folder that holds the results of an evaluation."""
    return directory / "runs"


def write_result(directory: Path, result: Result) -> Path:
    """Write one result; whatever happens, there is a whole file or none."""
    folder = runs_folder(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / result.run.file_name
    replace_file(str(path), (canonical_json(result.to_dict()) + "\n").encode())
    return path


def read_result(path: Path) -> Result:
    """Read one result.

    Raises
    ------
    InvalidInput
        The file is damaged, of another format, or no result.
    """
    try:
        return _parse_result(parse_json(path.read_bytes().decode()))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"{path}: expected a result of an evaluation, got something else ({type(error).__name__}: "
            f"{error}); remove the file, and run the evaluation again"
        ) from error


def read_results(directory: Path) -> list[Result]:
    """Read all results of an evaluation, by file name; of two that differ only in parameters, the later.

    Raises
    ------
    InvalidInput
        There are none, or one of them is damaged.
    """
    paths = result_paths(directory)
    if not paths:
        raise no_results_error(directory)
    return keep_latest(map(read_result, paths))


def result_paths(directory: Path) -> list[Path]:
    """List the result files of an evaluation, by name."""
    return sorted(runs_folder(directory).glob("*.json"))


def no_results_error(directory: Path, found: str = "none") -> InvalidInput:
    """Make the error for a folder without a readable result; ``found`` says what is there instead."""
    return InvalidInput(
        f"{directory}: expected results of an evaluation in its folder runs, got {found}; "
        "make some with `crossbyte evaluate DATA --out DIR`"
    )


def keep_latest(results: Iterable[Result]) -> list[Result]:
    """Keep, of results that differ only in parameters, the one finished last; in the order they came."""
    kept: dict[tuple[Any, ...], Result] = {}
    for result in results:
        known = kept.get(result.run.identity)
        if known is None or known.finished <= result.finished:
            kept[result.run.identity] = result
    return list(kept.values())


def _parse_result(document: Any) -> Result:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"expected format {FORMAT}")
    for name, kind in _PARTS.items():
        if not isinstance(document[name], kind):
            raise TypeError(f"{name} is no {kind}")
    run = Run.from_dict(document["run"], document["data"]["digest"])
    return Result(run=run, **{name: document[name] for name in _PARTS})
