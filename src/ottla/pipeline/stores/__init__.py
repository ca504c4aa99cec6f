"""Stores for the files of a table: a local directory, or a prefix of an object store."""
