"""Demonstrate crossbyte on icons or generated scenes, from files to answers."""
