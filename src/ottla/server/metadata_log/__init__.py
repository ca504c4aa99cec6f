"""Kinds of metadata logs and their services for a node; `choice` selects one."""
