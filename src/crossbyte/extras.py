"""Import optional libraries, or say how to install them."""

from __future__ import annotations

import importlib.util
from typing import Any

from crossbyte.errors import MissingExtra

_LIBRARIES = {
    "faiss": ("FAISS", "faiss"),
    "fontawesomefree": ("the Font Awesome icons", "demo"),
    "onnxruntime": ("ONNX Runtime", "onnx"),
    "open_clip": ("open_clip", "clip"),
    "pyarrow": ("pyarrow", "arrow"),
    "ray": ("Ray", "ray"),
    "sentence_transformers": ("sentence-transformers", "sentences"),
    "tokenizers": ("tokenizers", "onnx"),
}
"""What people call each module, and the extra that brings it."""


def import_extra(module: str, who: str) -> Any:
    """Import an optional module, or one inside it; ``who`` begins the message, as in ``"a cluster needs"``.

    Raises
    ------
    MissingExtra
        With the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing_extra(module, who) from error


def is_installed(module: str) -> bool:
    """Whether an optional module is there; it is not imported."""
    return importlib.util.find_spec(module) is not None


def check_installed(module: str, who: str) -> None:
    """Check that an optional module is installed, without importing it.

    Raises
    ------
    MissingExtra
        With the command that installs it.
    """
    if not is_installed(module):
        raise _missing_extra(module, who)


def _missing_extra(module: str, who: str) -> MissingExtra:
    library, extra = _LIBRARIES[module.partition(".")[0]]
    return MissingExtra(f"{who} {library}; install it with: pip install 'crossbyte[{extra}]'")
