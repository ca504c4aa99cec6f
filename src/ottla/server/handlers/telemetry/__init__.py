"""Handlers of client metrics (KIP-714)."""
