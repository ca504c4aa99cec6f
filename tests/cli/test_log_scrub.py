"""`ottla log scrub`: every damaged byte of a segment is reported, and an intact directory has no problems."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import end_transaction_marker

TIME = 1_700_000_000_000
FIRST, SECOND = f"{0:020d}.log", f"{6:020d}.log"


def batch(base_offset: int, leader_epoch: int) -> bytes:
    records = [RecordData(TIME + base_offset + i, b"key", b"value %d" % i) for i in range(3)]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments of two batches, of epochs 1, 1, 2 and 2."""
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory / FIRST).write_bytes(batch(0, 1) + batch(3, 1))
    (directory / SECOND).write_bytes(batch(6, 2) + batch(9, 2))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 6\n")
    return directory


def scrub(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["log", "scrub", *map(str, arguments)], catch_exceptions=False)


def problems(directory: Path) -> list[tuple[str, int | None]]:
    result = scrub(directory, "--json")
    found = [entry for entry in map(json.loads, result.stdout.splitlines()) if entry["type"] == "problem"]
    assert result.exit_code == (1 if found else 0)
    return [(Path(entry["file"]).name, entry["position"]) for entry in found]


def test_intact_directory_has_no_problems(partition: Path) -> None:
    for directory in (partition, partition.parent):
        result = scrub(directory)
        assert result.exit_code == 0
        assert result.stdout.startswith("1 partition, 2 segments, ")
        assert result.stdout.endswith("read: 0 problems\n")


def test_pipe_is_reported_without_blocking(partition: Path) -> None:
    pipes = FIRST, f"{6:020d}.snapshot", "leader-epoch-checkpoint"
    for name in pipes:
        (partition / name).unlink(missing_ok=True)
        os.mkfifo(partition / name)
    (partition / f"{12:020d}.log").mkdir()
    assert problems(partition) == sorted((name, None) for name in (*pipes, f"{12:020d}.log"))


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_every_flipped_byte_is_found_in_its_segment(partition: Path, name: str) -> None:
    path = partition / name
    whole = path.read_bytes()
    for position in range(len(whole)):
        spoiled = bytearray(whole)
        spoiled[position] ^= 0x80
        path.write_bytes(spoiled)
        found = problems(partition)
        # Nothing follows that contradicts a higher offset or leader epoch of the last batch.
        if name == FIRST or position - len(whole) // 2 not in (*range(8), *range(12, 16)):
            assert found, position
        assert {file for file, _ in found} <= {name}


def test_a_flipped_leader_epoch_is_found_by_the_checkpoint(partition: Path) -> None:
    path = partition / FIRST
    path.write_bytes(batch(0, 2) + batch(3, 2))
    assert problems(partition) == [(FIRST, 0), (FIRST, len(batch(0, 2)))]


def test_a_damaged_checkpoint_is_named(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n3\n1 0\n2 6\n")
    assert problems(partition) == [("leader-epoch-checkpoint", None)]


def test_a_cut_segment_names_the_place(partition: Path) -> None:
    path = partition / SECOND
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert problems(partition) == [(SECOND, len(whole) // 2)]


def aborted_before(directory: Path, *, log_start: int | None, cleaned: bool) -> None:
    """A transaction of offsets 0 to 2, aborted by the marker at 3 without an index entry, and a record after it."""
    data = build_batch(
        [RecordData(TIME, b"key", b"value")] * 3,
        leader_epoch=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    producer = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0}
    data += end_transaction_marker(commit=False, timestamp_ms=TIME, base_offset=3, leader_epoch=1, **producer)
    data += build_batch([RecordData(TIME, b"key", b"value")] * 2, base_offset=4, leader_epoch=1)
    (directory / FIRST).write_bytes(data)
    if log_start is not None:
        (directory.parent / "log-start-offset-checkpoint").write_text(f"0\n2\nother 0 9\nt 0 {log_start}\n")
    if cleaned:
        (directory.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 6\n")


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize(("log_start", "is_missed"), [(None, True), (2, True), (3, False), (4, False)])
def test_aborts_of_deleted_records_need_no_index_entry(
    partition: Path, log_start: int | None, is_missed: bool, cleaned: bool
) -> None:
    """The cleaner writes no entry if all records of the transaction are deleted, but its marker may stay."""
    aborted_before(partition, log_start=log_start, cleaned=cleaned)
    for directory in (partition, partition.parent):
        assert problems(directory) == [(FIRST, None)] * is_missed


def test_gaps_are_ignored_when_log_start_is_unknown(partition: Path) -> None:
    aborted_before(partition, log_start=None, cleaned=True)
    (partition.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0\n")
    assert problems(partition) == []


def test_a_directory_without_partitions_is_refused(tmp_path: Path) -> None:
    result = scrub(tmp_path)
    assert result.exit_code == 2
    assert "neither a partition directory" in result.stderr
