"""One task at a time, as a worker runs it: files, manifest rows, and leftovers of failures."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Any

import pytest

from ottla.client.wire.model import AbortedTransaction, FetchResult
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.record.batch import HEADER_SIZE
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import end_transaction_marker

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra `pipeline`")

from ottla.pipeline.load import land as landing  # noqa: E402
from ottla.pipeline.load.land import Counters, LandSettings, WrittenRange, land_task  # noqa: E402
from ottla.pipeline.model.plan import OffsetRange, OnDataLoss  # noqa: E402
from ottla.pipeline.sinks import writer  # noqa: E402
from ottla.pipeline.sinks.partitioned_writer import unplaceable  # noqa: E402
from ottla.pipeline.sinks.partitioning import require_partition_columns  # noqa: E402
from ottla.pipeline.sinks.table import ColumnStatistics, DataFile, FileLayout, files_from_json  # noqa: E402
from ottla.pipeline.sinks.writer import discard_load  # noqa: E402
from ottla.pipeline.sources import fetch as fetching  # noqa: E402
from ottla.pipeline.stores.local_store import LocalStore  # noqa: E402

from .memory_cluster import MemoryCluster  # noqa: E402
from .snapshot.world import InProcess  # noqa: E402


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("clicks", 1)
    for number in range(20):
        made.partitions["clicks", 0].append_values([b"v%d" % (10 * number + one) for one in range(10)], "zstd")
    return made


def land(
    cluster: MemoryCluster,
    table: Path,
    start: int,
    end: int,
    *,
    columns: tuple[str, ...] = (),
    on_data_loss: OnDataLoss = "fail",
) -> WrittenRange:
    layout = FileLayout(str(table), partition_columns=columns)
    settings = LandSettings(cluster.open, layout, FileLayout(str(table)), "load1", on_data_loss=on_data_loss)
    topic_id = uuid_to_string(cluster.topic_ids["clicks"])
    return land_task(4, OffsetRange("clicks", topic_id, 0, start, end, 0, 0), settings)


def file_of(row: WrittenRange) -> DataFile:
    (file,) = files_from_json(row.files)
    return file


def values(table: Path, row: WrittenRange) -> list[Any]:
    found: list[Any] = pq.read_table(table / file_of(row).path).column("value").to_pylist()
    return found


def test_a_range_becomes_one_file(cluster: MemoryCluster, tmp_path: Path) -> None:
    row = land(cluster, tmp_path, 13, 187)
    assert (row.task, row.rows, row.error) == (4, 174, "")
    assert values(tmp_path, row) == [b"v%d" % number for number in range(13, 187)]
    file = file_of(row)
    assert row.size_bytes == file.size_bytes == (tmp_path / file.path).stat().st_size
    assert file.rows == 174
    assert file.columns["offset"] == ColumnStatistics(0, 13, 186)
    assert file.columns["timestamp"].upper == 1_700_000_000_186_000
    assert file.columns["key"] == ColumnStatistics(0)


class Accumulator:
    """An accumulator of Spark, in this process."""

    value = 0

    def add(self, number: int) -> None:
        self.value += number


def test_counters_move_with_each_task(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    cluster.create("clicks", 2)
    for index, count in enumerate((3, 4)):
        cluster.partitions["clicks", index].append_values([b"v%d" % number for number in range(count)])
    topic_id = uuid_to_string(cluster.topic_ids["clicks"])
    tasks = [OffsetRange("clicks", topic_id, 0, 0, 3, 0, 0), OffsetRange("clicks", topic_id, 1, 1, 4, 0, 0)]
    counters = Counters(*(Accumulator() for _ in range(4)))
    settings = LandSettings(cluster.open, FileLayout(str(tmp_path)), FileLayout(str(tmp_path)), "load1")
    rows = landing.land(InProcess(), tasks, settings, counters)
    sizes = [len(cluster.partitions["clicks", index].batches[0]) for index in range(2)]
    assert [(row.task, row.rows, row.fetched_bytes) for row in rows] == [(0, 3, sizes[0]), (1, 3, sizes[1])]
    assert [row.body_bytes for row in rows] == [size - HEADER_SIZE for size in sizes]
    assert (counters.tasks.value, counters.rows.value, counters.offsets.value) == (2, 6, 6)
    assert counters.fetched_bytes.value == sum(sizes)


def test_small_fetches_give_the_same_rows(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FETCH_BYTES", 1)
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 25)
    row = land(cluster, tmp_path, 0, 200)
    assert values(tmp_path, row) == [b"v%d" % number for number in range(200)]
    assert cluster.fetches == 20
    assert pq.ParquetFile(tmp_path / file_of(row).path).num_row_groups > 3


def test_partition_columns_are_in_the_path_and_not_in_the_file(cluster: MemoryCluster, tmp_path: Path) -> None:
    row = land(cluster, tmp_path, 0, 10, columns=("topic", "partition"))
    assert file_of(row).path.startswith("topic=clicks/partition=0/part-")
    names = pq.ParquetFile(tmp_path / file_of(row).path).schema_arrow.names
    assert "topic" not in names
    assert "partition" not in names
    assert "partition" not in file_of(row).columns


def test_unplaceable_partition_values_are_found() -> None:
    texts = ["__HIVE_DEFAULT_PARTITION__", "t" * 250, "/" * 84, "ü" * 125, None, "", " a", "a/b", "a%2fb", "t" * 249]
    batch = pa.record_batch({"topic": texts})
    assert unplaceable(batch, ["topic"]).to_pylist() == [True] * 4 + [False] * 6


def test_partition_values_are_escaped_as_hive_does() -> None:
    texts = ["Österreich", "USA/CA", "10:30", "a=b", "50%", "a b", "\x1f\x00", None]
    names = ["Österreich", "USA%2FCA", "10%3A30", "a%3Db", "50%25", "a b", "%1F%00", "__HIVE_DEFAULT_PARTITION__"]
    assert list(map(writer.directory_text, texts)) == names


@pytest.mark.parametrize("name", ["_hidden", ".hidden", "n" * 128, "a=b"])
def test_columns_that_name_no_directory_are_refused(name: str) -> None:
    with pytest.raises(OperatorError, match="a table can't be partitioned by"):
        require_partition_columns(pa.schema([(name, pa.string())]), [name])


def test_aborted_records_only_create_no_file(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    cluster.create("clicks", 1)
    log = cluster.partitions["clicks", 0]
    log.append(
        build_batch(
            [RecordData(1, None, b"no")], producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    )
    log.append(
        end_transaction_marker(
            commit=False, timestamp_ms=1, producer_id=5, producer_epoch=0, coordinator_epoch=0, base_offset=1
        )
    )
    log.aborted = (AbortedTransaction(5, 0),)
    row = land(cluster, tmp_path, 0, 2)
    assert (row.rows, files_from_json(row.files), row.error) == (0, [], "")
    assert not list(tmp_path.iterdir())


def test_a_corrupt_batch_leaves_no_file(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FETCH_BYTES", 1)
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 1)
    log = cluster.partitions["clicks", 0]
    bad = bytearray(log.batches[15])
    bad[-1] ^= 1
    log.batches[15] = bytes(bad)
    row = land(cluster, tmp_path, 0, 200)
    assert row.error_kind == "corrupt"
    assert "'clicks' partition 0: the batch at offset 150" in row.error
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    """The limit of file sizes simulates a full disk: the same system call fails."""
    cluster = MemoryCluster()
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_values([random.Random(1).randbytes(1_000_000)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            land(cluster, tmp_path, 0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_unwritable_directory_is_reported_once(cluster: MemoryCluster, tmp_path: Path) -> None:
    """Spark would retry the task four times, and report a failure of its own."""
    (tmp_path / "file").touch()
    row = land(cluster, tmp_path / "file" / "table", 0, 10)
    assert row.error_kind == "operator"
    assert row.error.endswith("file/table can't be written: not a directory; fix the cause and run it again")


def test_a_topic_with_the_longest_name(tmp_path: Path) -> None:
    """A file name has at most 255 bytes, the topic's name alone has 249."""
    cluster, name = MemoryCluster(), "t" * 249
    cluster.create(name, 1)
    cluster.partitions[name, 0].append_values([b"v"])
    settings = LandSettings(cluster.open, FileLayout(str(tmp_path)), FileLayout(str(tmp_path)), "load1")
    row = land_task(0, OffsetRange(name, uuid_to_string(cluster.topic_ids[name]), 0, 0, 1, 0, 0), settings)
    assert (row.error, row.rows) == ("", 1)
    assert pq.read_table(tmp_path / file_of(row).path).column("topic").to_pylist() == [name]
    discard_load(LocalStore(tmp_path), "load1")
    assert not list(tmp_path.iterdir())


