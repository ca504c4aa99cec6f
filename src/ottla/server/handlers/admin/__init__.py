"""What administers and describes a cluster: topics, settings, limits, ACLs, brokers, directories."""
