"""Broker discovery and settings through ZooKeeper, for tools that connect to it."""