def test_retention_overtakes_the_load(cluster: MemoryCluster, tmp_path: Path) -> None:
    cluster.partitions["clicks", 0].log_start = 30
    failed = land(cluster, tmp_path, 10, 50)
    assert failed.error_kind == "data loss"
    assert "the log starts at 30 now" in failed.error
    assert failed.error.endswith("; load the remaining records with --on-data-loss skip")
    row = land(cluster, tmp_path, 10, 50, on_data_loss="skip")
    assert (row.skipped_offsets, row.rows) == (20, 20)
    assert values(tmp_path, row)[0] == b"v30"


@pytest.mark.promise("P4")
def test_topic_recreated_during_task(cluster: MemoryCluster, tmp_path: Path) -> None:
    """The name now refers to other records; the id of the plan does not."""
    planned = OffsetRange("clicks", uuid_to_string(cluster.topic_ids["clicks"]), 0, 0, 50, 0, 0)
    cluster.create("clicks", 1)
    cluster.partitions["clicks", 0].append_values([b"other"] * 100)
    row = land_task(
        4, planned, LandSettings(cluster.open, FileLayout(str(tmp_path)), FileLayout(str(tmp_path)), "load1")
    )
    assert row.error_kind == "failed"
    assert "'clicks' was deleted and created again" in row.error
    assert not list(tmp_path.iterdir())


