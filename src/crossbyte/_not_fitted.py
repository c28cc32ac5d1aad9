"""Define the error with a base outside the standard library; ``crossbyte.errors`` imports it on first use."""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from crossbyte.errors import CrossbyteError


class NotFitted(CrossbyteError, NotFittedError):
    """A learned attribute was asked of a model that has not been fitted."""
