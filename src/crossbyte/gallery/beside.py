"""The folder beside an index: what is good to have, and can be made again or done without."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte._fs import replace_file
from crossbyte.encoders.protocol import SIDES
from crossbyte.search.ids import Id
from crossbyte.strict_json import parse_json

__all__ = ["Beside"]

_MAX_JSON_BYTES = 2**24  # far above what is ever written


class Beside(NamedTuple):
    """Names of the files that belong to an index; none of them need be there.

    Attributes
    ----------
    folder : Path
        ``photos.cb.files`` for ``photos.cb``.
    """

    folder: Path

    @classmethod
    def of(cls, index: str | os.PathLike[str]) -> Beside:
        """Of the index of this path, whether it is there yet or not."""
        return cls(Path(os.path.realpath(os.fspath(index)) + ".files"))

    @property
    def thumbnails(self) -> Path:
        """Small pictures by document id."""
        return self.folder / "thumbnails.sqlite"

    @property
    def features(self) -> Path:
        """Features by encoder and content: encoding goes on where it was."""
        return self.folder / "features.sqlite"

    def make(self) -> None:
        """Make the folder."""
        self.folder.mkdir(exist_ok=True)

    def local_encoders(self) -> dict[str, str]:
        """Paths of ONNX files on this machine, by side; never anything that is imported."""
        found = _read(self.folder / "local.json")
        paths = found if isinstance(found, dict) else {}
        return {side: paths[side] for side in SIDES if _is_onnx(paths.get(side))}

    def keep_local_encoders(self, specs: Mapping[str, str]) -> None:
        """Remember where ONNX files lie; other encoders are named by the model, or by the user."""
        paths = {side: os.path.abspath(spec) for side, spec in specs.items() if _is_onnx(spec)}
        self.make()
        _write(self.folder / "local.json", paths)

    def audit(self) -> dict[str, Any] | None:
        """What was kept of the audit of the pairs."""
        found = _read(self.folder / "audit.json")
        return found if isinstance(found, dict) and isinstance(found.get("rows"), list) else None

    def training(self) -> list[Id] | None:
        """Ids of the documents that the model was fitted on, row by row; two captions make two rows."""
        found = _read(self.folder / "training.json")
        return found if isinstance(found, list) and all(isinstance(id, str | int) for id in found) else None

    def keep_training(self, ids: list[Id]) -> None:
        """Keep which documents the model was fitted on."""
        self.make()
        _write(self.folder / "training.json", ids)

    def keep_audit(self, document: dict[str, Any] | None) -> None:
        """Keep an audit, in the place of an earlier one; None for no audit."""
        if document is None:
            (self.folder / "audit.json").unlink(missing_ok=True)
        else:
            self.make()
            _write(self.folder / "audit.json", document)


def _is_onnx(spec: Any) -> bool:
    """Whether it names an ONNX file, or its description: both are read, never imported."""
    return isinstance(spec, str) and spec.lower().endswith((".onnx", ".json"))


def _read(path: Path) -> Any:
    """A JSON document; None if it is not there or no JSON, since everything works without it."""
    try:
        with path.open("rb") as stream:
            return parse_json(stream.read(_MAX_JSON_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return None


def _write(path: Path, document: Any) -> None:
    replace_file(str(path), json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1).encode())
