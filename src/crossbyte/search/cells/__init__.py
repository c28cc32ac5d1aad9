"""Cells: an inverted file over the common space, whose choice of cells is learned from pairs."""
