"""One segment: its batches, indexes and transactions. Knows no other segment."""
