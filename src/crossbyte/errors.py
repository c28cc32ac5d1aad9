"""Define everything that crossbyte raises on purpose, as one tree.

::

    CrossbyteError
    ├── InvalidInput (ValueError)        an argument is not what was asked for
    │   ├── NotFinite                    NaN or infinity, with its row and column
    │   ├── WrongModel                   the index was made with another model
    │   ├── DuplicateId                  an id is there already, or twice in one call
    │   ├── UnknownId                    no document has this id
    │   ├── PayloadTooLarge              a document's payload passes the limit
    │   ├── TooManyFields                payloads bring more fields than an index may have
    │   ├── DataFileError                a file of features or payloads cannot be read, or is refused
    │   │   └── PictureError             a picture cannot be decoded, or is refused
    │   ├── NoEncoder                    raw text or pictures, and nothing at hand that encodes them
    │   ├── WrongEncoder                 an encoder other than the one the model was fitted with
    │   ├── NotCalibrated (AttributeError)   a report or a probability was asked of a model without one
    │   ├── NoPlan                       no setting meets the budget or the wanted recall
    │   └── FilterError                  a filter does not parse
    │       └── UnknownField             a filter names a field that no document has
    ├── NotFitted (sklearn NotFittedError)   the model has not learned anything yet
    ├── MissingExtra (ImportError)       an optional library is not installed; the message says which
    ├── ClusterError (RuntimeError)      a cluster is not there, cannot be used, or was lost
    │   └── TaskDied                     the process of a task died again and again; the cluster is there
    ├── NumericalError (ArithmeticError) our own result is not finite: a fault to report
    ├── FitInterrupted (KeyboardInterrupt)   Ctrl-C during fit; the model is as it was before
    ├── ModelFileError (OSError)         a model file cannot be used
    │   ├── ForeignModelFile             not a crossbyte model at all
    │   ├── TruncatedModelFile           ends too early
    │   ├── DamagedModelFile             contents do not match their digest
    │   └── NewerModelFile               written by a later format
    └── IndexFileError (OSError)         an index file cannot be used, or not like this
        ├── ForeignIndexFile             not a crossbyte index at all
        ├── DamagedIndexFile             contents do not match their checksums
        ├── NewerIndexFile               written by a later format
        ├── IndexExists                  creating would overwrite something
        ├── IndexLocked                  somebody else is writing; the message says who
        ├── IndexBusy                    another process held the file for too long; try again
        ├── StorageFull                  the disk is full; nothing was changed
        ├── StorageFailed                the system failed to read or write
        ├── ReadOnlyIndex                opened for reading, or the system forbids writing
        ├── WriteRefused                 after a fork or a failed commit; open the index again
        ├── StaleReader                  a compaction or merge has passed this reader; call refresh()
        └── ClosedIndex                  used after close()

A message says what was expected, what came, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossbyte._not_fitted import NotFitted

__all__ = [
    "ClosedIndex",
    "ClusterError",
    "CrossbyteError",
    "DamagedIndexFile",
    "DamagedModelFile",
    "DataFileError",
    "DuplicateId",
    "FilterError",
    "FitInterrupted",
    "ForeignIndexFile",
    "ForeignModelFile",
    "IndexBusy",
    "IndexExists",
    "IndexFileError",
    "IndexLocked",
    "InvalidInput",
    "MissingExtra",
    "ModelFileError",
    "NewerIndexFile",
    "NewerModelFile",
    "NoEncoder",
    "NoPlan",
    "NotCalibrated",
    "NotFinite",
    "NotFitted",
    "NumericalError",
    "PayloadTooLarge",
    "PictureError",
    "ReadOnlyIndex",
    "StaleReader",
    "StorageFailed",
    "StorageFull",
    "TaskDied",
    "TooManyFields",
    "TruncatedModelFile",
    "UnknownField",
    "UnknownId",
    "WriteRefused",
    "WrongEncoder",
    "WrongModel",
]


class CrossbyteError(Exception):
    """Base of every error that crossbyte raises on purpose."""


class InvalidInput(CrossbyteError, ValueError):
    """An argument is not what was asked for."""


class NotFinite(InvalidInput):
    """NaN or infinity in an array; the message names its row and column."""


class WrongModel(InvalidInput):
    """The index was made with another model than the one given."""


class DuplicateId(InvalidInput):
    """An id is in the index already, or twice in one call."""


class UnknownId(InvalidInput):
    """No document of the index has this id."""


class PayloadTooLarge(InvalidInput):
    """A payload passes the limit of bytes."""


class TooManyFields(InvalidInput):
    """Payloads bring more fields, or longer names of fields, than an index may have."""


class DataFileError(InvalidInput):
    """A file of features or payloads cannot be read, or is refused; the message names it and says why."""


class PictureError(DataFileError):
    """A picture cannot be decoded, or is refused for its size or its kind."""


class NoEncoder(InvalidInput):
    """Raw text or a picture came, and nothing at hand encodes it."""


class WrongEncoder(InvalidInput):
    """An encoder is not the one that the model was fitted with."""


class NotCalibrated(InvalidInput, AttributeError):
    """A report or a probability was asked of a model that was never calibrated, or not for this."""


class NoPlan(InvalidInput):
    """No setting meets the budget or the wanted recall; the message says the nearest."""


class FilterError(InvalidInput):
    """A filter does not parse; the message shows where."""


class UnknownField(FilterError):
    """A filter names a field that no document has; the message lists those there are."""


class MissingExtra(CrossbyteError, ImportError):
    """An optional library is not installed; the message gives the command that installs it."""


class ClusterError(CrossbyteError, RuntimeError):
    """A cluster is not there, cannot be used, or was lost; the message says what to do."""


class TaskDied(ClusterError):
    """The process of a task died, and again in every retry; the cluster itself is there."""


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


class IndexFileError(CrossbyteError, OSError):
    """An index file cannot be used, or not like this."""


class ForeignIndexFile(IndexFileError):
    """The file is not a crossbyte index."""


class DamagedIndexFile(IndexFileError):
    """Contents do not match the checksums stored with them."""


class NewerIndexFile(IndexFileError):
    """The file was written in a format that this version does not know."""


class IndexExists(IndexFileError):
    """Creating an index here would overwrite something."""


class IndexLocked(IndexFileError):
    """Somebody else is writing to the index; the message says who."""


class IndexBusy(IndexFileError):
    """Another process held the file for too long; trying again may help."""


class StorageFull(IndexFileError):
    """The disk is full; nothing was changed."""


class StorageFailed(IndexFileError):
    """The system failed to read or write the file."""


class ReadOnlyIndex(IndexFileError):
    """The index was opened for reading, or the system forbids writing."""


class WriteRefused(IndexFileError):
    """A handle may not write any more (a fork, a failed commit); open the index again."""


class StaleReader(IndexFileError):
    """A compaction has removed what this reader would read; call ``refresh()``."""


class ClosedIndex(IndexFileError):
    """The index was used after ``close()``."""


def __getattr__(name: str) -> object:
    """Import ``NotFitted`` on first use: its base is scikit-learn's, and takes a second to import."""
    if name != "NotFitted":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from crossbyte._not_fitted import NotFitted

    globals()[name] = NotFitted
    return NotFitted
