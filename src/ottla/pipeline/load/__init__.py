"""Loads of topics into lake tables: planning on the driver, writing in tasks, leases, commits, compaction of files."""
