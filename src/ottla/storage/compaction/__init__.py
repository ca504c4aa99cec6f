"""Log compaction: of the records with a key only the latest stays."""
