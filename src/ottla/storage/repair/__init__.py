"""Checks of inactive segments, and replacement of damaged ones by those of another replica."""
