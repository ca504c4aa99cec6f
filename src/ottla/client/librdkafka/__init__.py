"""Producers and consumers of the tools, based on librdkafka. The public API for programs is `ottla.api`."""
