"""The quality report: as a value, in plain words, and as a page."""
