"""The hand-written Produce and Fetch codecs against the compiled declarations, on the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ProtocolError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.protocol.codec import write_message
from ottla.protocol.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    FetchPartition,
    FetchPartitionResult,
    encode_fetch_response,
    parse_fetch,
)
from ottla.protocol.header import decode_response, encode_response
from ottla.protocol.messages import fetch as fetch_messages
from ottla.protocol.messages import produce as produce_messages
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.produce import (
    ProducePartitionResult,
    RecordError,
    encode_produce_response,
    encode_single_produce_response,
    parse_produce,
)
from ottla.protocol.registry import ApiKey

PRODUCE_VERSIONS = range(14)
FETCH_VERSIONS = range(19)

ids = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
codes = st.integers(-1, 133)
names = st.one_of(st.text(max_size=5), st.sampled_from(["a" * 126, "b" * 127, "c" * 249]))
topic_ids = st.binary(min_size=16, max_size=16)
pairs = st.one_of(st.none(), st.tuples(ids, ids))
endpoints = st.lists(st.builds(NodeEndpoint, ids, names, ids, st.one_of(st.none(), names)), max_size=2)


class Region:
    """A file region over bytes, which counts its releases."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.released = 0

    @property
    def length(self) -> int:
        return len(self.data)

    def read_into(self, view: memoryview, start: int) -> int:
        part = self.data[start : start + len(view)]
        view[: len(part)] = part
        return len(part)

    try_read_into = read_into

    def release(self) -> None:
        self.released += 1


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.data if isinstance(part, Region) else bytes(part) for part in parts)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests(version, message_of):
    @settings(max_examples=size(4, 40), deadline=None)
    @given(message_of(produce_messages.ProduceRequest, version), st.binary(max_size=40))
    def check(message, around):
        body = bytearray()
        write_message(message, version, body)
        buffer = bytearray(around + body + around)
        parsed = parse_produce(version, buffer, len(around), len(around) + len(body))
        assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (
            message.transactional_id,
            message.acks,
            message.timeout_ms,
        )
        found = [(topic, [(i, bytes(buffer[a:b])) for i, a, b in parts]) for topic, parts in parsed.topics]
        expected = [
            (t.topic_id if version >= 13 else t.name, [(p.index, p.records or b"") for p in t.partition_data])
            for t in message.topic_data
        ]
        assert found == expected

    check()


@pytest.mark.parametrize("version", range(9, 14))
@settings(max_examples=size(4, 40), deadline=None)
@given(data=st.data(), index=ids, records=st.sampled_from([b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20000]))
def test_single_partition_produce_parser_equals_general(version, data, index, records):
    topic = data.draw(topic_ids if version >= 13 else names)
    partitions = [produce_messages.PartitionProduceData(index=index, records=records)]
    named = {"topic_id" if version >= 13 else "name": topic}
    topics = [produce_messages.TopicProduceData(**named, partition_data=partitions)]
    body = bytearray()
    write_message(produce_messages.ProduceRequest(acks=-1, timeout_ms=7, topic_data=topics), version, body)
    around = data.draw(st.binary(max_size=40))
    unknown_tag = b"\x01\x63\x00"
    for whole in (body, body[:-1] + unknown_tag):
        buffer = bytearray(around + whole + around)
        parsed = parse_produce(version, buffer, len(around), len(around) + len(whole))
        assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms, parsed.partition_count) == (None, -1, 7, 1)
        ((found_topic, ((found_index, start, stop),)),) = parsed.topics
        assert (found_topic, found_index, bytes(buffer[start:stop])) == (topic, index, records)
    for end in range(len(around), len(around) + min(len(body), 400)):
        with pytest.raises(ProtocolError):
            parse_produce(version, bytearray(around + body + around), len(around), end)


produce_results = st.builds(
    ProducePartitionResult,
    ids,
    codes,
    longs,
    longs,
    longs,
    st.lists(st.builds(RecordError, ids, st.one_of(st.none(), names)), max_size=2),
    st.one_of(st.none(), names),
    pairs,
)


