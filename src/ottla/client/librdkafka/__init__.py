"""Producers and consumers of the tools on top of librdkafka. The public API for programs is `ottla.api`."""
