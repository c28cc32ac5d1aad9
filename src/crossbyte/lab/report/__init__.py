"""The laboratory's report: the paper's tables and figures, and more."""
