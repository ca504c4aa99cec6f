"""Where the records of a planned range come from, decoded into Arrow batches: one interface, one module a way."""
