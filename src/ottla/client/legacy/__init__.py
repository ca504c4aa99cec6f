"""Kafka 0.9 consumers, which coordinate a group through ZooKeeper only: group membership and reading (`consumer`)."""
