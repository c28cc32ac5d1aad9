"""Search many files as one index: shards in this process or on Ray, scatter and gather."""
