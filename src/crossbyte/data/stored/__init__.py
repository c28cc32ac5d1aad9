"""Features that stay on disk: one side as files, folders of shards or blocks, read a few rows at a time."""
