"""A real broker as a subprocess, for anybody's tests."""
