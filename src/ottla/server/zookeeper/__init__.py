"""Nodes of a cluster that is coordinated by ZooKeeper, and the migration away from it."""
