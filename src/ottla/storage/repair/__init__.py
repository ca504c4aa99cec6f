"""Checks of logs that are at rest, and replacement of damaged segments by those of another replica."""
