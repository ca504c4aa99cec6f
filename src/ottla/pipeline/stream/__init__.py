"""Streams: queries over topics that go on, each from a small file, with results exactly once in a table or topic."""
