"""ZooKeeper's tree as Apache Kafka 3.9 keeps it: paths, what lies in each znode, and the operations that change it."""
