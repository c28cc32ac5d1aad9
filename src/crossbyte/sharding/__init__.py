"""One index over many files: shards in this process or on Ray, scatter and gather."""
