"""Sources of the records of a planned range, decoded into Arrow batches: one interface, one module a source."""
