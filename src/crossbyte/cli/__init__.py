"""The command line: one small module per verb, and one place each for options, input, output and failures."""
