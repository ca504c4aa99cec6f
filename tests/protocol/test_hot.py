"""Codecs of small requests: the compiled module and its twin on the same bytes, whole, mutated and cut."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import InvariantError, ProtocolError
from ottla.protocol import _hot_py, hot
from ottla.protocol.codec import write_message
from ottla.protocol.fetch import FetchPartitionResult, parse_fetch
from ottla.protocol.fetch import request_of_one as fetch_of_one
from ottla.protocol.messages import fetch as fetch_messages
from ottla.protocol.messages import produce as produce_messages
from ottla.protocol.produce import parse_produce
from ottla.protocol.produce import request_of_one as produce_of_one

_hot = pytest.importorskip("ottla.protocol._hot", reason="the compiled module was not built")

PRODUCE_VERSIONS = range(9, 14)
FETCH_VERSIONS = range(13, 19)
AROUND = b"\x02\x02\x00\x01\x01\x00"
"""Bytes that a stray read takes for counts and tags."""

ids = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.one_of(st.text(max_size=5), st.sampled_from(["a" * 125, "b" * 126, "c" * 127, "d" * 249, "é" * 64]))
topic_ids = st.binary(min_size=16, max_size=16)
sizes = st.sampled_from([0, 1, 126, 127, 128, 16_382, 16_383, 2_097_151, 268_435_454, 0x7FFFFF00])


def outcome(twin: ModuleType, function: str, *args: object) -> object:
    """Result of a call, or its error."""
    try:
        return getattr(twin, function)(*args)
    except (ProtocolError, InvariantError) as error:
        return f"{type(error).__name__}: {error}"


def compare(function: str, *args: object) -> Any:
    """Return the result of both twins."""
    expected = outcome(_hot_py, function, *args)
    assert outcome(_hot, function, *args) == expected
    return expected


def produce_body(version: int, topic: str | bytes, index: int, records: bytes | None, **fields: Any) -> bytearray:
    partitions = [produce_messages.PartitionProduceData(index=index, records=records)]
    named: dict[str, Any] = {"topic_id" if version >= 13 else "name": topic}
    topics = [produce_messages.TopicProduceData(**named, partition_data=partitions)]
    body = bytearray()
    write_message(produce_messages.ProduceRequest(topic_data=topics, **fields), version, body)
    return body


def fetch_body(version: int, topic: bytes, partition: dict[str, Any], **fields: Any) -> bytearray:
    topics = [fetch_messages.FetchTopic(topic_id=topic, partitions=[fetch_messages.FetchPartition(**partition)])]
    body = bytearray()
    write_message(fetch_messages.FetchRequest(topics=topics, **fields), version, body)
    return body


def test_the_compiled_twin_is_chosen() -> None:
    functions = ("read_client_id", "parse_one_produce", "pack_one_produced", "parse_one_fetch", "pack_one_fetched")
    assert all(getattr(hot, name) is getattr(_hot, name) for name in functions)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=size(4, 60), deadline=None)
@given(data=st.data(), index=ids, acks=st.integers(-(1 << 15), (1 << 15) - 1), timeout_ms=ids)
def test_one_produced_partition_equals_general_parser(
    version: int, data: st.DataObject, index: int, acks: int, timeout_ms: int
) -> None:
    topic = data.draw(topic_ids if version >= 13 else names)
    records = data.draw(st.sampled_from([None, b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20_000]))
    body = produce_body(version, topic, index, records, acks=acks, timeout_ms=timeout_ms)
    buffer = bytearray(AROUND + body + AROUND)
    start, end = len(AROUND), len(AROUND) + len(body)
    one = compare("parse_one_produce", version, buffer, start, end)
    is_usual = records is not None and len(topic.encode() if isinstance(topic, str) else b"") < 127
    assert (one is not None) == is_usual
    if one is not None:
        found, expected = produce_of_one(one), parse_produce(version, buffer, start, end)
        assert all(getattr(found, name) == getattr(expected, name) for name in expected.__slots__)
    for cut in (*range(start, min(end, start + 300)), end - 1):
        assert compare("parse_one_produce", version, buffer, start, cut) is None


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=size(4, 60), deadline=None)
@given(data=st.data(), topic=topic_ids, isolation_level=st.integers(-128, 127))
def test_one_fetched_partition_equals_general_parser(
    version: int, data: st.DataObject, topic: bytes, isolation_level: int
) -> None:
    ints = ("partition", "current_leader_epoch", "last_fetched_epoch", "partition_max_bytes")
    partition: dict[str, Any] = {name: data.draw(ids) for name in ints}
    partition |= {name: data.draw(longs) for name in ("fetch_offset", "log_start_offset")}
    fields = {name: data.draw(ids) for name in ("max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch")}
    if version < 15:
        fields["replica_id"] = -1
    body = fetch_body(version, topic, partition, isolation_level=isolation_level, **fields)
    buffer = bytearray(AROUND + body + AROUND)
    start, end = len(AROUND), len(AROUND) + len(body)
    one = compare("parse_one_fetch", version, buffer, start, end)
    found, expected = fetch_of_one(one), parse_fetch(version, buffer, start, end)
    assert all(getattr(found, name) == getattr(expected, name) for name in expected.__slots__)
    for cut in range(start, end):
        assert compare("parse_one_fetch", version, buffer, start, cut) is None


@pytest.mark.parametrize("version", [*PRODUCE_VERSIONS, *FETCH_VERSIONS])
def test_mutated_requests_give_equal_results(version: int) -> None:
    """A request that the parsers accept has the same result in the general ones."""
    rng = random.Random(version)
    fetch: dict[str, Any] = {"partition": 1, "fetch_offset": 5, "partition_max_bytes": 9}
    is_produce = version in PRODUCE_VERSIONS
    for round_number in range(size(300, 5000)):
        if is_produce:
            body = produce_body(version, b"i" * 16 if version >= 13 else "topic", 3, b"r" * rng.randrange(200))
        else:
            body = fetch_body(version, b"i" * 16, fetch)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        buffer = bytearray(AROUND + body + AROUND)
        start, end = len(AROUND), len(AROUND) + rng.randrange(len(body) - 3, len(body) + 1)
        functions = (parse_produce, produce_of_one) if is_produce else (parse_fetch, fetch_of_one)
        general, of_one = functions
        one = compare("parse_one_produce" if is_produce else "parse_one_fetch", version, buffer, start, end)
        if one is not None:
            expected = general(version, buffer, start, end)
            assert all(getattr(of_one(one), name) == getattr(expected, name) for name in expected.__slots__), (
                round_number
            )


@settings(max_examples=size(20, 300), deadline=None)
@given(
    data=st.binary(max_size=40),
    size_field=st.integers(-2, 40),
    flexible=st.booleans(),
    start=st.integers(0, 3),
    as_bytes=st.booleans(),
)
def test_client_ids_of_both_twins_are_equal(
    data: bytes, size_field: int, flexible: bool, start: int, as_bytes: bool
) -> None:
    buffer = AROUND + b"0123456789" + data + AROUND
    end = len(AROUND) + 10 + len(data)
    whole = buffer if as_bytes else bytearray(buffer)
    compare("read_client_id", whole, len(AROUND) - start, end, size_field, flexible)


@settings(max_examples=size(20, 300), deadline=None)
@given(st.one_of(names, topic_ids), ids, longs, longs, longs, ids, ids)
def test_produced_frames_of_both_twins_are_equal(
    topic: str | bytes, index: int, offset: int, time_ms: int, start: int, correlation_id: int, throttle_ms: int
) -> None:
    compare("pack_one_produced", correlation_id, topic, index, offset, time_ms, start, throttle_ms)


@settings(max_examples=size(20, 300), deadline=None)
@given(topic_ids, st.lists(ids, min_size=5, max_size=5), longs, longs, longs, st.booleans(), sizes)
def test_fetched_frames_of_both_twins_are_equal(
    topic: bytes, numbers: list[int], high: int, stable: int, start: int, none_aborted: bool, records_bytes: int
) -> None:
    correlation_id, throttle_ms, session_id, index, replica = numbers
    aborted = () if none_aborted else None
    result = FetchPartitionResult(index, 3, high, stable, start, None, aborted, replica)
    compare("pack_one_fetched", correlation_id, throttle_ms, 5, session_id, topic, result, records_bytes)


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (3, 2), (0, 81), (81, 81), (1 << 40, 1 << 41)])
def test_range_outside_of_the_buffer_is_an_invariant_error(start: int, end: int) -> None:
    buffer = bytearray(80)
    for function, args in (
        ("read_client_id", (buffer, start, end, -1, True)),
        ("parse_one_produce", (13, buffer, start, end)),
        ("parse_one_fetch", (17, buffer, start, end)),
    ):
        assert str(compare(function, *args)).startswith("InvariantError")


@pytest.mark.parametrize(("topic", "records_bytes"), [(b"short", 1), (b"i" * 16, -1), (b"i" * 16, 0x7FFFFF01)])
def test_impossible_fetched_frame_is_an_invariant_error(topic: bytes, records_bytes: int) -> None:
    result = FetchPartitionResult(0, 0, 1, 1, 0)
    assert str(compare("pack_one_fetched", 1, 0, 0, 0, topic, result, records_bytes)).startswith("InvariantError")
