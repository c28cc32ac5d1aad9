"""Search approximately by an inverted file (IVF), which users know as cells."""
