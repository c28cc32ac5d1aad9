"""Run the command line: the program, its options, what it reads and prints."""
