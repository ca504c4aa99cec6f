"""Handlers for records of partitions: produce, fetch, deletion and offset lookup."""
