"""Produce requests: acknowledgements, offsets, idempotence, limits, refusals."""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.app.pool import MAX_THREADS
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.record.batch import ATTRIBUTES_POSITION, CRC_POSITION, MAX_TIMESTAMP_POSITION, iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.checksum import crc32c

from .harness import Connection, Server, batch_of, fetch_request, fetched, produce_request


def records_of(client: Connection, topic: str, offset: int = 0) -> bytes:
    partition = fetched(client.ask(fetch_request((topic, 0, offset)), 12))[(topic, 0)]
    assert partition.error_code == 0
    return bytes(partition.records)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends(client: Connection, version: int, acks: int) -> None:
    client.create_topic("t")
    for turn in range(2):
        answer = client.produce("t", b"a", b"b", acks=acks, version=version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, turn * 2, -1)


def test_topics_by_id(client: Connection) -> None:
    topic_id = client.create_topic("t")
    assert client.produce(topic_id, b"a").base_offset == 0
    assert client.produce(b"\x07" * 16, b"a").error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_fetched_bytes_equal_produced_bytes(client: Connection) -> None:
    client.create_topic("t")
    sent = [
        batch_of(b"x" * 10, b"y", compression=codec, key=b"k") for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ]
    for data in sent:
        assert client.ask(produce_request("t", records=data), 9).responses[0].partition_responses[0].error_code == 0
    got = records_of(client, "t")
    assert len(got) == sum(map(len, sent))
    position = 0
    for number, data in enumerate(sent):
        stored = got[position : position + len(data)]
        # Base offset and leader epoch are the broker's; everything under the CRC is the client's.
        assert stored[8:12] + stored[16:] == data[8:12] + data[16:]
        assert struct.unpack_from(">q", stored)[0] == number * 2
        position += len(data)


