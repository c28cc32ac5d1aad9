"""The verbs of the command line, one module each; heavy libraries are imported when a verb runs."""
