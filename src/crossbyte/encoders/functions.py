"""Encode images or texts with a user's own function."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from scipy import sparse

from crossbyte.arrays import Raw
from crossbyte.compute.executor import row_blocks
from crossbyte.encoders.base import EncoderState, check_picture, check_rows, encode_texts, encoder_fingerprint
from crossbyte.errors import InvalidInput

_BATCH = 64


class FunctionEncoder:
    """Encode items with a function that the user names; it gets lists of at most 64.

    Parameters
    ----------
    function : callable
        Takes a list of (height, width, 3) uint8 arrays, or of str; returns an array or a sparse matrix with
        one row for each. A row may not depend on the others.
    name : str
        ``module:function``.
    side : {"image", "text"}
    """

    kind = "function"

    def __init__(self, function: Callable[[list[Any]], Any], name: str, side: str) -> None:
        self._function, self._name, self._side = function, name, side
        probe: Any = np.zeros((32, 32, 3), dtype=np.uint8) if side == "image" else "a photograph"
        dimension = check_rows(self._call([probe]), 1, name).shape[1]
        settings = {
            "function": name,
            "version": _find_version(function),
            "side": side,
            "dimension": dimension,
        }
        fingerprint = encoder_fingerprint(self.kind, settings, {})
        self._state = EncoderState(self.kind, name, dimension, fingerprint, settings, {})

    @classmethod
    def from_spec(cls, spec: str, side: str) -> Self:
        """Import the module, also from the current folder, and use its function."""
        module_name, _, name = spec.partition(":")
        function = getattr(_import_module(module_name, spec), name, None)
        if not callable(function):
            raise InvalidInput(f"{spec}: the module {module_name} has no function {name}")
        return cls(function, spec, side)

    @property
    def state(self) -> EncoderState:
        """The function's name, and its version or a digest of its source."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode items with the function.

        Parameters
        ----------
        items : sequence
            Pictures as (height, width, 3) uint8 arrays, or texts as str.

        Returns
        -------
        (n, dimension) float32 ndarray or csr_matrix

        Raises
        ------
        InvalidInput
            The function returned another shape, or a value that is not finite.
        """
        if self._side == "text":
            return encode_texts(items, self._encode_items, self._state.dimension)
        return self._encode_items([check_picture(item) for item in items])

    def _encode_items(self, items: Sequence[Any]) -> Raw:
        if not items:
            return np.zeros((0, self._state.dimension), dtype=np.float32)
        parts: list[Any] = [self._encode_batch(items[rows]) for rows in row_blocks(len(items), _BATCH)]
        if any(sparse.issparse(part) for part in parts):
            return sparse.csr_matrix(sparse.vstack([sparse.csr_matrix(part) for part in parts]))
        return np.asarray(np.concatenate(parts))

    def _encode_batch(self, items: Sequence[Any]) -> Raw:
        return check_rows(self._call(list(items)), len(items), self._name, self._state.dimension)

    def _call(self, items: list[Any]) -> Any:
        try:
            return self._function(items)
        except Exception as error:
            raise InvalidInput(
                f"the encoder {self._name} failed on a list of {len(items)} {self._side}s: "
                f"{type(error).__name__}: {error}"
            ) from error


def _import_module(name: str, spec: str) -> ModuleType:
    """Import a module, also from the current folder."""
    importlib.invalidate_caches()
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"{spec}: the module {name} cannot be imported ({error}); it must be installed, or lie in the "
            "current folder"
        ) from error
    finally:
        if added:
            sys.path.remove(here)


def _find_version(function: Any) -> str:
    """Find the version that the user gives, or else digest the function's module."""
    version = getattr(function, "version", None)
    if version is not None:
        return str(version)
    try:
        source = Path(inspect.getsourcefile(function) or "").read_bytes()
    except (OSError, TypeError):
        source = repr(type(function)).encode()
    return hashlib.blake2b(source, digest_size=16).hexdigest()