def test_many_partitions_in_one_request_are_answered_one_by_one(client: Connection) -> None:
    client.create_topic("t", 2)
    row = TopicProduceData(
        name="t",
        partition_data=[
            PartitionProduceData(index=0, records=batch_of(b"x")),
            PartitionProduceData(index=5, records=batch_of(b"x")),
            PartitionProduceData(index=1, records=batch_of(b"x")),
        ],
    )
    unknown = TopicProduceData(name="nope", partition_data=[PartitionProduceData(index=0, records=batch_of(b"x"))])
    response = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row, unknown]), 9)
    codes = [[part.error_code for part in topic.partition_responses] for topic in response.responses]
    assert codes == [[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]


def test_acks_0_has_no_answer_and_an_error_closes(server: Server, client: Connection) -> None:
    client.create_topic("t")
    assert client.send(produce_request("t", b"a", acks=0), 9)
    assert client.channel.answers.pop() == b""
    client.send(produce_request("nope", b"a", acks=0), 9)
    assert client.channel.closed
    assert "UNKNOWN_TOPIC_OR_PARTITION" in (client.channel.close_reason or "")
    assert server.connect().produce("t", b"b").base_offset == 1


def test_other_acks_are_refused_and_append_nothing(client: Connection) -> None:
    client.create_topic("t")
    assert client.produce("t", b"a", acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert client.produce("t", b"a").base_offset == 0


def test_too_few_in_sync_replicas_for_acks_all(client: Connection, server: Server) -> None:
    client.create_topic("t", min_insync_replicas="2")
    # A partition of one replica has all it can have, as in Apache Kafka.
    assert client.produce("t", b"a", acks=-1).base_offset == 0
    partition = server.broker.parts.replicas.find("t", 0)
    partition.update_state(partition.state._replace(replicas=(partition.node_id, 2)))
    assert client.produce("t", b"a", acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produce("t", b"a", acks=1).base_offset == 1


def test_idempotent_batches_are_deduplicated_and_gaps_refused(client: Connection) -> None:
    client.create_topic("t")
    ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    assert client.produce("t", b"a", b"b", base_sequence=0, **ids).base_offset == 0
    assert client.produce("t", b"c", base_sequence=2, **ids).base_offset == 2
    again = client.produce("t", b"a", b"b", base_sequence=0, **ids)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert client.produce("t", b"x", base_sequence=9, **ids).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce("t", b"d", base_sequence=3, **ids).base_offset == 3


def test_too_large_batch_is_refused(server: Server, client: Connection) -> None:
    client.create_topic("t", max_message_bytes="200")
    answer = client.produce("t", b"x" * 300)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "200" in (answer.error_message or "")
    assert server.counter("kafka_server_brokertopicmetrics_bytesrejected_total", topic="t") > 300
    assert client.produce("t", b"x" * 100).error_code == 0


@pytest.mark.parametrize("position", [20, 30, 62])
def test_a_flipped_byte_is_corrupt(client: Connection, position: int) -> None:
    client.create_topic("t")
    data = bytearray(batch_of(b"hello"))
    data[position] ^= 1
    answer = client.ask(produce_request("t", records=bytes(data)), 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert client.produce("t", b"a").base_offset == 0


@pytest.mark.parametrize("data", [b"", b"\0" * 60, batch_of(b"a") + batch_of(b"b")])
def test_exactly_one_batch(client: Connection, data: bytes) -> None:
    client.create_topic("t")
    answer = client.ask(produce_request("t", records=data), 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_clients_write_no_control_batches(client: Connection) -> None:
    client.create_topic("t")
    assert client.produce("t", b"a", is_control=True).error_code == ErrorCode.INVALID_RECORD


def test_zstd_needs_version_7(client: Connection) -> None:
    client.create_topic("t")
    old = client.produce("t", b"a", compression="zstd", version=6)
    assert old.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce("t", b"a", compression="zstd", version=7).error_code == 0


def test_log_append_time_is_returned_and_stored(client: Connection) -> None:
    client.create_topic("t", message_timestamp_type="LogAppendTime")
    answer = client.produce("t", b"a", timestamp=5)
    assert answer.log_append_time_ms > 1_700_000_000_000
    (batch,) = iter_batches(records_of(client, "t"))
    assert batch.max_timestamp == answer.log_append_time_ms
    assert batch.crc_matches()


@pytest.mark.promise("D2")
def test_append_reaching_flush_messages_waits_for_fsync(server: Server, client: Connection) -> None:
    client.create_topic("t", flush_messages="2")
    log = server.broker.parts.replicas.find("t", 0).log
    assert client.send(produce_request("t", b"a", acks=1), 9), "one record: nothing to wait for"
    assert client.answer().responses[0].partition_responses[0].base_offset == 0
    for acks in (1, -1):
        parked = not client.send(produce_request("t", b"a", b"b", acks=acks), 9)
        assert parked
        answer = client.answer().responses[0].partition_responses[0]
        assert answer.error_code == 0
        assert log.recovery_point > answer.base_offset + 1


def test_a_retry_waits_for_the_disk_like_the_first_attempt(server: Server, client: Connection) -> None:
    client.create_topic("t", flush_messages="1")
    log = server.broker.parts.replicas.find("t", 0).log
    ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    retry = server.connect()
    gate = threading.Event()
    for _ in range(MAX_THREADS):
        server.pool.submit(lambda: gate.wait(30), lambda *_: None)
    assert not client.send(produce_request("t", b"a", acks=1, **ids), 9)
    assert not retry.send(produce_request("t", b"a", acks=1, **ids), 9), "not yet on disk"
    assert log.recovery_point == 0
    gate.set()
    for connection in (client, retry):
        answer = connection.answer().responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
    assert retry.send(produce_request("t", b"a", acks=1, **ids), 9), "on disk, so at once"


@pytest.mark.promise("D2")
def test_consumers_see_nothing_that_still_waits_for_the_disk(server: Server, client: Connection) -> None:
    client.create_topic("t", flush_messages="1")
    reader = server.connect()
    assert not client.send(produce_request("t", b"a"), 9)
    partition = fetched(reader.ask(fetch_request(("t", 0, 0)), 12))[("t", 0)]
    assert (partition.high_watermark, bytes(partition.records)) == (0, b"")
    client.answer()
    assert fetched(reader.ask(fetch_request(("t", 0, 0)), 12))[("t", 0)].high_watermark == 1


def test_everything_survives_a_restart_and_epochs_rise(make_server: Callable[..., Server]) -> None:
    server = make_server()
    client = server.connect()
    topic_id = client.create_topic("t", retention_ms="123456789")
    # A producer expires by the time of its records, so they have today's timestamps.
    ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "timestamp": int(time.time() * 1000)}
    client.produce("t", b"a", base_sequence=0, **ids)
    before = server.broker.parts.replicas.find("t", 0).leader_epoch
    cluster_id = server.broker.cluster_id
    server.restart()
    client = server.connect()
    partition = server.broker.parts.replicas.find(topic_id, 0)
    assert server.broker.cluster_id == cluster_id
    assert partition.leader_epoch > before
    assert partition.log.config.retention_ms == 123456789
    assert partition.high_watermark == 1
    assert client.produce("t", b"a", base_sequence=0, **ids).base_offset == 0, "still known as a duplicate"
    assert client.produce("t", b"b", base_sequence=1, **ids).base_offset == 1
    epochs = [batch.partition_leader_epoch for batch in iter_batches(records_of(client, "t"))]
    assert epochs == [before, partition.leader_epoch]


def produced(client: Connection, topic: str, *records: RecordData, compression: str) -> PartitionProduceResponse:
    batch = bytes(build_batch(records, compression=compression))
    return client.ask(produce_request(topic, records=batch), 9).responses[0].partition_responses[0]


CODECS = pytest.mark.parametrize("compression", ["none", "gzip"])


@CODECS
def test_every_record_without_a_key_is_named(server: Server, client: Connection, compression: str) -> None:
    client.create_topic("t", cleanup_policy="compact")
    assert client.produce("t", b"a", b"b", key=b"k").error_code == 0
    server.broker.parts.replicas.find("t", 0).log.maybe_increment_log_start_offset(1)
    records = [RecordData(5, None if number in (1, 3, 4, 6) else b"k", b"v") for number in range(8)]
    refused = produced(client, "t", *records, compression=compression)
    reason = "Compacted topic cannot accept message without key in topic partition t-0"
    assert [(error.batch_index, error.batch_index_error_message) for error in refused.record_errors] == [
        (number, reason) for number in (1, 3, 4, 6)
    ]
    shown = ", ".join(f"RecordError(batchIndex={number}, message='{reason}')" for number in (1, 3, 4))
    assert refused.error_message == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (ErrorCode.INVALID_RECORD, -1, 1)


@CODECS
@pytest.mark.parametrize("narrow", [True, False])
def test_every_record_with_a_timestamp_out_of_range_is_named(
    client: Connection, narrow: bool, compression: str
) -> None:
    before, after = (3_600_000, 600_000) if narrow else ((1 << 63) - 1, 3_600_000)
    configs: dict[str, Any] = {
        "message_timestamp_before_max_ms": str(before),
        "message_timestamp_after_max_ms": str(after),
    }
    client.create_topic("t", **(configs if narrow else {}))
    now = client.server.broker.parts.node_runtime.clock.time_ms()
    times = [now, now + 7_200_000, now, now + 7_200_001, -1]
    refused = produced(client, "t", *(RecordData(time, None, b"v") for time in times), compression=compression)
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    for error in refused.record_errors:
        number = error.batch_index
        said = re.fullmatch(
            rf"Timestamp {times[number]} of message with offset {number} is out of range. "
            r"The timestamp should be within \[(-?\d+), (\d+)\]",
            error.batch_index_error_message or "",
        )
        assert said is not None
        assert int(said[2]) - int(said[1]) == before + after
        assert now + after <= int(said[2]) <= now + after + 600_000
    assert refused.error_message == "One or more records have been rejected due to invalid timestamp"
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.INVALID_TIMESTAMP, 0)
    early = produced(
        client, "t", RecordData(now - before - 1, None, b"v") if narrow else RecordData(0), compression=compression
    )
    assert early.error_code == (ErrorCode.INVALID_TIMESTAMP if narrow else 0)
    assert len(early.record_errors) == narrow


@CODECS
def test_a_bounded_number_of_refused_records_is_named(client: Connection, compression: str) -> None:
    client.create_topic("t", cleanup_policy="compact")
    batch = bytes(build_batch([RecordData(5, None, b"v")] * 1200, compression=compression))
    row = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch) for _ in range(12)])
    answers = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row]), 9).responses[0].partition_responses
    assert [len(answer.record_errors) for answer in answers] == [1000] * 10 + [0] * 2
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_RECORD}
    assert all("due to 1200 record errors in total" in answer.error_message for answer in answers)


