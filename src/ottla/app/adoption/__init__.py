"""`ottla adopt`: what a data directory of Apache Kafka holds, and whether a start takes it over as it is."""
