"""Handlers of share groups: the state of share partitions."""
