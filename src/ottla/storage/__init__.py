"""The partition log on disk, in Apache Kafka's files."""
