"""Define the commands, one module each; small ones of one subject share a module."""
