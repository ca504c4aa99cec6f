"""Codec for records of `__transaction_state`: typed records to and from key and value bytes.

A key is record type 0 as a 16-bit integer and the transactional id. A value is its version as a 16-bit integer and its
body, in version 0 below `transaction.version` 1 and with tagged fields from there on. A null value removes the id. Both
versions are read at any level. A transaction that version 0 can't represent (one of transactions v2, after the level
was lowered) is written in version 1 at any level: without the tags a restart would complete it incorrectly.

There may be a million ids to load, and each transaction writes three records. So values are packed by hand. The schema
in `protocol.messages.transaction_records` is the reference for the tests, and decodes unusual values.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import by_topic
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.transaction.metadata import (
    NO_PARTITIONS,
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    TransactionMetadata,
)
from ottla.coordinator.transaction.state import IDLE, OPEN, TransactionState
from ottla.protocol.codec import MAX_RESPONSE_ELEMENTS, read_message
from ottla.protocol.messages.transaction_records import TransactionLogValue
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.record.varint import write_unsigned_varint

KIND = 0
MAX_ID_BYTES = 32_767
"""Strings of version 0 have 16-bit lengths."""

ENDING_BYTES = 1024
"""Additional bytes that the records of a transaction's end may need compared with the record of its partitions: tags
for producer ids and the client's version. An end that can't be written would leave the transaction open for ever."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_KEY = Struct(">hh")
_HEAD = Struct(">hqhib")
"""Version, producer id, producer epoch, timeout, state."""
_TIMES = Struct(">qq")
_TAG_ID = Struct(">BBq")
_TAG_VERSION = Struct(">BBh")
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2

_IDLE = Struct(">hqhibBqqBBBq")
_IDLE_SIZE = _IDLE.size
_IDLE_V2_SIZE = _IDLE_SIZE + _TAG_VERSION.size
"""The usual value in a compacted log: no partitions, and the previous producer id as the only tag, followed by the
client's version for transactions v2."""
_STATES = tuple(state for state in TransactionState if state in IDLE or state in OPEN)
"""States by number; the others are never written."""


class TransactionRecord(NamedTuple):
    """State of one transactional id from now on; metadata None removes it."""

    transactional_id: str
    metadata: TransactionMetadata | None
    is_readable: bool = True
    """False: a stored value could not be decoded; the metadata is None."""


def encode_key(transactional_id: str) -> bytes:
    """Return the key of an id of at most MAX_ID_BYTES."""
    encoded = transactional_id.encode()
    return _KEY.pack(KIND, len(encoded)) + encoded


