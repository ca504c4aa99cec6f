"""ZooKeeper's tree in the format of Apache Kafka 3.9: paths, znode contents, and the operations that change it."""
