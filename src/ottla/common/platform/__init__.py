"""Interfaces to operating system and event loop: clock, disk, connections, timers. `ottla.app` implements them."""
