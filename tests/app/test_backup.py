"""Parts of `ottla backup` that need no broker: changes of the source during a copy, and hostile manifests."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.app.backup.files import SourceChanged
from ottla.app.backup.manifest import MANIFEST
from ottla.app.backup.partition_copy import PartitionCopy
from ottla.app.disk import RealDisk
from ottla.app.main import cli
from ottla.storage.files.checkpoints import read_offsets
from ottla.storage.files.log_dir_ids import remember, remembered

from .apache_layout import DIRECTORY_ID, ApacheDirectory, batch, features, registration, topic_records

FIRST, SECOND, THIRD = (f"{base:020d}.log" for base in (0, 10, 20))


@pytest.fixture
def copy(tmp_path: Path) -> PartitionCopy:
    """A log of three segments, measured; the last one then grows."""
    source = tmp_path / "data" / "t-0"
    source.mkdir(parents=True)
    for name, base in ((FIRST, 0), (SECOND, 10), (THIRD, 20)):
        (source / name).write_bytes(batch(base, 10))
    copy = PartitionCopy(("t", 0), str(source), str(tmp_path / "copy"))
    copy.measure()
    with (source / THIRD).open("ab") as file:
        file.write(batch(30, 10))
    return copy


def content(copy: PartitionCopy) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(copy.target).iterdir()}


def test_copy_ends_where_the_log_was_measured(copy: PartitionCopy) -> None:
    assert not copy.is_at_end()
    copy.copy_log(RealDisk())
    copy.check()
    assert content(copy) == {FIRST: batch(0, 10), SECOND: batch(10, 10), THIRD: batch(20, 10)}
    assert copy.end_offset == 30


def test_copy_cuts_a_batch_that_is_being_written(copy: PartitionCopy) -> None:
    os.truncate(Path(copy.source, THIRD), len(batch(20, 10)) + 20)
    copy.measure()
    copy.copy_log(RealDisk())
    assert content(copy)[THIRD] == batch(20, 10)
    assert copy.end_offset == 30


@pytest.mark.parametrize("copied_before", [False, True])
def test_copy_omits_segments_that_retention_removes(copy: PartitionCopy, copied_before: bool) -> None:
    if copied_before:
        copy.copy_log(RealDisk())
    Path(copy.source, FIRST).unlink()
    if not copied_before:
        copy.copy_log(RealDisk())
    copy.check()
    assert content(copy).keys() == {SECOND, THIRD}


@pytest.mark.promise("D16")
def test_copy_is_repeated_after_compaction(copy: PartitionCopy) -> None:
    """A cleaned segment lacks a record that is replaced behind the measured end."""
    copy.copy_log(RealDisk())
    cleaned = Path(copy.source, SECOND + ".swap")
    cleaned.write_bytes(batch(12, 8))
    with pytest.raises(SourceChanged):
        copy.check()
    cleaned.rename(Path(copy.source, SECOND))
    with pytest.raises(SourceChanged):
        copy.check()
    copy.cut = []
    copy.measure()
    copy.copy_log(RealDisk())
    copy.check()
    assert content(copy) == {FIRST: batch(0, 10), SECOND: batch(12, 8), THIRD: batch(20, 10) + batch(30, 10)}


def test_copy_of_open_files_ignores_compaction(copy: PartitionCopy) -> None:
    copy.open_files()
    Path(copy.source, FIRST).unlink()
    Path(copy.source, SECOND).unlink()
    Path(copy.source, SECOND).write_bytes(batch(12, 8))
    copy.copy_log(RealDisk())
    copy.check()
    copy.close_files()
    assert content(copy) == {FIRST: batch(0, 10), SECOND: batch(10, 10), THIRD: batch(20, 10)}


def test_files_open_only_as_they_were_measured(copy: PartitionCopy) -> None:
    """The pass of a cleaner may know the records of a new segment."""
    Path(copy.source, f"{40:020d}.log").touch()
    with pytest.raises(SourceChanged):
        copy.open_files()
    copy.close_files()


def test_copy_is_repeated_after_truncation(copy: PartitionCopy) -> None:
    copy.copy_log(RealDisk())
    Path(copy.source, THIRD).unlink()
    os.truncate(Path(copy.source, SECOND), 0)
    with pytest.raises(SourceChanged):
        copy.check()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a stopped node with one partition."""
    node = ApacheDirectory(tmp_path / "node")
    node.write([*features(), registration(), *topic_records("t")])
    node.partition("t", 0, batch(0, 10))
    done = CliRunner().invoke(cli, ["backup", str(tmp_path / "backup"), "--data-dir", str(node.path)])
    assert done.exit_code == 0, done.output
    assert "1 partition" in done.output
    return tmp_path / "backup"


