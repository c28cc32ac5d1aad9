"""Additive quantization of the common space: codebooks, codes, and the two sides together."""
