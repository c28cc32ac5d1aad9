"""Export an index to FAISS, as vectors, and as TREC runs."""
