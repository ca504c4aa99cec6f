"""Decisions about cluster, topics and configs: pure handlers that return records."""
