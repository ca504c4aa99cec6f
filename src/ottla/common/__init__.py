"""Errors, ids, config definitions, and interfaces that every layer receives: clock, randomness, disk, channel."""
