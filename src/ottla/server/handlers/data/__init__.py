"""Records of partitions: appended, read, deleted, and where they lie."""
