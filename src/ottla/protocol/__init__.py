"""The Kafka wire protocol: framing, primitives, message declarations, hot codecs, API registry."""
