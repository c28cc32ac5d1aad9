"""Additive quantizers: codebooks, codes, distance tables, collaborative training."""
