"""The commands of the command line, one module each; heavy libraries are imported when a command runs."""
