"""Keep an index in one SQLite file: commits, checksums, the writer's lock."""
