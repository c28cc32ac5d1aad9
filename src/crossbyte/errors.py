"""Everything crossbyte raises on purpose, as one tree.

::

    CrossbyteError
    ├── InvalidInput (ValueError)        an argument is not what was asked for
    │   └── NotFinite                    NaN or infinity, with its row and column
    ├── NotFitted (sklearn NotFittedError)   the model has not learned anything yet
    ├── NumericalError (ArithmeticError) our own result is not finite: a fault to report
    ├── FitInterrupted (KeyboardInterrupt)   Ctrl-C during fit; the model is as it was before
    └── ModelFileError (OSError)         a model file cannot be used
        ├── ForeignModelFile             not a crossbyte model at all
        ├── TruncatedModelFile           ends too early
        ├── DamagedModelFile             contents do not match their digest
        └── NewerModelFile               written by a later format

A message says what was expected, what came, and what to do.
"""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

__all__ = [
    "CrossbyteError",
    "DamagedModelFile",
    "FitInterrupted",
    "ForeignModelFile",
    "InvalidInput",
    "ModelFileError",
    "NewerModelFile",
    "NotFinite",
    "NotFitted",
    "NumericalError",
    "TruncatedModelFile",
]


class CrossbyteError(Exception):
    """Base of every error that crossbyte raises on purpose."""


class InvalidInput(CrossbyteError, ValueError):
    """An argument is not what was asked for."""


class NotFinite(InvalidInput):
    """NaN or infinity in an array; the message names its row and column."""


class NotFitted(CrossbyteError, NotFittedError):
    """A learned attribute was asked of a model that has not been fitted."""


class NumericalError(CrossbyteError, ArithmeticError):
    """A result of our own is not finite; please report it with the parameters used."""


class FitInterrupted(CrossbyteError, KeyboardInterrupt):
    """Ctrl-C during ``fit``; the model is exactly as it was before the call."""


class ModelFileError(CrossbyteError, OSError):
    """A model file cannot be used."""


class ForeignModelFile(ModelFileError):
    """The file is not a crossbyte model."""


class TruncatedModelFile(ModelFileError):
    """The file ends before its own header says it should."""


class DamagedModelFile(ModelFileError):
    """The contents do not match the digest stored with them."""


class NewerModelFile(ModelFileError):
    """The file was written in a format that this version does not know."""
