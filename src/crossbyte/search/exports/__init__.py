"""Doors to other systems: FAISS, vectors as .npy and Parquet, TREC runs."""
