"""Broker discovery and settings through ZooKeeper, for tools that are pointed at one."""
