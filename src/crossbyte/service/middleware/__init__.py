"""Check, limit and complete every request and answer: tokens, sizes, concurrency, headers."""
