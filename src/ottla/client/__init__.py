"""A small blocking client for the CLI and for Spark workers; no broker code."""
