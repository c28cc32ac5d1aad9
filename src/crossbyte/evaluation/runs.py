"""A run: everything that decides a result, and the name of its file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from crossbyte.strict_json import canonical_json

__all__ = ["FORMAT", "SIDE", "Run"]

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
        Of its contents: a run on other features is another run.
    protocol : str
        ``"A"`` to ``"D"``, or ``"V"`` and ``"P"`` for a validation part of the training documents.
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
