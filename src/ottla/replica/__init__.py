"""Partitions as a replica sees them: high watermark, ISR, fetch sessions, purgatory."""
