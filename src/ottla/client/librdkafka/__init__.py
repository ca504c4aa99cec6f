"""Producers and consumers of the tools, based on librdkafka, except `consumer` and `batch_producer`.

The public API for programs is `ottla.api`.
"""
