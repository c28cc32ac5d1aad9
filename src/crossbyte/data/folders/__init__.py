"""Pairs from files: a folder of pictures with captions, in the layouts that people have."""

from crossbyte.data.folders.documents import RawDocuments, Skipped
from crossbyte.data.folders.reading import is_raw, read_raw

__all__ = ["RawDocuments", "Skipped", "is_raw", "read_raw"]
