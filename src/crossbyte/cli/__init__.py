"""The command line: one place each for options, input, output and errors, and the commands."""
