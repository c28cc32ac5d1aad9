"""Write the laboratory's report: the paper's tables and figures, and more, from result files alone."""
