"""The report of an evaluation: the paper's tables and figures, made from result files alone."""
