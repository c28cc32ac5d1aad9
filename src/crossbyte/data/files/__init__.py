"""Users' files, which may be damaged or hostile: arrays, payloads and whole datasets, read within limits."""
