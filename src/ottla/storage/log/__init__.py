"""One partition's log: appends, reads, truncation, retention bounds, producer state."""
