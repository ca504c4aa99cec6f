"""Ottla: a distributed commit log with the Kafka protocol, and its Python client.

The names of the client are imported from `ottla.api` on first access (PEP 562), so that a broker does not load it. The
stub file contains the types.
"""

from __future__ import annotations

__version__ = "0.1.0"

_CLIENT = {
    "Admin": "api.admin",
    "AsyncAdmin": "api.asynchronous",
    "AsyncConsumer": "api.async_consumer",
    "AsyncLegacyConsumer": "api.async_legacy_consumer",
    "AsyncProducer": "api.async_producer",
    "AsyncShareConsumer": "api.async_share_consumer",
    "AsyncSimpleConsumer": "api.asynchronous",
    "ClientClosed": "api.errors",
    "Consumer": "api.consumer",
    "ConsumedRecord": "client.librdkafka.consumer",
    "Delivery": "api.messages",
    "ErrorCode": "common.errors",
    "Fetched": "api.simple_consumer",
    "Job": "api.share_consumer",
    "KafkaError": "common.errors",
    "LegacyConsumer": "api.legacy_consumer",
    "Producer": "api.producer",
    "ProducerFenced": "client.librdkafka.transactional_producer",
    "ProducerRecord": "api.records",
    "Record": "api.messages",
    "RecordMetadata": "api.records",
    "ShareConsumer": "api.share_consumer",
    "SimpleConsumer": "api.simple_consumer",
    "Streams": "api.streams",
    "TopicFilter": "api.topic_filter",
    "TransactionAborted": "api.errors",
    "UndecodableRecord": "api.errors",
}
"""Names of the client, and their modules."""
__all__ = [*_CLIENT]  # noqa: PLE0604 - they are texts

_REVISION_FILE = "_revision.txt"
"""Written beside this file by a build from a git repository."""
_MAX_REVISION_BYTES = 80


def build_revision() -> str | None:
    """The git revision that this package was built from; None for a source tree."""
    try:
        with open(f"{__path__[0]}/{_REVISION_FILE}", encoding="ascii") as file:
            return file.read(_MAX_REVISION_BYTES).strip() or None
    except (OSError, UnicodeError):
        return None


def full_version() -> str:
    """Version and, if it is known, the git revision: `0.1.0+1a2b3c4d5e6f`."""
    revision = build_revision()
    return __version__ if revision is None else f"{__version__}+{revision}"


def __getattr__(name: str) -> object:
    """Import a name of the client. Raises AttributeError for any other."""
    module = _CLIENT.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from importlib import import_module  # by name: importing this package must not import the client

    return getattr(import_module(f"ottla.{module}"), name)


def __dir__() -> list[str]:
    """Names for completion, including those of the client."""
    return sorted({*globals(), *_CLIENT})
