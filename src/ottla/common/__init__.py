"""Errors, ids, config definitions, and what every layer takes as an argument: clock, randomness, disk, channel."""
