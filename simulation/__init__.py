"""Deterministic simulation of the broker: virtual time, disk and network, seeded faults, and checkers of guarantees."""
