"""Search some cells only: an inverted file (IVF) over the common space, with a router learned from pairs."""
