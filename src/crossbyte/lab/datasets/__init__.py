"""Collections to evaluate on: pairs with a training and a query part, read from files or generated."""

from crossbyte.lab.datasets.collection import Collection, Part
from crossbyte.lab.datasets.loader import read_collection

__all__ = ["Collection", "Part", "read_collection"]
