"""Consumer groups: the coordinator assigns and reconciles (KIP-848)."""
