"""An index of many files: shards in this process, or each in a Ray actor, that answer as one index would."""