@pytest.mark.parametrize("acks", [1, -1])
def test_batches_of_compacted_topics_are_inspected_in_the_pool(client: Connection, acks: int) -> None:
    client.create_topic("t", cleanup_policy="compact")
    good = batch_of(b"x" * 500, key=b"k", compression="zstd")
    assert not client.send(produce_request("t", records=good, acks=acks), 9), "parked while the pool decompresses"
    assert client.answer().responses[0].partition_responses[0].base_offset == 0
    assert client.produce("t", b"y", compression="gzip", acks=acks).error_code == ErrorCode.INVALID_RECORD
    assert client.send(produce_request("t", b"z", key=b"k", acks=acks), 9), "nothing to decompress"
    assert client.answer().responses[0].partition_responses[0].base_offset == 1


@CODECS
@pytest.mark.parametrize("level", ["topic", "broker"])
@pytest.mark.parametrize("topic", [{}, {"cleanup_policy": "compact"}, {"compression_type": "zstd"}])
def test_large_records_are_refused_behind_compression_alone(
    make_server: Callable[..., Server], level: str, topic: dict[str, Any], compression: str
) -> None:
    limit: dict[str, Any] = {"max_decompressed_message_bytes": "1005"}
    server = make_server(**(limit if level == "broker" else {}))
    client = server.connect()
    client.create_topic("t", **topic, **(limit if level == "topic" else {}))
    compressed = compression != "none"
    fits, large = b"x" * 997, b"x" * 998
    assert client.produce("t", fits, fits, key=b"k", compression=compression).error_code == 0, "a record, not the batch"
    answer = client.produce("t", fits, large, key=b"k", compression=compression)
    assert answer.error_code == (ErrorCode.INVALID_RECORD if compressed else 0)
    if compressed:
        assert answer.error_message == "a record of 1006 bytes decompressed is larger than " + (
            "max.decompressed.message.bytes, 1005"
        )
    before = client.send(produce_request("t", fits, key=b"k", compression=compression), 9)
    assert bool(before) == (not compressed and "compression_type" not in topic), "opened off the loop"
    assert client.answer().responses[0].partition_responses[0].error_code == 0


