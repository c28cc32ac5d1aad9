"""What a model is worth, measured on held-out pairs: offsets, probabilities, and the quality report."""
