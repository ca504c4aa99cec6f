"""Kafka's first consumers, which share a group by ZooKeeper alone: what they decide, and what reads (`consumer`)."""