def declared_produce(version: int, topics, throttle_ms: int, nodes) -> produce_messages.ProduceResponse:
    def partition(result):
        leader = result.current_leader or (-1, -1)
        return produce_messages.PartitionProduceResponse(
            index=result.partition_index,
            error_code=result.error_code,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
            record_errors=[
                produce_messages.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text)
                for i, text in result.record_errors
            ],
            error_message=result.error_message,
            current_leader=produce_messages.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        )

    return produce_messages.ProduceResponse(
        responses=[
            produce_messages.TopicProduceResponse(
                **{"topic_id" if version >= 13 else "name": topic},
                partition_responses=[partition(result) for result in results],
            )
            for topic, results in topics
        ],
        throttle_time_ms=throttle_ms,
        node_endpoints=[produce_messages.NodeEndpoint(**node._asdict()) for node in nodes],
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses(version):
    topic = topic_ids if version >= 13 else names
    bodies = st.lists(st.tuples(topic, st.lists(produce_results, max_size=3)), max_size=3)

    @settings(max_examples=size(4, 40), deadline=None)
    @given(ids, bodies, ids, endpoints)
    def check(correlation_id, topics, throttle_ms, nodes):
        expected = encode_response(
            ApiKey.PRODUCE, version, correlation_id, declared_produce(version, topics, throttle_ms, nodes)
        )
        assert encode_produce_response(version, correlation_id, topics, throttle_ms, nodes) == expected

    check()


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=size(4, 20), deadline=None)
@given(data=st.data())
def test_single_produce_response_is_the_general_one(version, data):
    topic = data.draw(topic_ids if version >= 13 else names)
    index, offset, time_ms, start, throttle_ms = (data.draw(s) for s in (ids, longs, longs, longs, ids))
    general = encode_produce_response(
        version, 7, [(topic, [ProducePartitionResult(index, 0, offset, time_ms, start)])], throttle_ms
    )
    assert encode_single_produce_response(version, 7, topic, index, offset, time_ms, start, throttle_ms) == general


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests(version, message_of):
    @settings(max_examples=size(4, 40), deadline=None)
    @given(message_of(fetch_messages.FetchRequest, version), st.binary(max_size=40))
    def check(message, around):
        body = bytearray()
        write_message(message, version, body)
        buffer = bytearray(around + body + around)
        parsed = parse_fetch(version, buffer, len(around), len(around) + len(body))
        for name in ("cluster_id", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "rack_id"):
            assert getattr(parsed, name) == getattr(message, name)
        assert (parsed.session_id, parsed.session_epoch) == (message.session_id, message.session_epoch)
        state = message.replica_state
        if version < 15:
            assert (parsed.replica_id, parsed.replica_state) == (message.replica_id, (message.replica_id, -1))
        else:
            assert (parsed.replica_id, *parsed.replica_state) == (state.replica_id, *parsed.replica_state)
            assert parsed.replica_state == (state.replica_id, state.replica_epoch)
        key = "topic_id" if version >= 13 else "topic"
        assert parsed.forgotten == [(getattr(t, key), t.partitions) for t in message.forgotten_topics_data]
        assert parsed.topics == [
            (getattr(t, key), [FetchPartition(*(getattr(p, n) for n in FetchPartition._fields)) for p in t.partitions])
            for t in message.topics
        ]

    check()


@pytest.mark.parametrize("tagged", [{0}, {1}, {2}, {0, 2}, set()])
def test_fetch_partitions_with_and_without_tags_side_by_side(tagged):
    rows = [
        FetchPartition(index, 1, index << 40, 2, 3, 4, *((b"d" * 16, 7) if index in tagged else ()))
        for index in range(3)
    ]
    topics = [
        fetch_messages.FetchTopic(topic_id=b"t" * 16, partitions=[fetch_messages.FetchPartition(**row._asdict())])
        for row in rows
    ]
    topics.append(
        fetch_messages.FetchTopic(
            topic_id=b"u" * 16, partitions=[fetch_messages.FetchPartition(**row._asdict()) for row in rows]
        )
    )
    body = bytearray()
    write_message(fetch_messages.FetchRequest(topics=topics), 18, body)
    parsed = parse_fetch(18, body, 0, len(body))
    assert parsed.topics == [*((b"t" * 16, [row]) for row in rows), (b"u" * 16, rows)]
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            parse_fetch(18, body, 0, end)


def test_fetch_partition_defaults_are_those_of_the_declaration():
    declared = fetch_messages.FetchPartition()
    assert (declared.replica_directory_id, declared.high_watermark) == (ZERO_UUID, UNKNOWN_HIGH_WATERMARK)


