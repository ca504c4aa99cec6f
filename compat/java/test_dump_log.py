"""Apache Kafka's kafka-dump-log judges our files: segments, both indexes, producer snapshot, metadata log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import JavaTools

from ottla.testing import Broker

COMPLAINTS = re.compile(
    r"Found timestamp mismatch|Index mismatch|isvalid: false|non-consecutive|out of order|Exception|invalid bytes", re.I
)
BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*?producerId: (-?\d+) .*?partitionLeaderEpoch: (-?\d+) "
    r".*?position: (\d+) .*?size: (\d+) .*?compresscodec: (\w+) crc: (\d+) isvalid: true"
)


@pytest.fixture(scope="module")
def stopped(tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that Java and C clients wrote to over several segments and two starts."""
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
    """`ottla log dump --json` as tuples of the fields that both tools print."""
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
