"""Approximate search by an inverted file (IVF), which users know as cells."""
