"""Search raw images and words: encoders, documents and an index behind one class."""
