"""Implement the compared systems behind one protocol, one published method in one file where it can be."""
