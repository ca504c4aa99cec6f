"""Bytes flipped and nonsense appended in the active segment: found at the start, cut at the last valid batch, named."""

from __future__ import annotations

import random
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

TOPIC = "damaged"
BATCHES = 40
RECORDS_EACH = 5
NAMED_S = 30
CUT = re.compile(r"(\S+\.log): truncated at position (\d+), (\d+) bytes dropped, the log ends at offset (\d+)")


def produce_batches(broker: Broker, count: int, padding: bytes = b"") -> list[int]:
    """One batch a request, every value with that behind it; returns the base offsets."""
    connection = Connection("127.0.0.1", broker.port, client_id="test", timeout_s=20, software_version="0")
    offsets = []
    try:
        topic_id = _topic_id(broker)
        for number in range(count):
            records = [
                RecordData(1_700_000_000_000, b"k%d" % n, b"%d-%d" % (number, n) + padding) for n in range(RECORDS_EACH)
            ]
            data = PartitionProduceData(index=0, records=bytes(build_batch(records)))
            topic = TopicProduceData(topic_id=topic_id, partition_data=[data])
            response = connection.request(
                ApiKey.PRODUCE, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
            ).responses[0]
            assert response.partition_responses[0].error_code == 0
            offsets.append(response.partition_responses[0].base_offset)
    finally:
        connection.close()
    return offsets


def _topic_id(broker: Broker) -> bytes:
    with Cluster(broker.bootstrap_servers) as cluster:
        return cluster.topics.get(TOPIC).topic_id


def read_all(broker: Broker) -> list[bytes]:
    """The values from the beginning to the end."""
    values = []
    with Cluster(broker.bootstrap_servers) as cluster:
        end = cluster.records.list_offsets({(TOPIC, 0): -1})[TOPIC, 0].offset
        position = 0
        while position < end:
            result = cluster.records.fetch(TOPIC, 0, position)
            assert result.high_watermark == end
            for batch in iter_batches(result.records):
                values += [record.value or b"" for record in batch.records()]
                position = batch.next_offset
        assert len(values) == end
    return values


class Segment:
    """The active segment of the topic, to be damaged while no broker runs."""

    def __init__(self, broker: Broker) -> None:
        (self.path,) = (broker.data_dir / f"{TOPIC}-0").glob("*.log")
        self.data = bytearray(self.path.read_bytes())
        self.starts = [batch.position for batch in iter_batches(self.data)]
        assert len(self.starts) == BATCHES

    def save(self) -> None:
        self.path.write_bytes(self.data)


def append_noise(segment: Segment) -> int:
    segment.data += random.Random(1).randbytes(5000)
    return BATCHES


def append_zeros(segment: Segment) -> int:
    """Trailing zeros, as some file systems leave after a power failure."""
    segment.data += bytes(10_000)
    return BATCHES


def append_few_bytes(segment: Segment) -> int:
    segment.data += b"\0\0\0"
    return BATCHES


def append_older_batches(segment: Segment) -> int:
    """Whole batches under a right CRC, but their offsets go back."""
    segment.data += segment.data[: segment.starts[3]]
    return BATCHES


def flip_in_last_value(segment: Segment) -> int:
    segment.data[-2] ^= 0x10
    return BATCHES - 1


def flip_in_last_header(segment: Segment) -> int:
    segment.data[segment.starts[-1] + 22] ^= 0x01
    return BATCHES - 1


def flip_in_the_middle(segment: Segment) -> int:
    """All later batches are removed: a follower must not copy records of a damaged leader."""
    segment.data[segment.starts[25] + 70] ^= 0x80
    return 25


def flip_in_the_first_batch(segment: Segment) -> int:
    segment.data[65] ^= 0xFF
    return 0


def cut_in_the_last_batch(segment: Segment) -> int:
    del segment.data[-7:]
    return BATCHES - 1


def cut_in_the_last_header(segment: Segment) -> int:
    del segment.data[segment.starts[-1] + 20 :]
    return BATCHES - 1


def lie_about_the_length(segment: Segment) -> int:
    struct.pack_into(">i", segment.data, segment.starts[30] + 8, (1 << 31) - 1)
    return 30


def negative_length(segment: Segment) -> int:
    struct.pack_into(">i", segment.data, segment.starts[30] + 8, -1)
    return 30


