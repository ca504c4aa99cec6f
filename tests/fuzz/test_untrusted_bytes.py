"""Untrusted bytes that concern a broker without authentication, one class after the other, over sockets.

Published vulnerabilities of other brokers: each is tried on a real process, which must refuse it, stay small, and keep
serving.
"""

from __future__ import annotations

import itertools
import os
import random
import select
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cramjam
import pytest

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import ErrorCode
from ottla.protocol.codec import write_message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API, ApiKey
from ottla.record.batch import BATCH_HEADER, HEADER_SIZE, LOG_OVERHEAD
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

from .generator import HUGE_VARINT, INT32_MAX, header, unsigned, with_crc
from .memory import Growth, unread_bytes
from .wire import Wire

LIMIT = 104_857_600  # socket.request.max.bytes
MEGABYTE = 1 << 20
QUICK_S = 5.0
ENDED_S = 60.0
FUTURE = 1_750_000_000_000
"""A timestamp later than that of any honest record here."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Cluster(running.bootstrap_servers) as cluster:
            cluster.topics.create("plain", 1)
            cluster.topics.create("bombs", 1)
            cluster.topics.create("compacted", 1, configs={"cleanup.policy": "compact"})
            cluster.topics.create("recompressed", 1, configs={"compression.type": "gzip"})
        yield running


@pytest.fixture(autouse=True)
def unharmed(broker) -> Iterator[None]:
    """Every test here leaves a broker that answers soon, and no traceback."""
    yield
    begin = time.monotonic()
    with Wire(broker.port) as wire:
        assert wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None)).topics
    assert time.monotonic() - begin < QUICK_S
    assert "Traceback" not in broker.logs()


def cpu_seconds(broker: Broker) -> float:
    """CPU seconds used by the broker so far."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def refused(broker: Broker, request: bytes) -> None:
    """The broker closes the connection on `request`, soon and without a word."""
    begin = time.monotonic()
    with Wire(broker.port) as wire:
        wire.send(request)
        assert wire.closed_by_broker()
    assert time.monotonic() - begin < QUICK_S


def produce(wire: Wire, topic: str, records: bytes, version: int = 9, **fields: Any) -> int:
    """The error code of a produce to partition 0."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    message = ProduceRequest(**{"acks": -1, "timeout_ms": 1000, **fields}, topic_data=[data])
    return wire.ask(ApiKey.PRODUCE, version, message).responses[0].partition_responses[0].error_code


# Data of group members remains until their session ends.


SESSION_MS = 60_000
"""Longer than a busy machine takes for 400 MB of requests: the first must still be there when the last has come."""


def join(group: str, size: int) -> JoinGroupRequest:
    """A consumer with `size` bytes of metadata."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )


