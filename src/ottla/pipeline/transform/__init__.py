"""Decoding of record values: decoders to columns, schemas, and the column names and types that a table accepts."""