def without_max_timestamp(batch: bytes) -> bytes:
    """Sent by Sarama: -1, under a correct CRC."""
    data = bytearray(batch)
    struct.pack_into(">q", data, MAX_TIMESTAMP_POSITION, -1)
    struct.pack_into(">I", data, CRC_POSITION, crc32c(bytes(data[ATTRIBUTES_POSITION:])))
    return bytes(data)


@pytest.mark.parametrize("acks", [1, -1])
def test_missing_max_timestamp_is_repaired_in_the_pool(client: Connection, acks: int) -> None:
    client.create_topic("t", 2)
    batch = batch_of(b"x", b"y", compression="zstd", timestamp=1_700_000_000_000)
    good = PartitionProduceData(index=0, records=batch)
    bad = PartitionProduceData(index=1, records=without_max_timestamp(batch))
    request = ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[good, bad])]
    )
    assert not client.send(request, 9), "parked, before anything was appended"
    assert fetched(client.server.connect().ask(fetch_request(("t", 0, 0)), 12))[("t", 0)].high_watermark == 0
    answers = client.answer().responses[0].partition_responses
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 0)]
    stored = bytes(fetched(client.ask(fetch_request(("t", 1, 0)), 12))[("t", 1)].records)
    assert stored[16:] == batch[16:], "with the timestamp, and the CRC that it had with it"
    plain = without_max_timestamp(batch_of(b"x", timestamp=1_700_000_000_000))
    assert client.send(produce_request("t", records=plain), 9), "nothing to decompress"
    assert client.answer().responses[0].partition_responses[0].error_code == 0


def test_a_topic_with_its_own_codec_recompresses_off_the_loop(client: Connection) -> None:
    client.create_topic("t", compression_type="zstd", flush_messages="2")
    codecs = ("none", "gzip", "zstd", "lz4")
    for number, codec in enumerate(codecs):
        parked = not client.send(produce_request("t", b"x" * 100, b"y", compression=codec), 9)
        assert parked
        answer = client.answer().responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, number * 2)
    batches = list(iter_batches(records_of(client, "t")))
    assert [batch.compression for batch in batches] == ["zstd"] * 4
    assert [record.value for batch in batches for record in batch.records()] == [b"x" * 100, b"y"] * 4


