"""Requests between brokers on behalf of transactions: markers, producer ids, verification of partitions."""
