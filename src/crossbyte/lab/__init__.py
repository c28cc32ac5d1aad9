"""The laboratory: published systems, datasets, protocols, runs and tables.

Nothing but the command line imports it.
"""
