"""Delta: files and offsets in one commit; a committer with an outdated plan is refused; others can read the table."""

from __future__ import annotations

import base64
import errno
import json
import os
import resource
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from deltalake.exceptions import CommitFailedError  # noqa: E402

from ottla.pipeline.load.compact import compact  # noqa: E402
from ottla.pipeline.load.driver import commit_of  # noqa: E402
from ottla.pipeline.load.land import LandSettings, land_task  # noqa: E402
from ottla.pipeline.load.leased_files import leased_files  # noqa: E402
from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.model.plan import (  # noqa: E402
    KnownTopics,
    LoadPlan,
    PlanSettings,
    make_plan,
)
from ottla.pipeline.sinks import delta, delta_features, rewrite  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.pipeline.sinks.table import (  # noqa: E402
    ColumnStatistics,
    CommitResult,
    DataFile,
    StaleCommitError,
    TableCommit,
    UnknownCommitError,
    files_from_json,
)
from ottla.pipeline.sinks.writer import discard_load  # noqa: E402
from ottla.pipeline.stores.local_store import LocalStore  # noqa: E402

from ..memory_cluster import MemoryCluster  # noqa: E402


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("clicks", 2)
    for index in range(2):
        made.partitions["clicks", index].append_values([b"v%d" % number for number in range(50)])
    return made


def written(cluster: MemoryCluster, target: DeltaTarget, plan: LoadPlan) -> list[DataFile]:
    settings = LandSettings(cluster.open, target.ensure(SCHEMA), target.dead_letters().layout(), "load")
    rows = [land_task(number, task, settings) for number, task in enumerate(plan.tasks)]
    return [file for row in rows for file in files_from_json(row.files)]


def commit(target: DeltaTarget, plan: LoadPlan, files: list[DataFile], load_id: str = "load") -> CommitResult:
    return target.commit(commit_of(plan, load_id, files))


def load(cluster: MemoryCluster, target: DeltaTarget, pipeline_id: str = "default") -> int:
    plan = make_plan(cluster, target, ["clicks"], PlanSettings(pipeline_id=pipeline_id))
    return commit(target, plan, written(cluster, target, plan), uuid.uuid4().hex).version


def commits_meanwhile(monkeypatch: pytest.MonkeyPatch, another: Callable[[], object]) -> None:
    """Commit once between the check of a commit and its write."""
    check = TableCommit.check_expected

    def check_then_lose_the_race(self: TableCommit, found: Mapping[str, int | None]) -> None:
        monkeypatch.undo()
        check(self, found)
        another()

    monkeypatch.setattr(TableCommit, "check_expected", check_then_lose_the_race)


def rows(path: Path) -> list[tuple[int, int, bytes]]:
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("columns", [(), ("topic",), ("topic", "partition")])
def test_deltalake_reads_loaded_rows(cluster: MemoryCluster, tmp_path: Path, columns: tuple[str, ...]) -> None:
    target = DeltaTarget(tmp_path / "table", columns)
    assert load(cluster, target) == 1
    table = deltalake.DeltaTable(str(tmp_path / "table"))
    assert pa.schema(table.schema()).names == SCHEMA.names
    assert table.metadata().partition_columns == list(columns)
    assert rows(tmp_path / "table") == sorted(
        (index, number, b"v%d" % number) for index in (0, 1) for number in range(50)
    )
    cluster.partitions["clicks", 1].append_values([b"more"])
    assert load(cluster, target) == 2
    assert rows(tmp_path / "table")[-1] == (1, 50, b"more")
    assert target.version() == 2
    assert sorted(target.files()) == sorted(str(path) for path in (tmp_path / "table").rglob("*.parquet"))


