"""Schemas of keys and values: client of a schema registry, Avro and Protobuf schemas. Without Arrow and Spark."""
