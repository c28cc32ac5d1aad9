"""Parameters that were chosen before, so that a table needs no choosing: per collection, system and length.

The form, of ``recorded.json`` here and of what ``crossbyte tune`` writes::

    {"wiki": {"digest": "…", "chosen": "how, in words",
              "methods": {"cmfh": {"*": {"balance": 0.5}, "128": {"balance": 0.3}},
                          "cvh/labels": {"*": {}}}}}

``"*"`` holds for every length, and a length's own entry comes on top. ``"key/similarity"`` goes before
``"key"``. A digest says which features they were chosen on; on others they are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from crossbyte.errors import InvalidInput
from crossbyte.strict_json import parse_json

__all__ = ["Recorded", "read_parameters", "recorded_for"]

_Methods = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Recorded:
    """Chosen parameters for one collection.

    Attributes
    ----------
    methods : mapping
        Key of a system, or key/similarity, to length or ``"*"`` to parameters.
    source : str
        Where they come from, for people.
    note : str
        Why they are not used, or what is odd about them; empty if all is well.
    """

    methods: _Methods = field(default_factory=dict)
    source: str = "the systems' own defaults"
    note: str = ""

    def parameters(self, key: str, bits: int, similarity: str) -> dict[str, Any]:
        """Give the parameters of one system at one length; none where none were chosen."""
        by_length = self.methods.get(f"{key}/{similarity}", self.methods.get(key, {}))
        return {**by_length.get("*", {}), **by_length.get(str(bits), {})}


def recorded_for(name: str, digest: str) -> Recorded:
    """Give what is recorded in the package for a collection; nothing if its contents are other ones."""
    text = files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    known = _checked(parse_json(text), "recorded.json").get(name)
    if known is None:
        return Recorded()
    if known.get("digest") != digest:
        return Recorded(note=f"the recorded parameters are for other features named {name}; not used")
    return Recorded(known["methods"], "the recorded parameters")


def read_parameters(path: Path, name: str, digest: str) -> Recorded:
    """Read a user's file of the same form.

    Raises
    ------
    InvalidInput
        It is not of this form, or has nothing for this collection.
    """
    try:
        document = _checked(parse_json(path.read_bytes().decode()), str(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path}: expected JSON, got something else ({error})") from error
    if name not in document:
        there = ", ".join(document) or "nothing"
        raise InvalidInput(
            f"{path}: expected parameters for {name!r}, got them for {there}; tune on these data"
        )
    known = document[name]
    odd = known.get("digest") not in (None, digest)
    note = f"the parameters in {path} were chosen on other features named {name}" if odd else ""
    return Recorded(known["methods"], str(path), note)


def _checked(document: Any, name: str) -> dict[str, dict[str, Any]]:
    """Refuse what is not of the form, before any run."""
    entries = document.values() if isinstance(document, dict) else [None]
    if not all(isinstance(entry, dict) and _are_methods(entry.get("methods")) for entry in entries):
        raise InvalidInput(
            f'{name}: expected {{"data": {{"methods": {{"key": {{"*": {{…}}}}}}}}}}, got something else; '
            "docs/evaluation.md shows the form"
        )
    return dict(document)


def _are_methods(methods: Any) -> bool:
    """Whether it is a mapping of mappings of mappings."""
    return isinstance(methods, dict) and all(
        isinstance(by_length, dict) and all(isinstance(each, dict) for each in by_length.values())
        for by_length in methods.values()
    )