def restore(backup: Path, target: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["restore", str(backup), "--data-dir", str(target), *arguments])


def test_directories_of_a_node_stay_apart(tmp_path: Path) -> None:
    other_id = b"E" * 16
    first, second = ApacheDirectory(tmp_path / "a"), ApacheDirectory(tmp_path / "b", directory_id=other_id)
    first.write([*features(), registration(log_dirs=(DIRECTORY_ID, other_id)), *topic_records("t", 2)])
    first.partition("t", 0, batch(0, 10))
    second.write_identity()
    second.partition("t", 1, batch(0, 3))
    second.recovery_points({("t", 1): 5})
    remember(RealDisk(), str(second.path), {"EEEEEEEEEEEEEEEEEEEEEA"})
    done = CliRunner().invoke(cli, ["backup", str(tmp_path / "c"), "--data-dir", f"{first.path},{second.path}"])
    assert done.exit_code == 0, done.output
    done = restore(tmp_path / "c", Path(f"{tmp_path}/d,{tmp_path}/e"))
    assert done.exit_code == 0, done.output
    names = [{path.name for path in (tmp_path / name).glob("*-?")} for name in ("d", "e")]
    assert names == [{"t-0", "__cluster_metadata-0"}, {"t-1"}]
    points = read_offsets(RealDisk(), str(tmp_path / "e" / "recovery-point-offset-checkpoint"))
    assert points == {("t", 1): 3}  # not above the end of the log
    assert remembered(RealDisk(), f"{tmp_path}/e") == {"EEEEEEEEEEEEEEEEEEEEEA"}
    assert restore(tmp_path / "c", tmp_path / "alone").exit_code == 2


@pytest.mark.promise("D17")
def test_restore_refuses_what_exists(backup: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    assert restore(backup, target).exit_code == 0
    before = sorted(target.rglob("*"))
    again = restore(backup, target)
    assert (again.exit_code, "exists and is not empty" in again.output) == (2, True)
    assert sorted(target.rglob("*")) == before
    assert (target / "t-0" / FIRST).read_bytes() == batch(0, 10)


@pytest.mark.promise("D17")
def test_restore_refuses_changed_files(backup: Path, tmp_path: Path) -> None:
    path = backup / "partitions" / "t-0" / FIRST
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = restore(backup, tmp_path / "target")
    assert (done.exit_code, f"{path} differs" in done.output) == (2, True)
    assert not (tmp_path / "target" / "meta.properties").exists()
    started = CliRunner().invoke(cli, ["start", "--port", "0", "--data-dir", str(tmp_path / "target")])
    assert (started.exit_code, "has no meta.properties" in started.output) == (2, True)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("partitions", 0, "name"), "../t-0"),
        (("partitions", 0, "files", 0, 0), "../../x.log"),
        (("partitions", 0, "directories", 0), 1),
        (("partitions", 0, "files", 0, 1), -1),
        (("directories", 0, "directory_id"), "short"),
        (("directories",), []),
        (("version",), 2),
    ],
)
def test_restore_refuses_a_damaged_manifest(
    backup: Path, tmp_path: Path, place: tuple[str | int, ...], value: object
) -> None:
    document = json.loads((backup / MANIFEST).read_text())
    *above, last = place
    holder = document
    for key in above:
        holder = holder[key]
    holder[last] = value
    (backup / MANIFEST).write_text(json.dumps(document))
    done = restore(backup, tmp_path / "target")
    assert (done.exit_code, "is damaged" in done.output) == (2, True), done.output
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "x.log").exists()


def test_backup_into_the_data_is_refused(backup: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    done = CliRunner().invoke(cli, ["backup", str(node / "backup"), "--data-dir", str(node)])
    assert (done.exit_code, "contain one another" in done.output) == (2, True)
    assert not (node / "backup").exists()
