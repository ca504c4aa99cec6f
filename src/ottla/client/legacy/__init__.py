"""Kafka's first consumers, which share a group by ZooKeeper alone: what they decide. Nothing here reads or writes."""
