"""Streams: continuous queries over topics, each from a small file, with results exactly once in a table or topic."""