fetch_results = st.builds(
    FetchPartitionResult,
    ids,
    codes,
    longs,
    longs,
    longs,
    st.one_of(
        st.none(),
        st.sampled_from([b"", b"r", b"r" * 126, b"r" * 127, b"r" * 1024, b"r" * 1025]),
        st.sampled_from([b"", b"r" * 100, b"r" * 20000]).map(Region),
    ),
    st.one_of(st.none(), st.lists(st.tuples(longs, longs), max_size=2)),
    ids,
    st.one_of(st.none(), st.tuples(ids, longs)),
    pairs,
    st.one_of(st.none(), st.tuples(longs, ids)),
)


def declared_fetch(version: int, throttle_ms, error_code, session_id, topics, nodes) -> fetch_messages.FetchResponse:
    def partition(result):
        records = result.records
        diverging, leader = result.diverging_epoch or (-1, -1), result.current_leader or (-1, -1)
        snapshot = result.snapshot_id or (-1, -1)
        aborted = result.aborted_transactions
        return fetch_messages.PartitionData(
            partition_index=result.partition_index,
            error_code=result.error_code,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            records=records.data if isinstance(records, Region) else records or b"",
            aborted_transactions=aborted
            and [fetch_messages.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
            preferred_read_replica=result.preferred_read_replica,
            diverging_epoch=fetch_messages.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
            current_leader=fetch_messages.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
            snapshot_id=fetch_messages.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]),
        )

    return fetch_messages.FetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        responses=[
            fetch_messages.FetchableTopicResponse(
                **{"topic_id" if version >= 13 else "topic": topic},
                partitions=[partition(result) for result in results],
            )
            for topic, results in topics
        ],
        node_endpoints=[fetch_messages.NodeEndpoint(**node._asdict()) for node in nodes],
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses(version):
    topic = topic_ids if version >= 13 else names
    bodies = st.lists(st.tuples(topic, st.lists(fetch_results, max_size=3)), max_size=3)

    @settings(max_examples=size(4, 40), deadline=None)
    @given(ids, ids, codes, ids, bodies, endpoints)
    def check(correlation_id, throttle_ms, error_code, session_id, topics, nodes):
        regions = [r.records for _, results in topics for r in results if isinstance(r.records, Region)]
        before = [region.released for region in regions]
        answer = (throttle_ms, error_code, session_id, topics, nodes)
        parts: list[Any] = encode_fetch_response(version, correlation_id, *answer)
        message = declared_fetch(version, *answer)
        assert joined(parts) == encode_response(ApiKey.FETCH, version, correlation_id, message)
        assert all(len(part) for part in parts if not isinstance(part, Region))
        handed_over = [part for part in parts if isinstance(part, Region)]
        assert all(region.length for region in handed_over)
        for region, count in zip(regions, before, strict=True):
            assert (region in handed_over) != (region.released > count)

    check()


@pytest.mark.parametrize("version", range(13, 19))
@settings(max_examples=size(4, 40), deadline=None)
@given(
    topic=topic_ids,
    result=st.builds(
        FetchPartitionResult,
        ids,
        codes,
        longs,
        longs,
        longs,
        st.one_of(st.none(), st.sampled_from([0, 1, 126, 127, 16383, 20000]).map(lambda size: Region(b"r" * size))),
        st.sampled_from([None, ()]),
        ids,
        st.none(),
        st.none(),
        st.none(),
    ),
    error_code=codes,
)
def test_a_fetch_response_of_one_partition(version, topic, result, error_code):
    parts = encode_fetch_response(version, 7, 8, error_code, 9, [(topic, [result])])
    declared = declared_fetch(version, 8, error_code, 9, [(topic, [result])], [])
    assert joined(parts) == encode_response(ApiKey.FETCH, version, 7, declared)
    if result.records is not None:
        assert (result.records in parts) == (result.records.length > 0) == (not result.records.released)


def test_fetch_answer_is_read_by_the_client_side():
    region: Any = Region(b"batch" * 1000)
    parts = encode_fetch_response(17, 5, 0, 0, 3, [(b"i" * 16, [FetchPartitionResult(0, 0, 9, 9, 0, region)])])
    assert [type(part) for part in parts] == [bytes, Region, bytes]
    correlation_id, response = decode_response(ApiKey.FETCH, 17, joined(parts)[4:])
    assert (correlation_id, response.session_id) == (5, 3)
    assert response.responses[0].partitions[0].records == region.data