def old_magic(segment: Segment) -> int:
    segment.data[segment.starts[35] + 16] = 1
    return 35


def empty_file(segment: Segment) -> int:
    segment.data.clear()
    return 0


DAMAGES: list[Callable[[Segment], int]] = [
    append_noise,
    append_zeros,
    append_few_bytes,
    append_older_batches,
    flip_in_last_value,
    flip_in_last_header,
    flip_in_the_middle,
    flip_in_the_first_batch,
    cut_in_the_last_batch,
    cut_in_the_last_header,
    lie_about_the_length,
    negative_length,
    old_magic,
    empty_file,
]


def produced(count: int, first: int = 0) -> list[bytes]:
    return [b"%d-%d" % (number, n) for number in range(first, first + count) for n in range(RECORDS_EACH)]


@pytest.mark.promise("D5")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_in_the_active_segment_is_cut_off_and_named(damage):
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1)
        produce_batches(broker, BATCHES)
        broker.kill()
        segment = Segment(broker)
        whole = damage(segment)
        segment.save()
        broker.start()
        valid_bytes = segment.starts[whole] if whole < BATCHES else _end_of_batches(segment)
        assert read_all(broker) == produced(whole)
        assert segment.path.stat().st_size == valid_bytes
        dropped = len(segment.data) - valid_bytes
        if dropped:
            ((path, position, lost, offset),) = CUT.findall(broker.logs())
            assert Path(path) == segment.path
            assert (int(position), int(lost), int(offset)) == (valid_bytes, dropped, whole * RECORDS_EACH)
        # It continues from there, and the next start, clean or not, finds no damage.
        assert produce_batches(broker, 3)[0] == whole * RECORDS_EACH
        after = produced(whole) + produced(3)
        broker.restart(crash=True)
        assert read_all(broker) == after
        broker.restart()
        assert read_all(broker) == after
        assert len(CUT.findall(broker.logs())) == (1 if dropped else 0)
        assert "Traceback" not in broker.logs()


def test_offsets_and_epochs_that_no_crc_covers_are_put_right():
    """A single broker can't fetch them from another, and deletes no batch with a correct CRC."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1)
        produce_batches(broker, BATCHES)
        broker.kill()
        segment = Segment(broker)
        written = bytes(segment.data)
        for number, at in ((0, 2), (13, 7), (20, 12), (30, 15), (BATCHES - 1, 6)):
            segment.data[segment.starts[number] + at] ^= 0x40
        segment.save()
        broker.start()
        assert read_all(broker) == produced(BATCHES)
        assert segment.path.read_bytes() == written
        assert broker.logs().count("corrected to") == 5


def _end_of_batches(segment: Segment) -> int:
    """Position after the last of the produced batches."""
    last = next(iter_batches(segment.data, segment.starts[-1]))
    return last.end


COMPANIONS = ("*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata")
DIRECTORY_FILES = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    ".kafka_cleanshutdown",
    "__cluster_metadata-0/*.index",
    "__cluster_metadata-0/leader-epoch-checkpoint",
)
NONSENSE = b"nonsense\n" * 50
CONTENTS = {"removed": None, "empty": b"", "zeros": bytes(100)}


def spoil(folder: Path, patterns: tuple[str, ...], content: bytes | None) -> None:
    """Replace the content of the files, or remove them."""
    for pattern in patterns:
        for path in list(folder.glob(pattern)):
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)


def check_that_nothing_is_lost(broker: Broker) -> None:
    assert read_all(broker) == produced(BATCHES)
    with Cluster(broker.bootstrap_servers) as cluster:
        assert cluster.records.list_offsets({(TOPIC, 0): 1_700_000_000_000})[TOPIC, 0].offset == 0
        middle = cluster.records.fetch(TOPIC, 0, 101).records
        assert next(iter_batches(middle)).base_offset == 100
    assert produce_batches(broker, 1) == [BATCHES * RECORDS_EACH]
    assert "Traceback" not in broker.logs()


@pytest.mark.promise("D7")
@pytest.mark.parametrize("crash", [True, False], ids=["after-a-crash", "after-a-clean-stop"])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_companion_files_of_a_segment_are_rebuilt(crash, content):
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1, configs={"index.interval.bytes": "100"})
        produce_batches(broker, BATCHES)
        if crash:
            broker.kill()
        else:
            broker.stop()
        spoil(broker.data_dir / f"{TOPIC}-0", COMPANIONS, content)
        broker.start()
        check_that_nothing_is_lost(broker)


@pytest.mark.parametrize("name", COMPANIONS)
def test_one_nonsensical_companion_of_a_segment(name):
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1, configs={"index.interval.bytes": "100"})
        produce_batches(broker, BATCHES)
        broker.stop()
        spoil(broker.data_dir / f"{TOPIC}-0", (name,), NONSENSE)
        broker.start()
        check_that_nothing_is_lost(broker)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_companions_of_a_segment_under_a_running_broker(content):
    """Reads, appends and new partitions continue, and the next start finds no damage."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1, configs={"index.interval.bytes": "100"})
            produce_batches(broker, BATCHES)
            broker.restart()
            spoil(broker.data_dir / f"{TOPIC}-0", COMPANIONS, content)
            assert read_all(broker) == produced(BATCHES)
            assert cluster.records.list_offsets({(TOPIC, 0): 1_700_000_000_000})[TOPIC, 0].offset == 0
            for position in range(0, BATCHES * RECORDS_EACH, 7):
                first = next(iter_batches(cluster.records.fetch(TOPIC, 0, position).records))
                assert first.base_offset == position // RECORDS_EACH * RECORDS_EACH
            cluster.topics.create("another", 3)
        assert produce_batches(broker, 2)[0] == BATCHES * RECORDS_EACH
        for crash in (False, True):
            broker.restart(crash=crash)
            assert read_all(broker) == produced(BATCHES) + produced(2)
        assert "Traceback" not in broker.logs()