def test_metadata_of_members_takes_a_bounded_amount_of_memory(broker):
    large = MEGABYTE - 1000
    with Wire(broker.port) as wire:
        coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["large"])
        while wire.ask(ApiKey.FIND_COORDINATOR, 4, coordinator).coordinators[0].error_code:
            time.sleep(0.05)
        for size in (2, 20, 90):
            assert (
                wire.ask(ApiKey.JOIN_GROUP, 3, join("large", size * MEGABYTE)).error_code == ErrorCode.INVALID_REQUEST
            )
        growth = Growth(broker.pid)
        for first in range(0, 400, 25):
            with ExitStack() as stack:
                for number in range(first, first + 25):
                    body = bytearray()
                    write_message(join(f"large-{number}", large), 3, body)
                    other = stack.enter_context(Wire(broker.port))
                    other.send(header(ApiKey.JOIN_GROUP, 3) + body)
                    # A reset: no end of input for the broker to wait for. The state of the connection is released with
                    # it.
                    other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                while unread_bytes(broker.port):
                    time.sleep(0.01)
        begin = time.monotonic()
        assert wire.ask(ApiKey.JOIN_GROUP, 4, join("honest", 100)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert time.monotonic() - begin < QUICK_S
        more = itertools.count()  # on a slow machine the sessions of the first are over by now
        while wire.ask(ApiKey.JOIN_GROUP, 3, join(f"more-{next(more)}", large)).error_code == ErrorCode.NONE:
            assert growth.bytes < 300 * MEGABYTE
        last = wire.ask(ApiKey.JOIN_GROUP, 3, join("one-more", large)).error_code
        assert last == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert growth.bytes < 300 * MEGABYTE  # 128 of them as members, and the buffers of 25 connections
    with Wire(broker.port) as wire:  # their sessions end
        deadline = time.monotonic() + 4 * SESSION_MS / 1000
        while wire.ask(ApiKey.JOIN_GROUP, 3, join("later", large)).error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline
            time.sleep(0.2)


# CVE-2022-34917: memory for a length that was only announced.


@pytest.mark.parametrize("size", [-1, -(1 << 31), LIMIT + 1, INT32_MAX])
def test_frame_sizes_outside_the_limit_close_at_once(broker, size):
    with Wire(broker.port) as wire:
        wire.send_raw(struct.pack(">i", size))
        assert wire.closed_by_broker()


@pytest.mark.promise("S1")
def test_announced_frames_cost_only_what_has_arrived(broker):
    growth = Growth(broker.pid)
    with ExitStack() as stack:
        for _ in range(200):
            wire = stack.enter_context(Wire(broker.port))
            wire.send_raw(struct.pack(">i", LIMIT) + header(ApiKey.METADATA, 9))
        with Wire(broker.port) as other:
            assert other.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
        # A connection itself costs some kilobytes; were each announcement worth 256 KiB, this were 50 MB.
        assert growth.bytes < 20 * MEGABYTE


# CVE-2026-111115: tagged fields without end.


@pytest.mark.parametrize("claimed", [1_000_000, INT32_MAX, (1 << 32) - 1])
@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA])
def test_tag_flood_in_the_header(broker, api_key, claimed):
    growth = Growth(broker.pid)
    version = API[api_key].max_version
    refused(broker, header(api_key, version)[:-1] + unsigned(claimed) + b"\x63\0" * 1_000_000)
    assert growth.bytes < 40 * MEGABYTE


@pytest.mark.parametrize("api_key", [key for key in API if API[key].max_version >= API[key].flexible_from])
def test_tag_flood_in_the_body(broker, api_key):
    spec = API[api_key]
    body = bytearray()
    write_message(spec.request(), spec.max_version, body)
    growth = Growth(broker.pid)
    flood = unsigned(1_000_000) + b"\x63\0" * 1_000_000
    refused(broker, header(api_key, spec.max_version) + bytes(body[:-1]) + flood)
    assert growth.bytes < 60 * MEGABYTE


# CVE-2026-111108: arrays that are large in number only.


@pytest.mark.parametrize("api_key", list(API))
def test_counts_beyond_the_bytes(broker, api_key):
    """Each position of a small request holds a count of billions in one of the two forms."""
    spec = API[api_key]
    growth = Growth(broker.pid)
    for version in {spec.min_version, spec.max_version}:
        body = bytearray()
        write_message(spec.request(), version, body)
        lie = HUGE_VARINT if version >= spec.flexible_from else struct.pack(">i", INT32_MAX)
        for position in range(len(body)):
            with Wire(broker.port) as wire:
                wire.send(header(api_key, version) + bytes(body[:position]) + lie + bytes(body[position:]))
    assert growth.bytes < 40 * MEGABYTE


def test_tiny_elements_of_a_large_frame(broker):
    """The bytes exist, but objects for them would be hundreds of times as large."""
    growth = Growth(broker.pid)
    count = 5_000_000
    refused(broker, header(ApiKey.METADATA, 9) + unsigned(count + 1) + b"\1\0" * count + b"\1\0\0\0")
    refused(broker, header(ApiKey.METADATA, 1) + struct.pack(">i", count) + b"\0\0" * count)
    refused(broker, header(ApiKey.PRODUCE, 9) + b"\0\0\1\0\0\0\0" + b"\2\6plain" + unsigned(count) + bytes(6 * count))
    assert growth.bytes < 120 * MEGABYTE  # one frame of 30 MB is collected in doubling steps


