"""Write an index out: to FAISS, as vectors, as TREC runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte.index.export.faiss_index import export_faiss, faiss_distances, faiss_queries
    from crossbyte.index.export.trec import write_trec
    from crossbyte.index.export.vectors import export_vectors

__all__ = [
    "export_faiss",
    "export_vectors",
    "faiss_distances",
    "faiss_queries",
    "write_trec",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "export_faiss": "crossbyte.index.export.faiss_index",
        "export_vectors": "crossbyte.index.export.vectors",
        "faiss_distances": "crossbyte.index.export.faiss_index",
        "faiss_queries": "crossbyte.index.export.faiss_index",
        "write_trec": "crossbyte.index.export.trec",
    },
)
