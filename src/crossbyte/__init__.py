"""Search images by text and texts by image, in 2 to 64 bytes per item.

Names are imported when first used, so that ``import crossbyte`` alone stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte._not_fitted import NotFitted
    from crossbyte.data.captions.layout import read_raw
    from crossbyte.data.ondisk import open_rows
    from crossbyte.errors import (
        ClusterError,
        CrossbyteError,
        FitInterrupted,
        IndexFileError,
        InvalidInput,
        ModelFileError,
        NotCalibrated,
        NumericalError,
    )
    from crossbyte.gallery.build import build_gallery
    from crossbyte.gallery.gallery import Gallery, NewDocument
    from crossbyte.index.explain.explanation import Explanation
    from crossbyte.index.hits import Document, Hits
    from crossbyte.index.index import Index
    from crossbyte.index.plan.pilot import draw_pairs
    from crossbyte.index.plan.plan import plan
    from crossbyte.model.estimator import CMCQ
    from crossbyte.model.pair_audit import audit_pairs
    from crossbyte.model.selection import select_by_labels, select_by_pairs
    from crossbyte.report.model_report import Report
    from crossbyte.sharding.index import ShardedIndex
    from crossbyte.sharding.split import split_index

__version__ = "0.7.0"

__all__ = [
    "CMCQ",
    "ClusterError",
    "CrossbyteError",
    "Document",
    "Explanation",
    "FitInterrupted",
    "Gallery",
    "Hits",
    "Index",
    "IndexFileError",
    "InvalidInput",
    "ModelFileError",
    "NewDocument",
    "NotCalibrated",
    "NotFitted",
    "NumericalError",
    "Report",
    "ShardedIndex",
    "__version__",
    "audit_pairs",
    "build_gallery",
    "draw_pairs",
    "open_rows",
    "plan",
    "read_raw",
    "select_by_labels",
    "select_by_pairs",
    "split_index",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CMCQ": "crossbyte.model.estimator",
        "ClusterError": "crossbyte.errors",
        "CrossbyteError": "crossbyte.errors",
        "Document": "crossbyte.index.hits",
        "Explanation": "crossbyte.index.explain.explanation",
        "FitInterrupted": "crossbyte.errors",
        "Gallery": "crossbyte.gallery.gallery",
        "Hits": "crossbyte.index.hits",
        "Index": "crossbyte.index.index",
        "IndexFileError": "crossbyte.errors",
        "InvalidInput": "crossbyte.errors",
        "ModelFileError": "crossbyte.errors",
        "NewDocument": "crossbyte.gallery.gallery",
        "NotCalibrated": "crossbyte.errors",
        "NotFitted": "crossbyte._not_fitted",
        "NumericalError": "crossbyte.errors",
        "Report": "crossbyte.report.model_report",
        "ShardedIndex": "crossbyte.sharding.index",
        "audit_pairs": "crossbyte.model.pair_audit",
        "build_gallery": "crossbyte.gallery.build",
        "draw_pairs": "crossbyte.index.plan.pilot",
        "open_rows": "crossbyte.data.ondisk",
        "plan": "crossbyte.index.plan.plan",
        "read_raw": "crossbyte.data.captions.layout",
        "select_by_labels": "crossbyte.model.selection",
        "select_by_pairs": "crossbyte.model.selection",
        "split_index": "crossbyte.sharding.split",
    },
)
