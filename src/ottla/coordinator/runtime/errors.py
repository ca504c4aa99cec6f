"""Client error codes for failed appends.

The table is that of Apache Kafka's coordinators: a client retries with the same coordinator, or looks it up again.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError

_TO_CLIENT = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.RECORD_LIST_TOO_LARGE,
}


def append_error(error: KafkaError) -> KafkaError:
    """Return the error for the operations of a batch when its append failed with `error`.

    A batch above `max.message.bytes` remains RECORD_LIST_TOO_LARGE: each API translates that itself.
    """
    code = _TO_CLIENT.get(error.code)
    return error if code is None else KafkaError(code, error.message)
