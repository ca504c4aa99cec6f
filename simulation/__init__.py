"""The broker in a simulated world: virtual time, disk and network, faults from a seed, checkers of what is promised."""
