"""Ottla: a distributed commit log that speaks the Kafka wire protocol, and a client of such logs.

What the client has comes from `ottla.api` when it is first asked for (PEP 562): a broker neither loads nor keeps it.
The stub beside has the types.
"""

from __future__ import annotations

__version__ = "0.1.0"

_CLIENT = {
    "Admin": "api.admin",
    "AsyncAdmin": "api.asynchronous",
    "AsyncConsumer": "api.async_consumer",
    "AsyncLegacyConsumer": "api.async_legacy_consumer",
    "AsyncProducer": "api.async_producer",
    "AsyncSimpleConsumer": "api.asynchronous",
    "ClientClosed": "api.errors",
    "Consumer": "api.consumer",
    "ConsumedRecord": "client.consumer",
    "Delivery": "api.messages",
    "ErrorCode": "common.errors",
    "Fetched": "api.simple_consumer",
    "KafkaError": "common.errors",
    "LegacyConsumer": "api.legacy_consumer",
    "Producer": "api.producer",
    "ProducerFenced": "client.transactional_producer",
    "ProducerRecord": "api.records",
    "Record": "api.messages",
    "RecordMetadata": "api.records",
    "SimpleConsumer": "api.simple_consumer",
    "Streams": "api.streams",
    "TopicFilter": "api.topic_filter",
    "TransactionAborted": "api.errors",
    "UndecodableRecord": "api.errors",
}
"""Names of the client, and the modules below that have them."""
__all__ = [*_CLIENT]  # noqa: PLE0604 - they are texts


def __getattr__(name: str) -> object:
    """A name of the client; AttributeError for any other."""
    module = _CLIENT.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from importlib import import_module  # by a text: nothing that imports this package imports the client

    return getattr(import_module(f"ottla.{module}"), name)


def __dir__() -> list[str]:
    """For completion: what the client has, too."""
    return sorted({*globals(), *_CLIENT})