def test_topic_recreated_after_last_fetch(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is shorter than the read offset, but was not truncated."""
    epoch_ends = cluster.epoch_ends

    def late(*arguments: Any) -> dict[tuple[str, int], int]:
        cluster.create("clicks", 1)
        return epoch_ends(*arguments)

    monkeypatch.setattr(cluster, "epoch_ends", late)
    row = land(cluster, tmp_path, 0, 200)
    assert row.error_kind == "failed"
    assert "'clicks' was deleted and created again" in row.error
    assert not list(tmp_path.iterdir())


def test_a_log_cut_back_under_a_task(cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclean election between two fetches: the next records have the planned offsets but are different ones."""
    monkeypatch.setattr(fetching, "FETCH_BYTES", 1)
    log = cluster.partitions["clicks", 0]
    fetch = cluster.fetch

    def lose_the_end(*arguments: Any, **named: Any) -> FetchResult:
        if cluster.fetches == 3:
            log.elect_leader(150)
            log.append_values([b"other"] * 50)
        return fetch(*arguments, **named)

    monkeypatch.setattr(cluster, "fetch", lose_the_end)
    row = land(cluster, tmp_path, 0, 200)
    assert row.error_kind == "data loss"
    assert "truncated to offset 150 during the read" in row.error
    assert not list(tmp_path.iterdir())
    assert land(cluster, tmp_path, 0, 150).rows == 150


def test_stalled_partition_ends_in_error(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "STALL_TIMEOUT_S", 0.0)
    empty = FetchResult(b"", 200, 0, 200, ())
    monkeypatch.setattr(cluster, "fetch", lambda *_, **__: empty)
    row = land(cluster, tmp_path, 0, 10)
    assert row.error_kind == "failed"
    assert "no record arrived from offset 0" in row.error


def test_discard_takes_the_files_of_one_load_only(tmp_path: Path) -> None:
    mine, nested = (
        tmp_path / "part-a-0-00-load1-0000000a.zstd.parquet",
        tmp_path / "topic=a" / "part-a-0-01-load1-0000000b.zstd.parquet",
    )
    kept, foreign = (
        tmp_path / "part-a-0-02-load1-0000000c.zstd.parquet",
        tmp_path / "part-a-0-00-load2-0000000a.zstd.parquet",
    )
    nested.parent.mkdir()
    for path in (mine, nested, kept, foreign):
        path.touch()
    discard_load(LocalStore(tmp_path), "load1", [str(kept)])
    assert [path.exists() for path in (mine, nested, kept, foreign)] == [False, False, True, True]
