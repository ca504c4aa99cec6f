"""Apache Kafka's kafka-dump-log checks Ottla's files, also after each step of a log's life cycle."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import deque
from functools import partial
from pathlib import Path

import pytest
from simulation.step_cleaner import StepWorker
from tests.storage.maintenance import run_retention
from tools import COMPLAINTS, JavaTools

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.record.builder import RecordData, build_batch
from ottla.record.compression import GZIP, LZ4, NONE
from ottla.record.control import end_transaction_marker
from ottla.record.legacy.message_set import Message, append_message_set
from ottla.storage.compaction import cleaning
from ottla.storage.directory.log_cleaner import CleanerSettings, LogCleaner
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.log_config import LogConfig
from ottla.storage.repair.reader import iter_segment
from ottla.testing import Broker

BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*?producerId: (-?\d+) .*?partitionLeaderEpoch: (-?\d+) "
    r".*?position: (\d+) .*?size: (\d+) .*?compresscodec: (\w+) crc: (\d+) isvalid: true"
)


@pytest.fixture(scope="module")
def stopped(tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker after writes of Java and C clients, several segments and two starts."""
    home = tmp_path_factory.mktemp("dump") / "data"
    for _ in range(2):
        with Broker(data_dir=home) as broker:
            at = ["--bootstrap-server", broker.bootstrap_servers]
            existing = tools.run("kafka-topics", *at, "--list").split()
            if "judged" not in existing:
                config = ["--config", "segment.bytes=1048576", "--config", "index.interval.bytes=1024"]
                tools.run("kafka-topics", *at, "--create", "--topic", "judged", "--partitions", "1", *config)
            for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
                tools.run(
                    "kafka-producer-perf-test",
                    *["--topic", "judged", "--num-records", "4000", "--record-size", "300", "--throughput", "-1"],
                    *["--producer-props", f"bootstrap.servers={broker.bootstrap_servers}"],
                    *[f"compression.type={codec}", "acks=all"],
                )
    return home


def ours(segment: Path) -> list[tuple[int, ...]]:
    """Returns `ottla log dump --json` as tuples of the fields that both tools print."""
    result = subprocess.run(
        [sys.executable, "-m", "ottla", "log", "dump", str(segment), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = ["base_offset", "last_offset", "count", "producer_id", "leader_epoch", "position", "size", "crc"]
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [tuple(int(row[name]) for name in names) for row in rows if row.get("type", "batch") == "batch"]


def theirs(output: str) -> list[tuple[int, ...]]:
    found = [match.groups() for match in BATCH.finditer(output)]
    return [tuple(int(value) for value in (*row[:7], row[8])) for row in found]


def test_segments_and_indexes(tools: JavaTools, stopped: Path) -> None:
    partition = stopped / "judged-0"
    segments = sorted(partition.glob("*.log"))
    assert len(segments) > 2
    total = 0
    for segment in segments:
        files = [segment, segment.with_suffix(".index"), segment.with_suffix(".timeindex")]
        assert all(path.exists() for path in files), files
        output = tools.run("kafka-dump-log", "--files", ",".join(map(str, files)), "--deep-iteration")
        assert not COMPLAINTS.search(output), output[-2000:]
        rows = theirs(output)
        total += sum(row[2] for row in rows)
        assert rows == ours(segment)
    assert total == 40_000


def test_index_sanity_check(tools: JavaTools, stopped: Path) -> None:
    for index in sorted((stopped / "judged-0").glob("*.index")):
        output = tools.run("kafka-dump-log", "--index-sanity-check", "--files", str(index))
        assert "passed sanity check" in output


def test_producer_snapshot(tools: JavaTools, stopped: Path) -> None:
    snapshots = sorted((stopped / "judged-0").glob("*.snapshot"))
    assert snapshots
    output = tools.run("kafka-dump-log", "--files", str(snapshots[-1]))
    assert "producerId: " in output
    assert not COMPLAINTS.search(output), output


def test_metadata_log(tools: JavaTools, stopped: Path) -> None:
    log = stopped / "__cluster_metadata-0"
    for path in [*sorted(log.glob("*.log")), *sorted(log.glob("*.checkpoint"))]:
        output = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(path))
        assert not COMPLAINTS.search(output), output[-3000:]
        assert "Could not deserialize" not in output
        if path.suffix == ".log":
            assert theirs(output) == ours(path)
    everything = "".join(
        tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(path))
        for path in sorted(log.glob("*.log"))
    )
    for kind in (
        "LeaderChange",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
    ):
        assert kind in everything, kind
    assert '"name":"judged"' in everything


T = 1_600_000_000_000
OF_EMPTY_BATCHES = re.compile(r"Found timestamp mismatch in :.*\n(  Index timestamp: \d+, log timestamp: -1\n?)+")
"""A batch header retains its maximum timestamp after its records are removed, as in Apache Kafka; the tool reads
records.
"""


