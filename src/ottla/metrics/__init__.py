"""Counters and gauges as plain integers, and their Prometheus exposition."""