def test_many_names_in_one_request_hold_the_loop_only_briefly(broker):
    """As many elements as allowed, in a frame of 4 MB: answered or refused, and others are served meanwhile."""
    count = 200_000
    growth = Growth(broker.pid)
    names = b"".join(b"\x0c%011d\0" % number for number in range(count))
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        wire.send(header(ApiKey.DELETE_TOPICS, 5) + unsigned(count + 1) + names.replace(b"\0", b"") + bytes(5))
        begin = time.monotonic()
        assert other.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
        assert time.monotonic() - begin < QUICK_S
        wire.receive()
    assert growth.bytes < 400 * MEGABYTE


@pytest.mark.parametrize("api_key", [ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_partitions_that_do_not_exist_by_the_hundred_thousand(broker, api_key):
    count = 240_000
    message, version = {
        ApiKey.FETCH: lambda: (
            FetchRequest(topics=[FetchTopic(topic="plain", partitions=[FetchPartition(partition=7)] * count)]),
            12,
        ),
        ApiKey.PRODUCE: lambda: (
            ProduceRequest(
                acks=1, topic_data=[TopicProduceData(name="x", partition_data=[PartitionProduceData(index=7)] * count)]
            ),
            9,
        ),
        ApiKey.LIST_OFFSETS: lambda: (
            ListOffsetsRequest(
                topics=[ListOffsetsTopic(name="x", partitions=[ListOffsetsPartition(partition_index=7)] * count)]
            ),
            7,
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: (
            OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic="x", partitions=[OffsetForLeaderPartition(partition=7)] * count)]
            ),
            4,
        ),
    }[api_key]()
    before = cpu_seconds(broker)
    with Wire(broker.port) as wire:
        body = bytearray()
        write_message(message, version, body)
        wire.send(header(api_key, version) + body)
        assert wire.closed_by_broker()
    assert cpu_seconds(broker) - before < 1.5


# Decompression bombs, on the one path where the broker decompresses client data.


