"""The index: documents of a model in one file, added, changed and searched."""
