"""Map images and texts to feature vectors."""
