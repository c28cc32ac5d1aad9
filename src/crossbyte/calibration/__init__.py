"""Measure a model on held-out pairs: probabilities, offsets, baselines."""