def zeros(codec: str, count: int) -> bytes:
    """`count` zeros, compressed piece by piece."""
    chunk = bytes(MEGABYTE)
    if codec == "gzip":
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        return b"".join(packer.compress(chunk) for _ in range(count // MEGABYTE)) + packer.flush()
    compressor = {"lz4": cramjam.lz4.Compressor, "zstd": cramjam.zstd.Compressor}[codec]()
    for _ in range(count // MEGABYTE):
        compressor.compress(chunk)
    return bytes(compressor.finish())


def compressed_batch(codec_id: int, payload: bytes, count: int, *, max_timestamp: int = 0) -> bytes:
    """A batch with a correct header and CRC for any `payload`."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    fields = (0, length, -1, 2, 0, codec_id, count - 1, 0, max_timestamp, -1, -1, -1, count)
    return bytes(with_crc(bytearray(BATCH_HEADER.pack(*fields) + payload)))


@pytest.mark.parametrize(("codec", "codec_id"), [("gzip", 1), ("lz4", 3), ("zstd", 4)])
def test_decompression_bomb(broker, codec, codec_id):
    bomb = compressed_batch(codec_id, zeros(codec, 200 * MEGABYTE), 1)
    assert len(bomb) < MEGABYTE  # so max.message.bytes doesn't keep it out
    growth = Growth(broker.pid)
    with Wire(broker.port) as wire:
        assert produce(wire, "compacted", bomb) == ErrorCode.MESSAGE_TOO_LARGE
    assert growth.bytes < 300 * MEGABYTE  # 128 MiB of output at most, as much again for a codec's window


def test_many_bombs_in_one_request_cost_as_much_as_two(broker):
    """A budget for the request bounds the work; the output of a refused batch is released with it."""
    bomb = compressed_batch(4, zeros("zstd", 100 * MEGABYTE), 1)
    data = TopicProduceData(
        name="compacted", partition_data=[PartitionProduceData(index=0, records=bomb) for _ in range(40)]
    )
    growth = Growth(broker.pid)
    before = cpu_seconds(broker)
    with Wire(broker.port) as wire:
        answer = wire.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]))
        codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_RECORD] * 2 + [ErrorCode.REQUEST_TIMED_OUT] * 38
    assert growth.bytes < 300 * MEGABYTE
    assert cpu_seconds(broker) - before < 3


def test_an_honest_producer_beside_thirty_with_large_batches(broker):
    """A client that sends 127 MiB decompressed waits for other large ones; a small batch waits for none."""
    record = b"\0\0\0" + zigzag(1) + b"k" + zigzag(127 * MEGABYTE) + bytes(127 * MEGABYTE) + b"\0"
    large = compressed_batch(4, bytes(cramjam.zstd.compress(zigzag(len(record)) + record, level=1)), 1)
    small = bytes(build_batch([RecordData(5, b"k", b"v")], compression="gzip"))
    data = TopicProduceData(name="compacted", partition_data=[PartitionProduceData(index=0, records=large)])
    body = bytearray()
    write_message(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9, body)
    with ExitStack() as stack:
        others = [stack.enter_context(Wire(broker.port)) for _ in range(30)]
        for other in others:
            other.send(header(ApiKey.PRODUCE, 9) + body)
        honest = stack.enter_context(Wire(broker.port))
        for _ in range(3):
            begin = time.monotonic()
            assert produce(honest, "compacted", small) == ErrorCode.NONE
            assert time.monotonic() - begin < QUICK_S
        # Requests in progress would count as memory of the next test.
        assert all(other.receive() for other in others)


@pytest.mark.parametrize("topic", ["plain", "compacted", "recompressed"])
@pytest.mark.parametrize("codec_id", [1, 2, 3, 4])
def test_claimed_records_take_no_offsets_and_roll_no_segment(broker, topic, codec_id):
    """89 bytes that claim 2^31 - 1 records would use up a segment's offsets, for every replica."""
    claim = compressed_batch(codec_id, bytes(28), INT32_MAX)
    assert len(claim) == 89
    files = sorted(path.name for path in broker.data_dir.rglob(f"{topic}-0/*"))
    with Wire(broker.port) as wire:
        assert {produce(wire, topic, claim) for _ in range(20)} == {ErrorCode.INVALID_RECORD}
    assert sorted(path.name for path in broker.data_dir.rglob(f"{topic}-0/*")) == files


@pytest.mark.parametrize(
    "payload", [b"\xff\xff\xff\xff\x0f" + bytes(20), b"\x82SNAPPY\0" + bytes(8) + b"\x7f\xff\xff\xff"]
)
def test_snappy_that_promises_gigabytes(broker, payload):
    growth = Growth(broker.pid)
    with Wire(broker.port) as wire:
        assert produce(wire, "compacted", compressed_batch(2, payload, 1)) == ErrorCode.CORRUPT_MESSAGE
    assert growth.bytes < 20 * MEGABYTE


def zigzag(value: int) -> bytes:
    """A varint as records hold it."""
    return unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def bomb_of_small_records() -> bytes:
    """Two million valid records in a batch of less than 1 MB."""
    count = 2_000_000
    deltas = map(zigzag, range(count))
    records = b"".join(zigzag(12 + len(delta)) + b"\0\0" + delta + b"\x0ekeykeyk\1\0" for delta in deltas)
    bomb = compressed_batch(4, bytes(cramjam.zstd.compress(records, level=3)), count)
    assert len(bomb) < MEGABYTE
    return bomb


def look_up(wire: Wire, timestamp: int) -> Any:
    """The answer of ListOffsets for partition 0 of `bombs`."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="bombs", partitions=[partition])])
    return wire.ask(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0]


def test_a_bomb_of_many_small_records(broker):
    """State kept per record must not add up, wherever the broker reads a batch."""
    bomb = bomb_of_small_records()
    growth = Growth(broker.pid)
    with Wire(broker.port) as wire:
        assert produce(wire, "compacted", bomb) == ErrorCode.NONE
        # Recompressed by gzip, the batch is larger than max.message.bytes.
        assert produce(wire, "recompressed", bomb) == ErrorCode.MESSAGE_TOO_LARGE
        assert produce(wire, "bombs", bomb) == ErrorCode.NONE
        assert look_up(wire, 0).error_code == ErrorCode.NONE
        assert look_up(wire, -3).error_code == ErrorCode.NONE
    assert growth.bytes < 100 * MEGABYTE  # 34 MB of records, in a buffer that grew by multiples


def test_a_stored_bomb_goes_off_in_no_lookup(broker):
    """A topic that isn't compacted stores a bomb unopened; a lookup by timestamp opens it at every request."""
    bomb = compressed_batch(4, zeros("zstd", 200 * MEGABYTE), 1, max_timestamp=FUTURE - 1)
    growth = Growth(broker.pid)
    with Wire(broker.port) as wire:
        assert produce(wire, "bombs", bomb) == ErrorCode.NONE
        for _ in range(3):
            assert look_up(wire, FUTURE - 1).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert growth.bytes < 300 * MEGABYTE


def test_a_bomb_in_an_internal_topic_is_loaded_in_little_memory():
    """Each start reads it again: it must not take the node down, nor keep groups from working."""
    group = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    with Broker(configs={"offsets.topic.num.partitions": 1}) as broker:
        with Wire(broker.port, client_id="__admin_client") as wire:
            coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            while wire.ask(ApiKey.FIND_COORDINATOR, 4, coordinator).coordinators[0].error_code:
                time.sleep(0.05)
            assert produce(wire, "__consumer_offsets", bomb_of_small_records()) == ErrorCode.NONE
        broker.restart()
        deadline = time.monotonic() + 120
        with Wire(broker.port) as wire:
            while wire.ask(ApiKey.OFFSET_FETCH, 8, group).groups[0].error_code and time.monotonic() < deadline:
                time.sleep(0.05)
            assert wire.ask(ApiKey.OFFSET_FETCH, 8, group).groups[0].error_code == ErrorCode.NONE
        peak = next(line for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) * 1024 < 350 * MEGABYTE
        assert broker.logs().count("can't be read") < 100


@pytest.mark.parametrize("client_id", ["test", "__admin_client"])
def test_the_metadata_log_takes_no_produce(broker, client_id):
    batch = bytes(build_batch([RecordData(0, b"k", b"v")]))
    with Wire(broker.port, client_id=client_id) as wire:
        assert produce(wire, "__cluster_metadata", batch) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_headers_that_lie_about_timestamps_open_few_batches(broker):
    """Each promises a timestamp that its one large record doesn't have; a lookup must not open them all."""
    record = b"\0\0\0\1" + zigzag(20 * MEGABYTE) + bytes(20 * MEGABYTE) + b"\0"
    payload = bytes(cramjam.zstd.compress(zigzag(len(record)) + record, level=3))
    lie = compressed_batch(4, payload, 1, max_timestamp=FUTURE)
    count = 200
    with Wire(broker.port) as wire:
        for _ in range(count):
            assert produce(wire, "bombs", lie) == ErrorCode.NONE
        before = cpu_seconds(broker)
        answer = look_up(wire, FUTURE)
        assert answer.error_code == ErrorCode.NONE
        assert answer.timestamp == FUTURE
        assert cpu_seconds(broker) - before < 1.0  # 200 times 20 MB take several


# CVE-2018-1288: a client plays a replica.


def partition_state(broker: Broker) -> tuple:
    """State that a replica could change: end offset, high watermark, ISR and leader epoch of plain-0, and its bytes."""
    with Cluster(broker.bootstrap_servers) as cluster:
        fetched = cluster.records.fetch("plain", 0, 0, max_wait_ms=0)
        offsets = cluster.records.list_offsets({("plain", 0): -1})
        partition = cluster.topics.get("plain").partitions[0]
        return (
            offsets,
            fetched.high_watermark,
            fetched.log_start_offset,
            bytes(fetched.records),
            partition.isr,
            partition.leader_epoch,
        )


@pytest.mark.promise("R2")
@pytest.mark.parametrize("version", range(4, 19))
def test_forged_replica_fetch_changes_nothing(broker, version):
    with Wire(broker.port) as wire, Cluster(broker.bootstrap_servers) as cluster:
        for _ in range(3):
            assert produce(wire, "plain", bytes(build_batch([RecordData(1_700_000_000_000, b"k", b"v")]))) == 0
        topic_id = cluster.topics.get("plain").topic_id
        before = partition_state(broker)
        for replica_id in (0, 1, 2, INT32_MAX):
            for offset in (0, 2, 1 << 40):
                asked = FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=1 << 30
                )
                if version >= 18:
                    asked.high_watermark = 1 << 30
                named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": "plain"}
                played: dict[str, Any] = {"replica_id": replica_id}
                if version >= 15:
                    played = {"replica_state": ReplicaState(replica_id=replica_id, replica_epoch=1)}
                request = FetchRequest(topics=[FetchTopic(**named, partitions=[asked])], **played)
                response = wire.ask(ApiKey.FETCH, version, request)
                for topic in response.responses:
                    assert all(partition.error_code != ErrorCode.NONE for partition in topic.partitions)
                    assert not any(partition.records for partition in topic.partitions)
        assert partition_state(broker) == before


def test_forged_replica_in_other_requests(broker):
    """ListOffsets and OffsetForLeaderEpoch carry a replica id as well: at most they answer as to a client."""
    before = partition_state(broker)
    with Wire(broker.port) as wire:
        for replica_id in (0, 1, 7):
            partition = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
            topic = ListOffsetsTopic(name="plain", partitions=[partition])
            wire.ask(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=replica_id, topics=[topic]))
            epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
            about = OffsetForLeaderTopic(topic="plain", partitions=[epoch])
            request = OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[about])
            wire.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
    assert partition_state(broker) == before