@pytest.mark.promise("D12")
def test_damaged_complete_segment_is_reported_rest_is_served():
    """By the scrubber, without a request: no start would read it."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1, configs={"segment.bytes": str(1 << 20)})
        produce_batches(broker, BATCHES, bytes(20_000))
        broker.stop()
        segments = sorted((broker.data_dir / f"{TOPIC}-0").glob("*.log"))
        damaged = segments[1]
        data = bytearray(damaged.read_bytes())
        data[100] ^= 1  # in the first batch
        damaged.write_bytes(data)
        broker.start()
        first = int(damaged.stem)
        named = f"{damaged} is damaged, its offsets {first} to {first + RECORDS_EACH - 1} can't be trusted"
        deadline = time.monotonic() + NAMED_S
        while named not in broker.logs():
            assert time.monotonic() < deadline, broker.logs()
            time.sleep(0.05)
        assert broker.logs().count("can't be trusted") == 1
        with Cluster(broker.bootstrap_servers) as cluster:
            behind = cluster.records.fetch(TOPIC, 0, first + RECORDS_EACH).records
            assert next(iter_batches(behind)).base_offset == first + RECORDS_EACH
        assert produce_batches(broker, 1) == [BATCHES * RECORDS_EACH]


@pytest.mark.parametrize(
    ("names", "content"),
    [(DIRECTORY_FILES, content) for content in CONTENTS.values()] + [((name,), NONSENSE) for name in DIRECTORY_FILES],
    ids=[*CONTENTS, *DIRECTORY_FILES],
)
def test_damaged_files_of_the_data_directory_lose_nothing(names, content):
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 1)
        produce_batches(broker, BATCHES)
        broker.restart()
        broker.stop()
        spoil(broker.data_dir, names, content)
        broker.start()
        check_that_nothing_is_lost(broker)


def test_a_torn_tail_of_the_metadata_log_is_cut():
    """Topics that were acknowledged stay; the broker starts."""
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            for number in range(10):
                cluster.topics.create(f"topic-{number}", 2)
        broker.kill()
        (path,) = (broker.data_dir / "__cluster_metadata-0").glob("*.log")
        size = path.stat().st_size
        with path.open("ab") as file:
            file.write(random.Random(2).randbytes(3000))
        broker.start()
        with Cluster(broker.bootstrap_servers) as cluster:
            assert sorted(cluster.topics.all()) == sorted(f"topic-{number}" for number in range(10))
            cluster.topics.create("one-more", 1)
        cuts = CUT.findall(broker.logs())
        assert [(Path(cut[0]), int(cut[1])) for cut in cuts] == [(path, size)]
