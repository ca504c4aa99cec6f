"""Metrics that clients push to brokers (KIP-714): subscriptions, client instances, decoding, and their series."""