# Requests that this surface doesn't have.


NOT_SERVED = {
    "LeaderAndIsr": 4,
    "StopReplica": 5,
    "UpdateMetadata": 6,
    "ControlledShutdown": 7,
    "Vote": 52,
    "BeginQuorumEpoch": 53,
    "AlterPartition": 56,
    "Envelope": 58,
    "FetchSnapshot, which as an empty request killed a controller (CVE-2026-83525)": 59,
    "BrokerRegistration": 62,
    "BrokerHeartbeat": 63,
    "AllocateProducerIds": 67,
    "PushTelemetry, which decompressed bombs (CVE-2026-111073)": 72,
    "AddRaftVoter": 80,
    "nothing": 9999,
    "a negative key": -5,
}


@pytest.mark.parametrize("name", NOT_SERVED)
@pytest.mark.parametrize("body", [b"", bytes(8), b"\xff" * 64])
def test_an_api_that_is_not_served_closes(broker, name, body):
    refused(broker, header(NOT_SERVED[name], 0) + body)


@pytest.mark.parametrize("api_key", [key for key in API if key != ApiKey.API_VERSIONS])
@pytest.mark.parametrize("version", [-1, 99, 32767, -32768])
def test_an_unsupported_version_closes(broker, api_key, version):
    refused(broker, header(api_key, version) + bytes(40))


