"""`ottla adopt`: inspection of Kafka data directories before a broker takes them over."""
