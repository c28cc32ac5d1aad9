"""Keep a model's documents in one file: add, change and search them."""
