"""Collections to evaluate on: pairs with a training and a query part, read from files or generated."""

from crossbyte.data.collections.collection import Collection, Part
from crossbyte.data.collections.reading import read_collection

__all__ = ["Collection", "Part", "read_collection"]
