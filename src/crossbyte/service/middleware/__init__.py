"""Check, limit and frame every request."""
