"""Search images by text and texts by image, in 2 to 16 bytes per item.

Names are imported when first used, so that ``import crossbyte`` alone stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossbyte.cluster.sharded import ShardedIndex
    from crossbyte.cluster.splitting import split_index
    from crossbyte.data.folders.reading import read_raw
    from crossbyte.data.stored.opening import open_rows
    from crossbyte.errors import (
        ClusterError,
        CrossbyteError,
        FitInterrupted,
        IndexFileError,
        InvalidInput,
        ModelFileError,
        NotCalibrated,
        NotFitted,
        NumericalError,
    )
    from crossbyte.gallery.building import build_gallery
    from crossbyte.gallery.gallery import Gallery
    from crossbyte.gallery.new_documents import NewDocument
    from crossbyte.model.audit.audit import audit_pairs
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.report.model_report import Report
    from crossbyte.search.explanations.explanation import Explanation
    from crossbyte.search.hits import Document, Hits
    from crossbyte.search.index import Index
    from crossbyte.search.planning.plan import plan

__version__ = "0.6.0"

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
    "open_rows",
    "plan",
    "read_raw",
    "split_index",
]

# Public name -> the module that defines it.
_HOMES = {
    "CMCQ": "crossbyte.model.cmcq",
    "ClusterError": "crossbyte.errors",
    "CrossbyteError": "crossbyte.errors",
    "Document": "crossbyte.search.hits",
    "Explanation": "crossbyte.search.explanations.explanation",
    "FitInterrupted": "crossbyte.errors",
    "Gallery": "crossbyte.gallery.gallery",
    "Hits": "crossbyte.search.hits",
    "Index": "crossbyte.search.index",
    "IndexFileError": "crossbyte.errors",
    "InvalidInput": "crossbyte.errors",
    "ModelFileError": "crossbyte.errors",
    "NewDocument": "crossbyte.gallery.new_documents",
    "NotCalibrated": "crossbyte.errors",
    "NotFitted": "crossbyte.errors",
    "NumericalError": "crossbyte.errors",
    "Report": "crossbyte.report.model_report",
    "ShardedIndex": "crossbyte.cluster.sharded",
    "audit_pairs": "crossbyte.model.audit.audit",
    "build_gallery": "crossbyte.gallery.building",
    "open_rows": "crossbyte.data.stored.opening",
    "plan": "crossbyte.search.planning.plan",
    "read_raw": "crossbyte.data.folders.reading",
    "split_index": "crossbyte.cluster.splitting",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'crossbyte' has no attribute {name!r}; it exports {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, whether imported already or not."""
    return sorted(__all__)