@pytest.mark.parametrize("version", [-1, 6, 99, 32767])
def test_unsupported_api_versions_is_answered_in_version_0(broker, version):
    with Wire(broker.port) as wire:
        wire.send(struct.pack(">hhi", ApiKey.API_VERSIONS, version, 77) + b"\xff" * 9)
        assert wire.receive() == struct.pack(">ihihhh", 77, 35, 1, 18, API[18].min_version, API[18].max_version)
        assert wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers


def test_a_transactional_batch_can_not_be_smuggled_in(broker):
    """GHSA-47w3-66wq-cpxg: transactional permissions are checked by the request, the batch claims otherwise."""
    before = partition_state(broker)
    batch = bytes(
        build_batch(
            [RecordData(0, b"k", b"v")], is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
        )
    )
    control = bytes(build_batch([RecordData(0, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True, producer_id=5))
    with Wire(broker.port) as wire:
        assert produce(wire, "plain", batch) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # An id that was never initialized has no coordinator state.
        assert produce(wire, "plain", batch, transactional_id="forged") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produce(wire, "plain", control) == ErrorCode.INVALID_RECORD
    assert partition_state(broker) == before


# Peers that are slow, silent or gone.


def test_slow_loris():
    """Hundreds of connections that never finish a request: others are served, and the idle ones are closed in time."""
    with Broker(configs={"connections.max.idle.ms": 4000}) as broker, ExitStack() as stack:
        growth = Growth(broker.pid)
        begun = header(ApiKey.METADATA, 9)
        slow = [stack.enter_context(Wire(broker.port)) for _ in range(300)]
        whole = struct.pack(">i", 1 << 20) + begun
        for number, wire in enumerate(slow):
            wire.send_raw(whole[: number % len(whole)] if number < 200 else whole)
        with Wire(broker.port) as other:
            begin = time.monotonic()
            assert other.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
            assert time.monotonic() - begin < QUICK_S
        # Those that feed a byte now and then live on; those that don't are closed.
        feeding = slow[200:]
        deadline = time.monotonic() + ENDED_S
        silent = slow[:200]
        while silent:
            assert time.monotonic() < deadline, f"{len(silent)} are open"
            for wire in feeding:
                wire.send_raw(b"\0")
            silent = [wire for wire in silent if not has_ended(wire)]
            time.sleep(0.05)
        assert not any(has_ended(wire) for wire in feeding)
        assert growth.bytes < 20 * MEGABYTE


def has_ended(wire: Wire) -> bool:
    """Whether the broker has closed the connection."""
    return bool(select.select([wire.socket], [], [], 0)[0]) and wire.closed_by_broker()


def test_half_closed_peers_are_answered_and_let_go(broker):
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.port)) for _ in range(50)]
        for wire in wires:
            wire.send(header(ApiKey.METADATA, 9) + b"\1\0\0\0\0")
            wire.socket.shutdown(socket.SHUT_WR)
        for wire in wires:
            assert wire.receive() is not None
            assert wire.closed_by_broker()


