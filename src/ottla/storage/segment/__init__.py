"""One segment: its batches, indexes and transactions, independent of other segments."""