class Life:
    """A compacted log on the real disk with a copy of its files after each step."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.stages: list[Path] = []
        self.work: deque = deque()
        self.manager = self.open(home / "data")
        self.log = self.manager.create_log("t", 0, bytes(range(16)))
        self.cleaner = LogCleaner(
            self.manager,
            CleanerSettings(1, 1 << 20, 0.9, 1 << 16, 1e12),
            lambda: StepWorker(RealDisk(), self.work.append),
            pool=self,
            clock=SystemClock(),
            rng=SystemRng(),
        )

    def open(self, directory: Path) -> LogManager:
        config = LogConfig(
            segment_bytes=3000,
            index_interval_bytes=100,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.0,
            file_delete_delay_ms=0,
        )
        manager = LogManager(RealDisk(), SystemClock(), SystemRng(), [str(directory)], default_config=config)
        manager.open(node_id=1)
        manager.load_logs()
        return manager

    def submit(self, work, done) -> None:
        self.work.append(lambda: done(work(), None))

    def append(self, data) -> None:
        self.log.append_as_follower(data, 0, len(data))

    def write(self) -> None:
        """Write every codec, both old formats, tombstones and aborted records; each key is repeated."""
        for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"] * 12):
            end = self.log.log_end_offset
            data = [RecordData(T + end, b"k%d" % (number % 7 + each), b"v" * 40 if each else None) for each in range(3)]
            if number % 6 == 5:
                producer = {"producer_id": number % 2, "producer_epoch": 0}
                self.append(
                    build_batch(
                        data, base_offset=end, leader_epoch=0, base_sequence=0, is_transactional=True, **producer
                    )
                )
                self.append(
                    end_transaction_marker(
                        commit=number % 4 == 1,
                        timestamp_ms=T,
                        coordinator_epoch=0,
                        base_offset=end + 3,
                        leader_epoch=0,
                        **producer,
                    )
                )
                continue
            if number % 6 == 4:
                old = bytearray()
                messages = [Message(end + each, T if number % 4 else -1, *one[1:3]) for each, one in enumerate(data)]
                append_message_set(old, messages, 1 if number % 4 else 0, (NONE, GZIP, LZ4)[number % 3])
                self.append(old)
                continue
            self.append(build_batch(data, base_offset=end, leader_epoch=0, compression=codec))
        self.log.roll()
        self.log.flush()
        self.log.offsets.high_watermark = self.log.log_end_offset

    def clean(self, until: str = "") -> None:
        """Run a cleaner pass, or stop it once a file with the suffix `until` exists."""
        self.cleaner.run_due()
        while self.work and not (until and list(Path(self.log.directory).glob("*" + until))):
            self.work.popleft()()

    def put_aside(self, name: str, data: Path | None = None) -> None:
        self.log.flush()
        stage = self.home / name
        shutil.copytree((data or self.home / "data") / "t-0", stage)
        self.stages.append(stage)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    life = Life(tmp_path_factory.mktemp("life"))
    life.write()
    life.put_aside("written")
    life.clean(until=".swap")
    killed = life.home / "killed"
    shutil.copytree(life.home / "data", killed)
    assert list((killed / "t-0").glob("*.swap"))
    life.open(killed).shutdown()
    life.put_aside("swapped", killed)
    life.clean()
    assert life.cleaner.reports["t", 0].dropped_bytes > 0
    life.put_aside("cleaned")
    life.write()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "rewrite", partial(cleaning.rewrite, largest_bytes=600))
        life.clean()
    assert len(life.log.segments) > 4
    life.put_aside("split")
    life.write()
    life.log.truncate_to(life.log.log_end_offset - 20)
    life.put_aside("cut")
    policy = frozenset({"delete"})
    life.log.config = life.log.config._replace(cleanup_policy=policy, retention_bytes=6000, retention_ms=-1)
    run_retention(life.manager)
    assert life.log.log_start_offset > 0
    life.put_aside("retained")
    return life.stages


def test_files_after_each_step_of_a_log(tools: JavaTools, stages: list[Path]) -> None:
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [path for stage in stages for path in sorted(stage.iterdir()) if path.suffix in suffixes]
    assert {path.suffix for path in files} == {*suffixes}
    output = tools.run("kafka-dump-log", "--deep-iteration", "--files", ",".join(map(str, files)))
    assert output.count("Dumping ") == len(files)
    assert not COMPLAINTS.search(OF_EMPTY_BATCHES.sub("", output)), output[-3000:]
    batches = []
    for path in files:
        if path.suffix == ".log":
            with path.open("rb") as stream:
                batches += [stored for stored in iter_segment(stream) if stored.magic == 2]
    assert [row[:3] for row in theirs(output)] == [
        (one.batch.base_offset, one.batch.last_offset, one.batch.records_count) for one in batches
    ]


def test_key_filters_are_ignored(tools: JavaTools, tmp_path: Path) -> None:
    """A file of a kind that Apache Kafka does not know, beside a segment."""
    segment, filters = (tmp_path / f"{0:020d}{suffix}" for suffix in (".log", ".keyfilter"))
    segment.write_bytes(build_batch([RecordData(1, b"k", b"v")]))
    filters.write_bytes(b"OKF1")
    output = tools.run("kafka-dump-log", "--files", f"{segment},{filters}")
    assert "baseOffset: 0 " in output
    assert "gnoring unknown file" in output
