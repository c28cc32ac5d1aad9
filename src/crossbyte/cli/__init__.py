"""The command line: one small module per command, and one place each for options, input, output and failures."""
