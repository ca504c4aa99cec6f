"""Construction of a node: components, contexts of handlers, the table of APIs, gauges."""
