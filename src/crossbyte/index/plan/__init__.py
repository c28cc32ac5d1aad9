"""Predict size, quality and cost before an index is built."""
