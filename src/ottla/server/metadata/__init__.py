"""The broker's view of cluster metadata: the cache, dynamic configs, topic creation."""