def encode_value(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """Return the value at this level of `transaction.version`."""
    if (
        transaction_version >= TRANSACTION_VERSION_1
        or metadata.client_version
        or metadata.next_producer_id != NO_PRODUCER_ID
    ):
        return _encode_v1(metadata)
    return _encode_v0(metadata)


def _encode_v0(metadata: TransactionMetadata) -> bytes:
    out = bytearray(_HEAD.pack(0, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, metadata.state))
    if metadata.state is TransactionState.EMPTY:
        out += _INT32.pack(-1)
    else:
        topics = by_topic(sorted(metadata.partitions))  # deterministic order on disk
        out += _INT32.pack(len(topics))
        for topic, indexes in topics.items():
            name = topic.encode()
            out += _INT16.pack(len(name)) + name + _INT32.pack(len(indexes))
            out += b"".join(map(_INT32.pack, indexes))
    out += _TIMES.pack(metadata.last_update_ms, metadata.start_ms)
    return bytes(out)


def _encode_v1(metadata: TransactionMetadata) -> bytes:
    state = metadata.state
    out = bytearray(_HEAD.pack(1, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, state))
    if not metadata.partitions:
        out.append(0 if state is TransactionState.EMPTY else 1)
    else:
        topics = by_topic(sorted(metadata.partitions))  # deterministic order on disk
        write_unsigned_varint(out, len(topics) + 1)
        for topic, indexes in topics.items():
            name = topic.encode()
            write_unsigned_varint(out, len(name) + 1)
            out += name
            write_unsigned_varint(out, len(indexes) + 1)
            out += b"".join(map(_INT32.pack, indexes))
            out.append(0)
    out += _TIMES.pack(metadata.last_update_ms, metadata.start_ms)
    tags = 0
    count_position = len(out)
    out.append(0)
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        out += _TAG_ID.pack(_PREVIOUS_PRODUCER_ID, 8, metadata.previous_producer_id)
        tags += 1
    if metadata.next_producer_id != NO_PRODUCER_ID:
        out += _TAG_ID.pack(_NEXT_PRODUCER_ID, 8, metadata.next_producer_id)
        tags += 1
    if metadata.client_version:
        out += _TAG_VERSION.pack(_CLIENT_VERSION, 2, metadata.client_version)
        tags += 1
    out[count_position] = tags
    return bytes(out)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return None for an unknown record type. Raises ProtocolError for corrupt bytes and for an unknown version."""
    if len(key) < _INT16.size:
        raise ProtocolError(f"the key of a transactional id is too short ({len(key)} bytes)")
    if _INT16.unpack_from(key)[0] != KIND:
        return None
    transactional_id = _decode_key(key)
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < _INT16.size:
        raise ProtocolError(f"the value of a transactional id is too short ({len(value)} bytes)")
    version = _INT16.unpack_from(value)[0]
    if version not in (0, 1):
        raise ProtocolError(f"the value of a transactional id has the unsupported version {version}, not 0 or 1")
    return TransactionRecord(transactional_id, _decode_value(version, value))


def _decode_key(key: bytes) -> str:
    if len(key) < _KEY.size or _KEY.unpack_from(key)[1] != len(key) - _KEY.size:
        raise ProtocolError("the key of a transactional id does not have the encoded length")
    try:
        return str(key[_KEY.size :], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("a transactional id is not valid UTF-8") from error


def _decode_value(version: int, value: bytes) -> TransactionMetadata:
    if version == 1 and (len(value) == _IDLE_SIZE or len(value) == _IDLE_V2_SIZE):
        idle = _decode_idle(value)
        if idle is not None:
            return idle
    end = len(value)
    message, position = read_message(TransactionLogValue, version, value, _INT16.size, end, MAX_RESPONSE_ELEMENTS)
    if position != end:
        raise ProtocolError(f"the value of a transactional id has {end - position} trailing bytes")
    return _metadata_of(message)


def _decode_idle(value: bytes) -> TransactionMetadata | None:
    """Fast path of the usual value; None for other values of the same length."""
    _, producer_id, epoch, timeout_ms, state, count, updated_ms, start_ms, tags, tag, size, previous_producer_id = (
        _IDLE.unpack_from(value)
    )
    if count > 1 or tag != _PREVIOUS_PRODUCER_ID or size != 8:
        return None
    if producer_id < 0 or epoch < 0 or previous_producer_id < NO_PRODUCER_ID:
        return None
    client_version = 0
    if len(value) == _IDLE_SIZE:
        if tags != 1:
            return None
    else:
        tag, size, client_version = _TAG_VERSION.unpack_from(value, _IDLE_SIZE)
        if tags != 2 or tag != _CLIENT_VERSION or size != 2 or not 0 <= client_version <= TRANSACTION_VERSION_2:
            return None
    return TransactionMetadata(
        producer_id,
        producer_id if previous_producer_id == producer_id else previous_producer_id,
        NO_PRODUCER_ID,
        epoch,
        NO_PRODUCER_EPOCH,
        timeout_ms,
        _state(state),
        NO_PARTITIONS,
        start_ms,
        updated_ms,
        client_version,
    )


def _metadata_of(message: TransactionLogValue) -> TransactionMetadata:
    state = _state(message.transaction_status)
    if message.producer_id < 0 or message.producer_epoch < 0:
        raise ProtocolError(
            f"a transactional id has invalid producer id {message.producer_id} or epoch {message.producer_epoch}"
        )
    if min(message.previous_producer_id, message.next_producer_id) < NO_PRODUCER_ID:
        raise ProtocolError(
            f"a transactional id has invalid previous producer id {message.previous_producer_id} or next "
            f"{message.next_producer_id}"
        )
    if not 0 <= message.client_transaction_version <= TRANSACTION_VERSION_2:
        raise ProtocolError(f"a transactional id has invalid transaction version {message.client_transaction_version}")
    partitions = NO_PARTITIONS
    if state is not TransactionState.EMPTY and message.transaction_partitions:
        partitions = frozenset(
            (each.topic, index) for each in message.transaction_partitions for index in each.partition_ids
        )
    return TransactionMetadata(
        message.producer_id,
        message.previous_producer_id,
        message.next_producer_id,
        message.producer_epoch,
        NO_PRODUCER_EPOCH,
        message.transaction_timeout_ms,
        state,
        partitions,
        message.transaction_start_timestamp_ms,
        message.transaction_last_update_timestamp_ms,
        message.client_transaction_version,
    )


def _state(number: int) -> TransactionState:
    if not 0 <= number < len(_STATES):
        raise ProtocolError(f"a transactional id has the unknown state {number}")
    return _STATES[number]


class TransactionRecordSerde:
    """The transaction coordinator's `CoordinatorSerde`; stateless."""

    __slots__ = ("_transaction_version",)

    def __init__(self, transaction_version: Callable[[], int]) -> None:
        """`transaction_version()` returns the cluster's current level of `transaction.version`."""
        self._transaction_version = transaction_version

    def encode(self, record: TransactionRecord) -> CoordinatorRecord:
        metadata = record.metadata
        value = None if metadata is None else encode_value(metadata, self._transaction_version())
        return CoordinatorRecord(encode_key(record.transactional_id), value)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """Return None for an unknown record type. Raises KafkaError CORRUPT_MESSAGE."""
        try:
            return decode_record(key, value)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def without_value(self, key: bytes) -> TransactionRecord | None:
        """Return the record by which `TransactionShard.replay` handles an undecodable value."""
        try:
            record = decode_record(key, None)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return None if record is None else record._replace(is_readable=False)
