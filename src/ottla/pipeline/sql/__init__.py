"""Queries over tables and topics, by Spark SQL or by DuckDB."""
