"""Who gets which partitions of a consumer group: pure functions (KIP-848)."""
