"""Administration by subject (topics, groups, ACLs, ...): requests and services, which `Cluster` combines."""
