"""Bytes in the log: those of Apache Kafka 4.4, and those of the declared messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.coordinator.transaction.metadata import NO_PARTITIONS, TransactionMetadata
from ottla.coordinator.transaction.records import (
    TransactionRecord,
    TransactionRecordSerde,
    decode_record,
    encode_key,
    encode_value,
)
from ottla.coordinator.transaction.state import TransactionState
from ottla.protocol.codec import write_message
from ottla.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

T = 1_700_000_000_000
ONE = frozenset({("t", 1)})

# Printed by org.apache.kafka.coordinator.transaction.TransactionLog of Apache Kafka 4.4.0.
PINS: list[tuple[int, TransactionMetadata, str]] = [
    (
        0,
        TransactionMetadata(4000, 4000, -1, 0, -1, 60000, TransactionState.EMPTY, NO_PARTITIONS, -1, T + 1000, 0),
        "00000000000000000fa000000000ea6000ffffffff0000018bcfe56be8ffffffffffffffff",
    ),
    (
        1,
        TransactionMetadata(4000, 4000, -1, 0, -1, 60000, TransactionState.EMPTY, NO_PARTITIONS, -1, T + 1000, 0),
        "00010000000000000fa000000000ea6000000000018bcfe56be8ffffffffffffffff0100080000000000000fa0",
    ),
    (
        0,
        TransactionMetadata(4000, 4000, -1, 3, -1, 60000, TransactionState.ONGOING, ONE, T + 1000, T + 2000, 0),
        "00000000000000000fa000030000ea60010000000100017400000001000000010000018bcfe56fd00000018bcfe56be8",
    ),
    (
        2,
        TransactionMetadata(4000, 4000, -1, 3, 2, 60000, TransactionState.ONGOING, ONE, T + 1000, T + 2000, 2),
        "00010000000000000fa000030000ea60010202740200000001000000018bcfe56fd00000018bcfe56be8"
        "0200080000000000000fa002020002",
    ),
    (
        2,
        TransactionMetadata(
            4000, 4000, 4001, 32767, 32766, 60000, TransactionState.PREPARE_COMMIT, ONE, T + 1000, T + 3000, 2
        ),
        "00010000000000000fa07fff0000ea60020202740200000001000000018bcfe573b80000018bcfe56be8"
        "0300080000000000000fa001080000000000000fa102020002",
    ),
    (
        2,
        TransactionMetadata(
            4001, 4000, -1, 0, 32766, 60000, TransactionState.COMPLETE_COMMIT, NO_PARTITIONS, T + 1000, T + 4000, 2
        ),
        "00010000000000000fa100000000ea6004010000018bcfe577a00000018bcfe56be80200080000000000000fa002020002",
    ),
    (
        0,
        TransactionMetadata(
            4000, 4000, -1, 3, -1, 60000, TransactionState.COMPLETE_ABORT, NO_PARTITIONS, T + 1000, T + 4000, 0
        ),
        "00000000000000000fa000030000ea6005000000000000018bcfe577a00000018bcfe56be8",
    ),
]


@pytest.mark.parametrize(("level", "metadata", "pinned"), PINS)
def test_values_are_apache_kafkas_byte_for_byte(level: int, metadata: TransactionMetadata, pinned: str) -> None:
    assert encode_value(metadata, level).hex() == pinned


def test_a_key_is_apache_kafkas_byte_for_byte() -> None:
    assert encode_key("zahlung-ü").hex() == "0000000a7a61686c756e672dc3bc"


names = st.text(min_size=1, max_size=20)
partitions = st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=6)
ids = st.integers(-1, 2**63 - 1)
times = st.integers(-1, 2**62)


@st.composite
def metadata_of_any_kind(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(st.sampled_from([state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT]))
    return TransactionMetadata(
        producer_id=draw(st.integers(0, 2**63 - 1)),
        previous_producer_id=draw(ids),
        next_producer_id=draw(st.one_of(st.just(-1), ids)),
        producer_epoch=draw(st.integers(0, 32767)),
        last_producer_epoch=-1,
        timeout_ms=draw(st.integers(1, 2**31 - 1)),
        state=state,
        partitions=NO_PARTITIONS if state is TransactionState.EMPTY else draw(partitions),
        start_ms=draw(times),
        last_update_ms=draw(times),
        client_version=draw(st.sampled_from([0, 2])),
    )


def declared(metadata: TransactionMetadata, version: int) -> bytes:
    """Return the value as encoded by the declared message."""
    topics: dict[str, PartitionsSchema] = {}
    for name, index in sorted(metadata.partitions):
        topics.setdefault(name, PartitionsSchema(topic=name)).partition_ids.append(index)
    fields: dict[str, Any] = {}
    if version:
        fields = {
            "previous_producer_id": metadata.previous_producer_id,
            "next_producer_id": metadata.next_producer_id,
            "client_transaction_version": metadata.client_version,
        }
    out = bytearray(version.to_bytes(2, "big"))
    message = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else list(topics.values()),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        **fields,
    )
    write_message(message, version, out)
    return bytes(out)


@given(metadata_of_any_kind(), st.integers(0, 2))
def test_values_packed_by_hand_are_the_declared_ones(metadata: TransactionMetadata, level: int) -> None:
    value = encode_value(metadata, level)
    version = int.from_bytes(value[:2], "big")
    unwritable = metadata.client_version or metadata.next_producer_id != -1
    assert version == (1 if level or unwritable else 0)
    assert value == declared(metadata, version)
    read = decode_record(encode_key("id"), value)
    if version == 0:
        metadata = metadata._replace(previous_producer_id=-1)
    assert read == TransactionRecord("id", metadata)


@given(st.text(min_size=1, max_size=50))
def test_keys_packed_by_hand_are_the_declared_ones(transactional_id: str) -> None:
    out = bytearray(b"\0\0")
    write_message(TransactionLogKey(transactional_id=transactional_id), 0, out)
    assert encode_key(transactional_id) == bytes(out)
    assert decode_record(bytes(out), None) == TransactionRecord(transactional_id, None)


def test_v2_transaction_keeps_tags_after_downgrade() -> None:
    metadata = PINS[4][1]
    assert encode_value(metadata, 0) == encode_value(metadata, 2)


@pytest.mark.parametrize("key", [b"\x00\x01\x00\x01a", b"\x7f\xff"])
def test_records_of_other_types_are_skipped(key: bytes) -> None:
    assert decode_record(key, b"\x00\x00whatever") is None


@pytest.mark.parametrize("version", [b"\x00\x02", b"\xff\xff"])
def test_value_of_unknown_version_is_rejected(version: bytes) -> None:
    """The previous state may be outdated, so it must not be used as the current one."""
    with pytest.raises(ProtocolError, match="version"):
        decode_record(encode_key("id"), version + b"whatever")


NONSENSE = [
    ("producer_id", -5, "producer id"),
    ("producer_epoch", -5, "producer id"),
    ("previous_producer_id", -2, "invalid previous producer id"),
    ("next_producer_id", -2, "invalid previous producer id"),
    ("client_version", -1, "transaction version"),
    ("client_version", 3, "transaction version"),
    ("state", TransactionState.DEAD, "state 6"),
    ("state", TransactionState.PREPARE_EPOCH_FENCE, "state 7"),
]


@pytest.mark.parametrize(("field", "value", "reason"), NONSENSE)
def test_invalid_value_is_rejected(field: str, value: Any, reason: str) -> None:
    """If accepted, this id would return an error for ever, or assign an invalid producer id to a client."""
    for state in (TransactionState.EMPTY, TransactionState.ONGOING):
        fields: dict[str, Any] = {"state": state, field: value}
        stored = encode_value(PINS[3][1]._replace(**fields), 2)
        with pytest.raises(ProtocolError, match=reason):
            decode_record(encode_key("id"), stored)


def is_read_or_corrupt(key: bytes, value: bytes | None) -> bool:
    """Return whether it is a record or a foreign type, False for CORRUPT_MESSAGE; raises other errors."""
    try:
        TransactionRecordSerde(lambda: 2).decode(key, value)
    except KafkaError as error:
        return error.code is ErrorCode.CORRUPT_MESSAGE
    return True


@given(st.binary(max_size=80), st.one_of(st.none(), st.binary(max_size=120)))
def test_damaged_bytes_are_an_error_of_the_record(key: bytes, value: bytes | None) -> None:
    for damaged in (key, b"\0\0" + key, encode_key("id")):
        assert is_read_or_corrupt(damaged, value)


@given(metadata_of_any_kind(), st.data())
def test_mutated_value_is_rejected_or_decoded(metadata: TransactionMetadata, data: st.DataObject) -> None:
    value = bytearray(encode_value(metadata, 2))
    position = data.draw(st.integers(0, len(value) - 1))
    value[position] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(value), bytes(value[:position])):
        assert is_read_or_corrupt(encode_key("id"), damaged)


def test_unknown_state_is_rejected() -> None:
    value = bytearray(encode_value(PINS[1][1], 1))
    value[16] = 9
    with pytest.raises(KafkaError):
        TransactionRecordSerde(lambda: 2).decode(encode_key("id"), bytes(value))
