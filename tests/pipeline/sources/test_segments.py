"""Segment files give the same rows as Fetch, for any content and with files removed meanwhile."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string

confluent_kafka = pytest.importorskip("confluent_kafka")
pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import DataLossError, OffsetRange  # noqa: E402
from ottla.pipeline.sources import fetch, segments  # noqa: E402
from ottla.pipeline.sources.segments import SegmentSource, open_source  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from ..topics import new_topic, produce  # noqa: E402


@pytest.fixture
def cluster(ottla_broker: Broker) -> Iterator[Cluster]:
    with Cluster(ottla_broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def topic(bootstrap: str) -> str:
    """One partition in segments of a few batches."""
    return new_topic(bootstrap, 1, {"internal.segment.bytes": "300000", "index.interval.bytes": "4096"})


@pytest.fixture
def source(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> SegmentSource:
    """The files of the broker, as a worker gets them; each fallback to Fetch is logged."""
    caplog.set_level(logging.INFO, "ottla.pipeline.sources.segments")
    found = open_source("segments", cluster)
    assert isinstance(found, SegmentSource)
    return pickle.loads(pickle.dumps(found))


def whole(cluster: Cluster, topic: str, start: int | None = None, end: int | None = None) -> OffsetRange:
    """A range up to the last stable offset."""
    key = (topic, 0)
    first = cluster.records.list_offsets({key: EARLIEST_TIMESTAMP})[key].offset
    last = cluster.records.list_offsets({key: LATEST_TIMESTAMP}, isolation="read_committed")[key]
    topic_id = uuid_to_string(cluster.topics.get(topic).topic_id)
    return OffsetRange(topic, topic_id, 0, first if start is None else start, end or last.offset, 0, last.leader_epoch)


def rows(read: Callable[..., Any], cluster: Cluster, part: OffsetRange, isolation: str = "read_committed") -> Any:
    batches = [
        batch for one in read(cluster, part, isolation=isolation, on_data_loss="fail") for batch in one.decoded.batches
    ]
    return pa.Table.from_batches(batches, SCHEMA).combine_chunks()


def fill(bootstrap: str, topic: str, count: int, codec: str = "none", size: int = 4_000) -> None:
    records = (
        {
            "value": (b"%d " % number).ljust(size, b"%d" % (number % 7)),
            "key": b"k",
            "headers": [("n", b"%d" % number)] if number % 5 == 0 else None,
        }
        for number in range(count)
    )
    produce(bootstrap, topic, records, compression_type=codec, batch_num_messages=20)


def transactions(bootstrap: str, topic: str, rounds: int) -> None:
    """Nested committed and aborted transactions of two producers."""
    outer, inner = (
        confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{name}"})
        for name in ("outer", "inner")
    )
    for producer in (outer, inner):
        producer.init_transactions()
    for number in range(rounds):
        outer.begin_transaction()
        outer.produce(topic, b"outer %d " % number + bytes(60_000))
        outer.flush(30)
        inner.begin_transaction()
        inner.produce(topic, b"inner %d " % number + bytes(60_000))
        inner.flush(30)
        (inner.commit_transaction if number % 3 else inner.abort_transaction)()
        outer.produce(topic, b"outer again %d " % number)
        outer.flush(30)
        (outer.abort_transaction if number % 2 else outer.commit_transaction)()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_are_those_of_fetch(
    bootstrap: str,
    cluster: Cluster,
    topic: str,
    source: SegmentSource,
    caplog: pytest.LogCaptureFixture,
    codec: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(bootstrap, topic, 1_000, codec)
    monkeypatch.setattr(segments, "READ_BYTES", 200_000)
    for start, end in ((None, None), (333, 777), (999, 1_000), (0, 1), (20, 40)):
        part = whole(cluster, topic, start, end)
        assert rows(source, cluster, part).equals(rows(fetch.read_range, cluster, part))
    assert not caplog.records


def test_batch_larger_than_read_size_is_read(
    bootstrap: str,
    cluster: Cluster,
    topic: str,
    source: SegmentSource,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(bootstrap, topic, 50, size=1_000)
    monkeypatch.setattr(segments, "READ_BYTES", 100)
    part = whole(cluster, topic)
    assert rows(source, cluster, part).equals(rows(fetch.read_range, cluster, part))
    assert not caplog.records


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions(
    bootstrap: str,
    cluster: Cluster,
    topic: str,
    source: SegmentSource,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    isolation: str,
) -> None:
    """Over several segments, and from every offset on, so that ranges start and end inside of transactions."""
    transactions(bootstrap, topic, 12)
    monkeypatch.setattr(segments, "READ_BYTES", 100_000)
    end = whole(cluster, topic).end_offset
    assert end > 50
    for start, stop in [(0, end), *((start, min(start + 7, end)) for start in range(0, end, 3))]:
        part = whole(cluster, topic, start, stop)
        found, expected = (rows(read, cluster, part, isolation) for read in (source, fetch.read_range))
        assert found.equals(expected), (start, stop)
    assert not caplog.records


def test_segment_deleted_while_read(
    ottla_broker: Broker,
    bootstrap: str,
    cluster: Cluster,
    topic: str,
    source: SegmentSource,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention removes unread records: Fetch reports that from the end of the files on."""
    fill(bootstrap, topic, 1_000)
    monkeypatch.setattr(segments, "READ_BYTES", 200_000)
    part = whole(cluster, topic)
    parts = source(cluster, part, isolation="read_committed", on_data_loss="fail")
    first = next(parts)
    assert first.decoded.rows
    cluster.records.delete({(topic, 0): 900})
    folder = ottla_broker.data_dir / f"{topic}-0"
    for path in sorted(folder.glob("*.log"))[1:-1]:
        path.unlink(missing_ok=True)
    with pytest.raises(DataLossError, match="the log starts at 900 now"):
        list(parts)
    assert "fetching from offset" in caplog.text


