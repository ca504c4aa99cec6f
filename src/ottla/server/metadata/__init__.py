"""The broker's view of cluster metadata: the cache, dynamic settings, creation of topics."""
