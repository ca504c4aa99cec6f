"""Errors of the API: all are `KafkaError` with an error code of the Kafka protocol.

Local errors of librdkafka get the protocol code with the closest meaning. Errors of `ottla.client` are converted too:
OperatorError (such as a malformed address) to INVALID_CONFIG, BrokerUnreachable to NETWORK_EXCEPTION, and ProtocolError
to CORRUPT_MESSAGE.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.client.librdkafka.rdkafka import kafka_error
from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, ProtocolError

_LOCAL = {
    "_ALL_BROKERS_DOWN": ErrorCode.NETWORK_EXCEPTION,
    "_ASSIGNMENT_LOST": ErrorCode.REBALANCE_IN_PROGRESS,
    "_AUTHENTICATION": ErrorCode.SASL_AUTHENTICATION_FAILED,
    "_AUTO_OFFSET_RESET": ErrorCode.OFFSET_OUT_OF_RANGE,
    "_BAD_COMPRESSION": ErrorCode.CORRUPT_MESSAGE,
    "_BAD_MSG": ErrorCode.CORRUPT_MESSAGE,
    "_FENCED": ErrorCode.PRODUCER_FENCED,
    "_INVALID_ARG": ErrorCode.INVALID_REQUEST,
    "_LOG_TRUNCATION": ErrorCode.OFFSET_OUT_OF_RANGE,
    "_MAX_POLL_EXCEEDED": ErrorCode.UNKNOWN_MEMBER_ID,
    "_MSG_TIMED_OUT": ErrorCode.REQUEST_TIMED_OUT,
    "_PURGE_INFLIGHT": ErrorCode.NETWORK_EXCEPTION,
    "_PURGE_QUEUE": ErrorCode.OPERATION_NOT_ATTEMPTED,
    "_RESOLVE": ErrorCode.NETWORK_EXCEPTION,
    "_SSL": ErrorCode.NETWORK_EXCEPTION,
    "_STATE": ErrorCode.INVALID_REQUEST,
    "_TIMED_OUT": ErrorCode.REQUEST_TIMED_OUT,
    "_TIMED_OUT_QUEUE": ErrorCode.REQUEST_TIMED_OUT,
    "_TRANSPORT": ErrorCode.NETWORK_EXCEPTION,
    "_UNKNOWN_GROUP": ErrorCode.GROUP_ID_NOT_FOUND,
    "_UNKNOWN_PARTITION": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "_UNKNOWN_TOPIC": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "_UNSUPPORTED_FEATURE": ErrorCode.UNSUPPORTED_VERSION,
}


class ClientClosed(KafkaError):
    """The client is closed, or belongs to the parent process of a fork; it cannot be used."""

    def __init__(self, what: str) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST, f"this {what} is closed or was created before a fork: create a new one"
        )


class TransactionAborted(KafkaError):
    """The transaction was aborted instead of committed: its records are discarded; the producer can continue."""


def library_error(error: Any, subject: str = "") -> KafkaError:
    """Convert an error of librdkafka (`confluent_kafka.KafkaError`); UNKNOWN_SERVER_ERROR if no code matches."""
    found = kafka_error(error, subject)
    return KafkaError(_LOCAL.get(error.name(), found.code), found.message)


@contextmanager
def as_kafka_errors() -> Iterator[None]:
    """Raise errors of `ottla.client` as KafkaError."""
    try:
        yield
    except BrokerUnreachable as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
    except OperatorError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


class UndecodableRecord(KafkaError):
    """A deserializer rejected a record.

    To skip it, seek to the next offset, or continue iterating the stream of a legacy consumer.
    """

    def __init__(self, topic: str, partition: int, offset: int, reason: Exception) -> None:
        where = f"the record of {topic}-{partition} at offset {offset}"
        super().__init__(ErrorCode.INVALID_RECORD, f"{where} can't be decoded: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.__cause__ = reason
