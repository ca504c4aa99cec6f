"""Command groups of administration and client tools, which connect to a cluster by the Kafka protocol."""
