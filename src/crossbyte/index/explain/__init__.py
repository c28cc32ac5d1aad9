"""Explain why a document is near a query."""
