"""Kills a process at every step that it takes on a disk; see driver.py."""
