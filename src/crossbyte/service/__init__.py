"""Serve an index over HTTP."""
