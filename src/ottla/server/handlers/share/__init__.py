"""Handlers of share groups (KIP-932): the state of share partitions, and fetches from partition leaders."""
