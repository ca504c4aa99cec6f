"""Handlers for consumer groups: membership and committed offsets."""
