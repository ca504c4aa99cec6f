"""Construction of a node: components, handler contexts, API tables, gauges."""
