"""Start, run and stop of a node: data directories, background work of the log, controlled shutdown."""
