"""Server-side assignors of consumer groups: pure functions (KIP-848)."""
