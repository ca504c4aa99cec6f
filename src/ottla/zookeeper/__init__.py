"""A cluster that ZooKeeper coordinates: its metadata as znodes, both ways. Nothing here speaks with ZooKeeper."""
