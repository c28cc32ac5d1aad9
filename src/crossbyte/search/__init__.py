"""The index: one file of coded documents, and the search over it."""