def test_decompression_leaves_threads_for_the_disk(server: Server, client: Connection) -> None:
    client.create_topic("t", flush_messages="1")
    gate = threading.Event()
    ended: list[bool | None] = []
    for _ in range(20):
        server.broker.contexts.data.compute_pool.submit(lambda: gate.wait(30), lambda result, _: ended.append(result))
    assert client.produce("t", b"a").error_code == 0, "its fsync found a free thread"
    assert not ended
    gate.set()
    server.run_until(lambda: ended == [True] * 20)


def test_a_large_request_takes_turns_with_others(server: Server, client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact")
    good = batch_of(b"x" * 700_000, key=b"k", compression="zstd")
    row = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=good) for _ in range(20)])
    gate = threading.Event()  # one thread is left, so that turns, and not the system's scheduler, define the order
    server.broker.contexts.data.compute_pool.submit(lambda: gate.wait(30), lambda *_: None)
    client.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row]), 9)
    other = server.connect()
    other.send(produce_request("t", records=good), 9)
    assert other.answer().responses[0].partition_responses[0].base_offset == 0, "sent second, done first"
    gate.set()
    answers = client.answer().responses[0].partition_responses
    assert [answer.base_offset for answer in answers] == list(range(1, 21))


def test_small_batches_do_not_wait_behind_large_ones(server: Server, client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact", max_message_bytes=str(1 << 20))
    large = bytes(build_batch([RecordData(5, b"k", bytes(100 << 20))], compression="zstd"))
    others = [server.connect() for _ in range(12)]
    for other in others:
        other.send(produce_request("t", records=large), 9)
    client.send(produce_request("t", b"v", key=b"k", compression="gzip"), 9)
    assert client.answer().responses[0].partition_responses[0].error_code == 0
    assert sum(len(other.channel.answers) for other in others) < 4, "sent last, it waited for one turn of each"
    for other in others:
        assert other.answer().responses[0].partition_responses[0].error_code == 0


def test_the_large_batches_of_a_request_go_one_by_one(server: Server, client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact", compression_type="lz4")
    large = batch_of(bytes(20 << 20), key=b"k", compression="zstd")
    small = batch_of(b"v", key=b"k", compression="gzip")
    row = [PartitionProduceData(index=0, records=data) for data in (small, large, large, small, large)]
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=row)])
    answers = client.ask(request, 9).responses[0].partition_responses
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, offset) for offset in range(5)]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -5, 19), ("gzip", 1, -1)])
def test_the_level_of_a_topics_codec_counts(client: Connection, codec: str, low: int, high: int) -> None:
    words = [b"%d %s" % (number * number % 977, b"abcdefgh"[number % 7 :]) for number in range(5000)]
    sizes = []
    for level in (low, high):
        configs: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": str(level)}
        client.create_topic(f"t{level}", **configs)
        assert client.produce(f"t{level}", b" ".join(words)).error_code == 0
        stored = records_of(client, f"t{level}")
        sizes.append(len(stored))
        assert next(next(iter_batches(stored)).records()).value == b" ".join(words)
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_a_codec_that_does_not_exist(client: Connection, codec_id: int) -> None:
    topics: dict[str, dict[str, Any]] = {
        "plain": {},
        "zstd": {"compression_type": "zstd"},
        "keys": {"cleanup_policy": "compact"},
    }
    for name, configs in topics.items():
        client.create_topic(name, **configs)
        batch = bytearray(batch_of(b"x", key=b"k"))
        batch[22] = codec_id
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
        answer = client.ask(produce_request(name, records=bytes(batch)), 9).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_a_refusal_off_the_loop_closes_acks_0(server: Server, client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact")
    client.send(produce_request("t", b"x", compression="gzip", acks=0), 9)
    server.run_until(lambda: client.channel.closed)
    other = server.connect()
    assert not other.send(produce_request("t", b"x", key=b"k", compression="gzip", acks=0), 9)
    server.run_until(lambda: other.channel.answers == [b""])


def test_settings_select_the_inspected_batches(server: Server, client: Connection) -> None:
    replicas = server.broker.parts.replicas
    topic_id = client.create_topic("t", cleanup_policy="compact")
    assert list(replicas.inspected_topics) == ["t", topic_id]
    client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert not replicas.inspected_topics
