"""Handlers of share groups on the leaders of partitions (KIP-932)."""
