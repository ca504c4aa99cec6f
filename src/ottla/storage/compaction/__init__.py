"""Log compaction: retains the latest record of each key."""
