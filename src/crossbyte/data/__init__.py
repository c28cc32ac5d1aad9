"""Read features, captions and images from users' files, and generate data to try things on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte.data.captions.layout import is_raw, read_raw
    from crossbyte.data.captions.raw_documents import RawDocuments, Skipped
    from crossbyte.data.contents import Entry
    from crossbyte.data.dataset import Dataset
    from crossbyte.data.images.formats import Picture, PictureLimits
    from crossbyte.data.images.reader import PictureReader
    from crossbyte.data.ondisk import open_rows
    from crossbyte.data.readers import describe, read_dataset, read_features, read_rows
    from crossbyte.data.safe_open import Limits
    from crossbyte.data.scenes import make_scenes, write_scenes
    from crossbyte.data.synthetic import make_labelled_pairs, make_pairs, nus_wide_like

__all__ = [
    "Dataset",
    "Entry",
    "Limits",
    "Picture",
    "PictureLimits",
    "PictureReader",
    "RawDocuments",
    "Skipped",
    "describe",
    "is_raw",
    "make_labelled_pairs",
    "make_pairs",
    "make_scenes",
    "nus_wide_like",
    "open_rows",
    "read_dataset",
    "read_features",
    "read_raw",
    "read_rows",
    "write_scenes",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Dataset": "crossbyte.data.dataset",
        "Entry": "crossbyte.data.contents",
        "Limits": "crossbyte.data.safe_open",
        "Picture": "crossbyte.data.images.formats",
        "PictureLimits": "crossbyte.data.images.formats",
        "PictureReader": "crossbyte.data.images.reader",
        "RawDocuments": "crossbyte.data.captions.raw_documents",
        "Skipped": "crossbyte.data.captions.raw_documents",
        "describe": "crossbyte.data.readers",
        "is_raw": "crossbyte.data.captions.layout",
        "make_labelled_pairs": "crossbyte.data.synthetic",
        "make_pairs": "crossbyte.data.synthetic",
        "make_scenes": "crossbyte.data.scenes",
        "nus_wide_like": "crossbyte.data.synthetic",
        "open_rows": "crossbyte.data.ondisk",
        "read_dataset": "crossbyte.data.readers",
        "read_features": "crossbyte.data.readers",
        "read_raw": "crossbyte.data.captions.layout",
        "read_rows": "crossbyte.data.readers",
        "write_scenes": "crossbyte.data.scenes",
    },
)
