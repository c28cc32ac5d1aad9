"""The compared systems, one published method in one file where it can be, behind one protocol."""
