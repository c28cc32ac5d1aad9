"""Demonstrate crossbyte on icons or scenes, from files to answers."""
