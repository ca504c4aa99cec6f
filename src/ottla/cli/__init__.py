"""Command groups that reach a cluster over the wire."""
