"""The compared systems, one file each, behind one protocol."""
