"""Values of Kafka's model that several packages share: ids, names, ACLs, partitions, key hashes."""