def test_statistics_let_readers_skip_files(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    load(cluster, target)
    actions = pa.table(deltalake.DeltaTable(str(Path(target.location))).get_add_actions(flatten=True))
    assert actions.column("max.offset").to_pylist() == [49, 49]
    assert sum(actions.column("num_records").to_pylist()) == 100
    assert {str(time) for time in actions.column("max.timestamp").to_pylist()} == {"2023-11-14 22:13:20.049000+00:00"}


def test_times_outside_json_years_have_no_bounds(tmp_path: Path) -> None:
    """Results of Spark can have years far outside 1 to 9999."""
    days = {"before": (-719_163, 0), "after": (0, 2_932_897), "within": (-719_162, 2_932_896)}
    table = DeltaTarget(tmp_path / "table")
    table.ensure(pa.schema([(name, pa.date32()) for name in days]))
    (tmp_path / "table" / "file").write_bytes(b"12345")
    columns = {name: ColumnStatistics(0, *bounds) for name, bounds in days.items()}
    table.commit(TableCommit("load", [DataFile("file", 5, 2, 0, columns)]))
    [action] = pa.table(deltalake.DeltaTable(str(tmp_path / "table")).get_add_actions(flatten=True)).to_pylist()
    assert {name for name in days if action.get(f"min.{name}") is not None} == {"within"}


def test_commit_metadata_is_readable(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    load(cluster, target)
    newest = deltalake.DeltaTable(str(Path(target.location))).history(1)[0]
    assert newest["ottla.ranges"] == '{"clicks/0": [0, 50], "clicks/1": [0, 50]}'
    assert newest["ottla.rows"] == "100"
    assert target.known_topics().ids.keys() == {"clicks"}


def test_a_table_that_does_not_exist_yet(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "none")
    assert target.committed_offsets(["a"]) == {"a": None}
    assert target.known_topics() == KnownTopics()
    with pytest.raises(OperatorError, match="no Delta table"):
        target.files()


def test_a_stale_second_committer_is_refused(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    first = make_plan(cluster, target, ["clicks"], PlanSettings())
    second = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, first), written(cluster, target, second)
    commit(target, first, files[0])
    with pytest.raises(StaleCommitError, match=r"from the start to offset 50 .*run it again"):
        commit(target, second, files[1])
    assert len(rows(Path(target.location))) == 100


def test_commit_between_check_and_write_is_detected(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other load commits after this one checked its snapshot: delta-rs refuses, the second check finds it."""
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    commits_meanwhile(monkeypatch, lambda: load(cluster, DeltaTarget(target.location)))
    with pytest.raises(StaleCommitError):
        commit(target, plan, files)
    assert len(rows(Path(target.location))) == 100


def test_unrelated_commits_in_between_are_tolerated(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    commits_meanwhile(monkeypatch, lambda: load(cluster, DeltaTarget(target.location), pipeline_id="other"))
    commit(target, plan, files)
    assert len(rows(Path(target.location))) == 200


def test_offsets_outlive_compaction_checkpoint_and_cleanup(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    for number in range(5):
        load(cluster, target)
        cluster.partitions["clicks", 0].append_values([b"%d" % number])
    load(cluster, target)
    table = deltalake.DeltaTable(str(Path(target.location)))
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert make_plan(cluster, target, ["clicks"], PlanSettings()).is_empty
    assert len(rows(Path(target.location))) == 105


def test_a_commit_without_files_moves_the_offsets(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    target.ensure(SCHEMA)
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    commit(target, plan, [])
    assert make_plan(cluster, target, ["clicks"], PlanSettings()).is_empty


def test_unusable_tables_are_refused(cluster: MemoryCluster, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    deltalake.write_deltalake(str(foreign), pa.table({"a": [1]}))
    with pytest.raises(OperatorError, match="lacks the column 'topic'"):
        DeltaTarget(foreign).ensure(SCHEMA)
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="can't be created"):
        DeltaTarget(tmp_path / "file").ensure(SCHEMA)
    forgetful = DeltaTarget(tmp_path / "forgetful")
    forgetful.ensure(SCHEMA)
    properties = {delta_features.TRANSACTION_RETENTION: "interval 1 day"}
    deltalake.DeltaTable(forgetful.location).alter.set_table_properties(properties)
    with pytest.raises(OperatorError, match="load records twice"):
        forgetful.ensure(SCHEMA)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, "mapping"),
        ({"delta.constraints.small": "offset < 10"}, "the constraint 'small' on its rows"),
        ({}, "the column 'extra' that takes no null"),
    ],
)
def test_tables_with_writer_requirements_are_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    """A file that is added to a table with column mapping reads as nulls, for example in Spark."""
    schema = SCHEMA if settings else SCHEMA.append(pa.field("extra", pa.int32(), nullable=False))
    constraints = {name.rpartition(".")[2]: text for name, text in settings.items() if "constraints" in name}
    table = deltalake.DeltaTable.create(tmp_path / "table", schema, configuration={} if constraints else settings)
    if constraints:
        table.alter.add_constraint(constraints)
    with pytest.raises(OperatorError, match=rf"has .*{message}.*, which loads don't support; load into another table"):
        DeltaTarget(tmp_path / "table").ensure(SCHEMA)


def actions_of(table: DeltaTarget) -> list[dict[str, Any]]:
    """Actions of the newest commit."""
    log = Path(table.location, "_delta_log", f"{table.version():020}.json")
    return [json.loads(line) for line in log.read_text().splitlines()]


def load_often(cluster: MemoryCluster, table: DeltaTarget) -> None:
    for _ in range(3):
        cluster.partitions["clicks", 0].append_values([b"more"])
        load(cluster, table)


def test_a_compaction_changes_no_data(cluster: MemoryCluster, tmp_path: Path) -> None:
    """Readers of the change feed see no change; an append-only table can be compacted, too."""
    deltalake.DeltaTable.create(tmp_path / "table", SCHEMA, configuration={"delta.appendOnly": "true"})
    table = DeltaTarget(tmp_path / "table")
    load_often(cluster, table)
    named = set(table.files())
    compact(DeltaTarget(table.location))
    actions = actions_of(table)
    files = [action[kind] for action in actions for kind in ("add", "remove") if kind in action]
    assert len(files) == len(named) + 1
    assert not any(file["dataChange"] for file in files)
    assert not any("txn" in action for action in actions)
    assert len(rows(tmp_path / "table")) == 103


def test_compaction_refuses_unsupported_writer_features(cluster: MemoryCluster, tmp_path: Path) -> None:
    """The features are set after the loads: a new file would need column ids, for example."""
    table = DeltaTarget(tmp_path / "table")
    load_often(cluster, table)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]}
    log = tmp_path / "table" / "_delta_log" / f"{table.version() + 1:020}.json"
    log.write_text(json.dumps({"protocol": protocol}) + "\n")
    before = table.version()
    with pytest.raises(
        OperatorError, match="the feature 'rowTracking' for writers, which `ottla pipeline compact` doesn't"
    ):
        compact(DeltaTarget(table.location))
    assert table.version() == before


def test_rows_deleted_beside_a_compaction_stay_deleted(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a deletion vector the file keeps its name; the compaction has already read the deleted rows."""
    settings = {"delta.enableDeletionVectors": "true"}
    deltalake.DeltaTable.create(tmp_path / "table", SCHEMA, configuration=settings)
    table = DeltaTarget(tmp_path / "table")
    load_often(cluster, table)
    before = rewrite.rewrite_files

    def rewrite_while_another_deletes(*arguments: Any) -> DataFile:
        made = before(*arguments)
        delete_first_row(table)
        return made

    monkeypatch.setattr(rewrite, "rewrite_files", rewrite_while_another_deletes)
    with pytest.raises(OperatorError, match="has deletion vectors"):
        compact(DeltaTarget(table.location))
    assert not any("commitInfo" in action for action in actions_of(table)), "the deletion is the newest commit"
    assert not list((tmp_path / "table").glob("part-compacted*"))


def delete_first_row(table: DeltaTarget) -> None:
    """As another engine does: the file is removed and added again with an inline deletion vector, a bitmap of one
    bit."""
    name, size = os.path.relpath(table.files()[0], table.location), os.path.getsize(table.files()[0])
    bitmap = struct.pack("<IqiIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
    letters = str.maketrans(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    )
    text = base64.b85encode(bitmap + bytes(-len(bitmap) % 4)).decode().translate(letters)  # Z85
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": 1}
    file = {"path": name, "partitionValues": {}, "size": size, "dataChange": True}
    added = {"add": {**file, "modificationTime": 0, "stats": '{"numRecords": 1}', "deletionVector": vector}}
    log = Path(table.location, "_delta_log", f"{table.version() + 1:020}.json")
    log.write_text(json.dumps({"remove": {**file, "deletionTimestamp": 0}}) + "\n" + json.dumps(added) + "\n")


def test_usable_tables_of_other_writers(cluster: MemoryCluster, tmp_path: Path) -> None:
    settings = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    deltalake.DeltaTable.create(tmp_path / "table", SCHEMA, configuration=settings)
    table = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, table, ["clicks"], PlanSettings())
    assert DeltaTarget(tmp_path / "table").ensure(SCHEMA).directory == str(tmp_path / "table")
    assert not plan.is_empty


ODD_NAMES = ["plain", "with space", "häuser", "{a,b}[c]*?", "100%", "a:b#c", "🙂 ~'\"&+"]
"""Directories with addresses that differ from their paths, or that are patterns elsewhere."""


@contextmanager
def full_disk(free: int = 6_000) -> Iterator[None]:
    """The limit of file sizes simulates a full disk: a commit fits, a checkpoint does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_checkpoint_that_fails_does_not_undo_the_commit(cluster: MemoryCluster, tmp_path: Path, name: str) -> None:
    """delta-rs raises the same error as for a failed commit; the files must stay, and load once."""
    target = DeltaTarget(tmp_path / name)
    target.ensure(SCHEMA)
    deltalake.DeltaTable(str(Path(target.location))).alter.set_table_properties({"delta.checkpointInterval": "3"})
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    with full_disk():
        done = commit(target, plan, files)
    assert (done.version, target.version()) == (2, 2)
    assert "version 2 was committed, but" in done.note
    assert not list((Path(target.location) / "_delta_log").glob("*.checkpoint.parquet"))
    discard_load(LocalStore(Path(target.location)), "load", target.named_files())
    assert len(rows(Path(target.location))) == 100
    assert make_plan(cluster, target, ["clicks"], PlanSettings()).is_empty
    cluster.partitions["clicks", 1].append_values([b"more"])
    assert load(cluster, target) == 3
    assert len(rows(Path(target.location))) == 101
    assert sorted(target.files()) == sorted(str(path) for path in Path(target.location).rglob("part-*.parquet"))


def test_failed_commit_is_reported_and_leaves_nothing(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    with full_disk(free=100), pytest.raises(OperatorError, match="could not be committed"):
        commit(target, plan, files)
    assert target.version() == 0
    discard_load(LocalStore(Path(target.location)), "load", target.named_files())
    assert not list(Path(target.location).glob("*.parquet"))
    assert load(cluster, target) == 1
    assert len(rows(Path(target.location))) == 100


@pytest.mark.parametrize("error", [CommitFailedError("version already exists"), OSError(errno.EIO, "bad disk")])
def test_an_error_after_the_commit_is_looked_up(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Also if others committed after it and compacted its files before the error was checked."""
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    write: Callable[..., Any] = delta._write

    def write_then_fail(*arguments: object) -> Exception:
        write(*arguments)
        deltalake.DeltaTable(str(Path(target.location))).optimize.compact()
        return error

    monkeypatch.setattr(delta, "_write", write_then_fail)
    done = commit(target, plan, files)
    assert (done.version, target.version()) == (1, 2)
    assert str(error) in done.note
    discard_load(LocalStore(Path(target.location)), "load", target.named_files())
    old = deltalake.DeltaTable(str(Path(target.location)), version=1)
    assert old.to_pyarrow_table().num_rows == 100
    assert len(rows(Path(target.location))) == 100


def test_files_of_commit_with_unknown_outcome_stay(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response is lost, the store can't be read, and the commit appears after a failed load would have been
    discarded."""
    target = DeltaTarget(tmp_path / "table")
    load(cluster, target)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    late: list[tuple[Any, ...]] = []
    unanswered: list[str] = []
    read = LocalStore.read

    def lose(*arguments: Any) -> Exception:
        late.append(arguments)
        return OSError("no answer")

    def read_later(store: LocalStore, path: str) -> bytes:
        if late and not unanswered:
            unanswered.append(path)
            raise OSError("no answer")
        return read(store, path)

    with monkeypatch.context() as patch:
        patch.setattr(delta, "_write", lose)
        patch.setattr(LocalStore, "read", read_later)
        with pytest.raises(UnknownCommitError, match="the next load checks it"), leased_files(target, "load"):
            commit(target, plan, written(cluster, target, plan))
    assert unanswered == ["_delta_log/00000000000000000002.json"]
    assert delta._write(*late[0]) is None
    assert len(rows(Path(target.location))) == 101


def test_unreadable_store_is_not_reported_as_missing_files(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = DeltaTarget(tmp_path / "table")
    target.ensure(SCHEMA)
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)

    def refused(store: LocalStore, path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(LocalStore, "find", refused)
    with pytest.raises(
        OperatorError, match=r"^nothing was committed: its files in .* can't be checked: permission denied"
    ):
        commit(target, plan, files)


def test_commit_of_other_load_with_same_plan_is_not_ours(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both move the same offsets to the same end, so only the load id shows which files the table names."""
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    theirs = written(cluster, target, plan)
    write: Callable[..., Any] = delta._write

    def lose_the_race(*arguments: object) -> object:
        monkeypatch.setattr(delta, "_write", write)
        commit(target, plan, theirs, "theirs")
        return write(*arguments)

    monkeypatch.setattr(delta, "_write", lose_the_race)
    with pytest.raises(StaleCommitError):
        commit(target, plan, files, "ours")
    assert sorted(target.files()) == sorted(str(Path(target.location) / file.path) for file in theirs)


@pytest.mark.parametrize("full", [False, True])
def test_delta_vacuum_retention_keeps_files_of_running_load(cluster: MemoryCluster, tmp_path: Path, full: bool) -> None:
    """Between landing and commit no version names the files; only their age protects them."""
    target = DeltaTarget(tmp_path / "a table", ("topic", "partition"))
    load(cluster, target)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    deltalake.DeltaTable(str(Path(target.location))).vacuum(dry_run=False, full=full)
    assert commit(target, plan, files).note == ""
    assert len(rows(Path(target.location))) == 101


def test_a_commit_without_its_files_is_refused(cluster: MemoryCluster, tmp_path: Path) -> None:
    """A vacuum with too short a retention removed them: the table would name missing files."""
    target = DeltaTarget(tmp_path / "table")
    load(cluster, target)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    table = deltalake.DeltaTable(str(Path(target.location)))
    assert table.vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    with pytest.raises(
        OperatorError, match=r"1 files that the workers wrote are not in .* retention longer than a load"
    ):
        commit(target, plan, files)
    assert target.version() == table.version()
    files = written(cluster, target, plan)
    os.truncate(Path(target.location) / files[0].path, 10)
    with pytest.raises(OperatorError, match="nothing was committed: 1 files"):
        commit(target, plan, files)
    assert len(rows(Path(target.location))) == 100
    assert load(cluster, target)
    assert len(rows(Path(target.location))) == 101


def test_a_log_that_can_not_be_read_removes_nothing(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    load(cluster, target)
    (Path(target.location) / "_delta_log" / "00000000000000000002.json.tmp.json").write_text("{")
    with pytest.raises(OperatorError, match="can't be read"):
        target.named_files()


def test_errors_of_the_library_are_one_line(tmp_path: Path) -> None:
    """The library prints causes on separate lines, in colours, and a backtrace without names."""
    log = tmp_path / "broken" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("garbage")
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "_delta_log").touch()
    for name, words in (
        ("broken", "Json error: Encountered unexpected 'g'"),
        ("file", "Not a directory (os error 20)"),
    ):
        with pytest.raises(OperatorError) as caught:
            DeltaTarget(tmp_path / name).version()
        text = str(caught.value)
        assert words in text
        assert text.isprintable(), text
        assert "unknown" not in text


def test_files_of_other_writers_are_found(cluster: MemoryCluster, tmp_path: Path) -> None:
    """Delta allows escapes and absolute addresses in its log; files outside the directory are refused."""
    target = DeltaTarget(tmp_path / "a table")
    load(cluster, target)
    assert target._data_path("x=a%20b%252C/f.parquet") == "x=a b%2C/f.parquet"
    assert target._data_path((tmp_path / "é {").as_uri()) == str(tmp_path / "é {")
    assert os.fsencode(target._data_path("%FF")) == b"\xff"
    with pytest.raises(OperatorError, match="outside its directory"):
        target._data_path("s3://bucket/f.parquet")


@pytest.mark.parametrize("name", ["per%20cent", "%41", "back\\slash", "new\nline", os.fsdecode(b"\xff")])
def test_directories_delta_cannot_open_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperatorError, match=r"choose (a directory without it|another directory)"):
        DeltaTarget(tmp_path / name / "table")
    assert not list(tmp_path.iterdir())
    (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / name)
    with pytest.raises(OperatorError, match=r"choose (a directory without it|another directory)"):
        DeltaTarget(tmp_path / "link")
