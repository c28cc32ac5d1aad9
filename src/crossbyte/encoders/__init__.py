"""Raw pictures and texts to features: one small protocol, and the encoders behind it."""
