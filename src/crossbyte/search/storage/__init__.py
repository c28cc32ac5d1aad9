"""The file of an index: records and payloads in one SQLite database, all or nothing."""
