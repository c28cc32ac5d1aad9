"""Decode users' images in child processes, within limits of memory, time and pixels."""
