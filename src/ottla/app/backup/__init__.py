"""`ottla backup` and `ottla restore`: consistent copies of a node, or of a cluster of `ottla start --brokers`."""