def test_a_peer_that_never_reads_costs_a_bounded_amount(broker):
    """Thousands of requests with large answers, none read: the broker stops serving that connection, not the others."""
    growth = Growth(broker.pid)
    request = header(ApiKey.DESCRIBE_CONFIGS, 4) + b"\2\2\6plain\0\0\1\1\0"
    framed = struct.pack(">i", len(request)) + request
    with ExitStack() as stack:
        for _ in range(20):
            wire = stack.enter_context(Wire(broker.port))
            wire.socket.setblocking(False)
            try:
                for _ in range(2000):
                    wire.socket.send(framed)
            except BlockingIOError:
                pass
        with Wire(broker.port) as other:
            for _ in range(20):
                assert other.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
        assert growth.bytes < 100 * MEGABYTE


def test_resets_while_requests_are_parked(broker):
    """Long polls with vanished clients: no response is sent, and no state remains."""
    growth = Growth(broker.pid)
    asked = FetchPartition(partition=0, fetch_offset=_end(broker), partition_max_bytes=1 << 20)
    body = bytearray()
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="plain", partitions=[asked])], session_epoch=-1
    )
    write_message(request, 11, body)
    for _ in range(5):
        wires = [Wire(broker.port) for _ in range(100)]
        for wire in wires:
            wire.send(header(ApiKey.FETCH, 11) + bytes(body))
        for wire in wires:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.socket.close()
    with Wire(broker.port) as wire:  # an append wakes every waiting fetch
        assert produce(wire, "plain", bytes(build_batch([RecordData(1_700_000_000_000, b"k", b"v")]))) == 0
    assert growth.bytes < 40 * MEGABYTE


def _end(broker: Broker) -> int:
    with Cluster(broker.bootstrap_servers) as cluster:
        return cluster.records.list_offsets({("plain", 0): -1})["plain", 0].offset


def test_random_bytes_at_full_speed(broker):
    """A flood of data that is not Kafka: TLS, HTTP, noise."""
    rng = random.Random(11)
    hello = bytes.fromhex("1603010200010001fc0303") + rng.randbytes(500)
    for data in (hello, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", rng.randbytes(5000), b"\0" * 5000):
        with Wire(broker.port) as wire:
            wire.send_raw(data)
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.receive() is not None:
                continue
