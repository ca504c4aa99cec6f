"""A small blocking client for the CLI and for Spark workers; without broker code."""
