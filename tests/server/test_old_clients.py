"""Clients from before record batches: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0, OffsetCommit and OffsetFetch 0."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.metrics.exposition import render
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.record.batch import NO_TIMESTAMP, iter_batches
from ottla.record.compression import GZIP, LZ4, NONE, SNAPPY
from ottla.record.legacy.message_set import Message, append_message_set, messages_of, read_entry
from ottla.server.wiring.request_series import RequestSeries

from .virtual_time import VirtualTime


def message_set(values, magic, codec=NONE, timestamp=1_700_000_000_000):
    out = bytearray()
    append_message_set(
        out, [Message(i, timestamp if magic else -1, b"k", v) for i, v in enumerate(values)], magic, codec
    )
    return bytes(out)


def send(client, version, records, topic="t", acks=1):
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    response = client.ask(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data), version)
    return response.responses[0].partition_responses[0]


def fetch_request(offset, wait_ms=0, max_bytes=1 << 20):
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])


def entries(records):
    view = memoryview(records)
    position = 0
    while (entry := read_entry(view, position, len(view))) is not None:
        yield entry
        position += entry.size_bytes


def receive(client, version, offset=0, **more):
    answer = client.ask(fetch_request(offset, **more), version).responses[0].partitions[0]
    assert answer.error_code == 0
    magic = 0 if version < 2 else 1
    found = list(entries(answer.records))
    assert {entry.magic for entry in found} <= {magic}
    return [
        (m.offset, m.timestamp_ms, None if m.value is None else bytes(m.value)) for e in found for m in messages_of(e)
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_new_consumer_reads_records_of_an_old_producer(client, version, codec):
    client.create_topic("t")
    magic = 1 if version == 2 else 0
    answer = send(client, version, message_set([b"a", None, b"c"], magic, codec))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert send(client, version, message_set([b"d"], magic, codec)).base_offset == 3
    records = client.ask(fetch_request(0), 11).responses[0].partitions[0].records
    batches = list(iter_batches(bytes(records)))
    assert [batch.codec_id for batch in batches] == [codec] * 2
    time = 1_700_000_000_000 if magic else NO_TIMESTAMP
    assert [(r.offset, r.timestamp, r.key, r.value) for batch in batches for r in batch.records()] == [
        (i, time, b"k", value) for i, value in enumerate([b"a", None, b"c", b"d"])
    ]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_old_consumer_reads_records_of_a_new_producer(client, version, codec):
    client.create_topic("t")
    client.produce("t", b"a", b"b", compression=codec)
    client.produce("t", b"c", compression=codec)
    assert [(offset, value) for offset, _, value in receive(client, version)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [value for _, _, value in receive(client, version, 2)] == [b"c"]


@pytest.mark.parametrize("version", [0, 3])
def test_an_old_consumer_waits_for_records(server, client, version):
    client.create_topic("t")
    assert not client.send(fetch_request(0, wait_ms=20_000), version)
    server.connect().produce("t", b"a")
    answer = client.answer().responses[0].partitions[0]
    assert [bytes(entry.value) for entry in entries(answer.records)] == [b"a"]


def test_zstd_is_refused_to_an_old_consumer(client):
    client.create_topic("t")
    client.produce("t", b"a", compression="zstd")
    answer = client.ask(fetch_request(0), 3).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert not answer.records


def test_a_small_fetch_gets_one_batch_whole(client):
    client.create_topic("t")
    client.produce("t", b"a" * 1000)
    assert [offset for offset, _, _ in receive(client, 0, max_bytes=10)] == [0]


def test_refused_sets_are_answered_and_nothing_is_appended(client):
    client.create_topic("t")
    good = message_set([b"a"], 1)
    assert send(client, 2, good[:-1] + b"!").error_code == ErrorCode.CORRUPT_MESSAGE
    assert send(client, 2, b"").error_code == ErrorCode.INVALID_RECORD
    assert send(client, 2, message_set([b"a"], 1, GZIP) + good).error_code == ErrorCode.INVALID_RECORD
    assert send(client, 2, good, topic="none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(client, 2, good).base_offset == 0


def test_topic_configs_apply_to_old_producers(client):
    client.create_topic("t", cleanup_policy="compact", max_message_bytes="1000")
    out = bytearray()
    append_message_set(out, [Message(0, 1_700_000_000_000, None, b"v")], 1, NONE)
    assert send(client, 2, bytes(out)).error_code == ErrorCode.INVALID_RECORD
    assert send(client, 2, message_set([b"v" * 1000], 1)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert send(client, 2, message_set([b"v"], 1, GZIP)).error_code == 0


def test_conversions_are_counted_by_topic_and_timed(server, client):
    client.create_topic("t")
    statistics = server.broker.parts.statistics
    send(client, 2, message_set([b"a", b"b"], 1))
    send(client, 2, message_set([b"c"], 1, GZIP))
    send(client, 2, b"")
    client.produce("t", b"d")
    receive(client, 0)
    receive(client, 3, 3)
    text = b"".join(render(server.registry, [RequestSeries(statistics, VirtualTime())])).decode()
    family = "kafka_server_brokertopicmetrics_{}messageconversions_total"
    for name, count in (("produce", 3), ("fetch", 5)):
        assert f"{family.format(name)} {count}\n" in text
        assert f'{family.format(name)}{{topic="t"}} {count}\n' in text
    times = "kafka_network_requestmetrics_messageconversionstimems_count"
    assert f'{times}{{request="Produce"}} 3\n' in text
    assert f'{times}{{request="Fetch"}} 2\n' in text
    assert f'{times}{{request="CreateTopics"}}' not in text
    statistics.forget_topic("t")
    assert 'messageconversions_total{topic="t"}' not in b"".join(render(server.registry)).decode()


def test_old_producer_with_acks_0_keeps_its_order(client):
    client.create_topic("t")
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=message_set([b"a"], 0))])]
    client.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=data), 0)
    client.server.run_until(lambda: bool(client.channel.answers))
    assert client.channel.answers.pop() == b""


def list_offsets(client, timestamp, count):
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    answer = client.ask(request, 0).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.old_style_offsets


def test_offsets_by_segments(client):
    client.create_topic("t", segment_bytes="1048576")
    assert (list_offsets(client, -1, 1), list_offsets(client, -2, 1)) == ([0], [0])
    for _ in range(3):
        client.produce("t", b"x" * 700_000)
    assert list_offsets(client, -1, 9) == [3, 2, 1, 0]
    assert (list_offsets(client, -1, 1), list_offsets(client, -2, 9), list_offsets(client, -1, 0)) == ([3], [0], [])
    assert list_offsets(client, 1, 9) == []
    assert list_offsets(client, 1 << 50, 2) == [3, 2]


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_old_clients_are_those_of_the_group(client, version):
    client.create_topic("t")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="m")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    client.coordinate("g")
    committed = client.ask(OffsetCommitRequest(group_id="g", topics=topics), version)
    assert committed.topics[0].partitions[0].error_code == 0
    for asked in (0, 1, 5):
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        answer = client.ask(request, asked).topics[0].partitions[0]
        assert (answer.committed_offset, answer.metadata, answer.error_code) == (7, "m", 0)
