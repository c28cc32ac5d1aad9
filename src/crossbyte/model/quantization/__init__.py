"""Quantize points additively: codebooks, codes, distance tables, collaborative training."""
