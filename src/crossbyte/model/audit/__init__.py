"""Which pairs look wrong, and which rows repeat each other."""
