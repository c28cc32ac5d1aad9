"""Export an index to FAISS, to vectors, to TREC runs and to lists."""
