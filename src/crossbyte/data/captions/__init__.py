"""Pairs from files: a folder of pictures with captions, in the layouts that people have."""

from crossbyte.data.captions.layout import is_raw, read_raw
from crossbyte.data.captions.raw_documents import RawDocuments, Skipped

__all__ = ["RawDocuments", "Skipped", "is_raw", "read_raw"]
