"""Who goes through the blocks, and where rows are kept: threads and memory, scratch files, or Ray."""
