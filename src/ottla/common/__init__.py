"""Errors, ids, config definitions, and the Clock, Rng, Disk and Channel protocols that every layer takes as arguments."""
