"""Measurements behind the numbers in the documentation; run a module with ``python -m benchmarks.<name>``."""
