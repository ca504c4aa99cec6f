"""Nodes of a cluster on ZooKeeper, and the migration to a quorum."""
