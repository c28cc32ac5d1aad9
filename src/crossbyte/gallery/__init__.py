"""An index of raw pictures and texts: encoders, index and thumbnails together."""
