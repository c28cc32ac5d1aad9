"""What an encoder is, and what of it goes into a model's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from crossbyte.arrays import Raw

__all__ = ["SIDES", "Encoder", "EncoderState"]

SIDES = ("image", "text")


class EncoderState(NamedTuple):
    """An encoder as data: enough to make it again, or to recognise it when the user brings it again.

    Attributes
    ----------
    kind : str
        Which class makes it again: a key of ``encoders.restoring``.
    name : str
        What people call it.
    dimension : int
        Width of its features.
    fingerprint : str
        Hexadecimal digest of everything that decides its features; equal ones encode equally.
    settings : dict
        JSON; no path of a machine.
    arrays : dict of str to ndarray
        Numbers that it learned; empty for encoders whose weights are in files of their own.
    """

    kind: str
    name: str
    dimension: int
    fingerprint: str
    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class Encoder(Protocol):
    """Map items of one side to features. An item gives the same row, whatever it is encoded with."""

    @property
    def state(self) -> EncoderState:
        """State that goes into the model's file."""
        ...

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode a batch.

        Parameters
        ----------
        items : sequence
            Pictures as (height, width, 3) uint8 RGB arrays of any size, or texts as str.

        Returns
        -------
        (n, dimension) float32 ndarray or csr_matrix
            A text that says nothing (empty, no letters) is a row of zeros.
        """
        ...