def test_pipe_in_place_of_segment_does_not_block(
    ottla_broker: Broker,
    bootstrap: str,
    cluster: Cluster,
    topic: str,
    source: SegmentSource,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    fill(bootstrap, topic, 10)
    part = whole(cluster, topic)
    held = ottla_broker.data_dir / f"{topic}-0"
    for number, name in enumerate([f"{0:020d}.log", f"{0:020d}.txnindex", "partition.metadata"]):
        copy = tmp_path / str(number)
        shutil.copytree(held, copy / held.name)
        shutil.copy(ottla_broker.data_dir / "meta.properties", copy)
        (copy / held.name / name).unlink(missing_ok=True)
        os.mkfifo(copy / held.name / name)
        caplog.clear()
        assert rows(replace(source, directories={1: (str(copy),)}), cluster, part).num_rows == 10
        assert "fetching from offset 0 on" in caplog.text


def test_deleted_records_in_existing_segment_are_not_read(
    bootstrap: str, cluster: Cluster, topic: str, source: SegmentSource
) -> None:
    fill(bootstrap, topic, 50)
    part = whole(cluster, topic)
    cluster.records.delete({(topic, 0): 30})
    with pytest.raises(DataLossError, match="the log starts at 30 now"):
        rows(source, cluster, part)


def test_files_of_other_topic_or_broker_are_not_read(
    bootstrap: str, cluster: Cluster, topic: str, source: SegmentSource, caplog: pytest.LogCaptureFixture
) -> None:
    fill(bootstrap, topic, 10)
    part = whole(cluster, topic)
    for other in (replace(source, cluster_id="another"), replace(source, directories={7: source.directories[1]})):
        caplog.clear()
        assert rows(other, cluster, part).num_rows == 10
        assert "are not on this machine" in caplog.text


def test_source_kind_selects_source(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_source("fetch", cluster) is fetch.read_range
    assert isinstance(open_source("auto", cluster), SegmentSource)
    monkeypatch.setattr(type(cluster.log_directories), "all", lambda self: [])
    assert open_source("auto", cluster) is fetch.read_range
    with pytest.raises(OperatorError, match="use --source fetch"):
        open_source("segments", cluster)
