"""Files and offsets in one commit; a committer whose plan is stale is refused; others can read the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.decode import SCHEMA  # noqa: E402
from ottla.pipeline.land import LandSettings, land_task, partition_values  # noqa: E402
from ottla.pipeline.plan import LoadPlan, PlanSettings, make_plan  # noqa: E402
from ottla.pipeline.tables import delta  # noqa: E402
from ottla.pipeline.tables.delta import DataFile, DeltaTarget, StaleCommitError  # noqa: E402

from .memory_cluster import MemoryCluster  # noqa: E402


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create("clicks", 2)
    for index in range(2):
        made.partitions["clicks", index].append_values([b"v%d" % number for number in range(50)])
    return made


def written(cluster: MemoryCluster, target: DeltaTarget, plan: LoadPlan) -> list[DataFile]:
    columns = tuple(target.ensure())
    settings = LandSettings(cluster.open, str(target.path), "load", columns)
    files = []
    for number, task in enumerate(plan.tasks):
        row = land_task(number, task, settings)
        values = partition_values(task, columns)
        files.append(DataFile(row.path, row.size_bytes, row.rows, row.stats, row.modified_ms, values))
    return files


def commit(target: DeltaTarget, plan: LoadPlan, files: list[DataFile]) -> int:
    ranges = {f"{part.topic}/{part.partition}": (part.start_offset, part.end_offset) for part in plan.ranges}
    return target.commit(
        plan.expected,
        plan.following,
        files,
        pipeline_id=plan.pipeline_id,
        topic_ids=plan.topic_ids,
        ranges=ranges,
    )


def load(cluster: MemoryCluster, target: DeltaTarget, pipeline_id: str = "default") -> int:
    plan = make_plan(cluster, target, ["clicks"], PlanSettings(pipeline_id=pipeline_id))
    return commit(target, plan, written(cluster, target, plan))


def rows(path: Path) -> list[tuple[int, int, bytes]]:
    table = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("columns", [(), ("topic",), ("topic", "partition")])
def test_deltalake_reads_what_was_loaded(cluster: MemoryCluster, tmp_path: Path, columns: tuple[str, ...]) -> None:
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
    actions = pa.table(deltalake.DeltaTable(str(target.path)).get_add_actions(flatten=True))
    assert actions.column("max.offset").to_pylist() == [49, 49]
    assert sum(actions.column("num_records").to_pylist()) == 100


def test_the_commit_can_be_read_by_people(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    load(cluster, target)
    newest = deltalake.DeltaTable(str(target.path)).history(1)[0]
    assert newest["ottla.ranges"] == '{"clicks/0": [0, 50], "clicks/1": [0, 50]}'
    assert newest["ottla.rows"] == "100"
    assert target.known_topic_ids().keys() == {"clicks"}


def test_a_table_that_does_not_exist_yet(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "none")
    assert target.committed_offsets(["a"]) == {"a": None}
    assert target.known_topic_ids() == {}
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
    assert len(rows(target.path)) == 100


def test_a_commit_between_look_and_commit_is_seen(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other load commits after this one checked its snapshot: delta-rs refuses, the second look fences."""
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    checked = DeltaTarget._check_expected
    raced: list[int] = []

    def check_then_lose_the_race(self: DeltaTarget, table: object, expected: dict[str, int | None]) -> None:
        checked(self, table, expected)
        if not raced:
            raced.append(1)
            load(cluster, DeltaTarget(target.path))

    monkeypatch.setattr(DeltaTarget, "_check_expected", check_then_lose_the_race)
    with pytest.raises(StaleCommitError):
        commit(target, plan, files)
    assert len(rows(target.path)) == 100


def test_commits_of_others_in_between_do_no_harm(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = DeltaTarget(tmp_path / "table")
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    files = written(cluster, target, plan)
    checked = DeltaTarget._check_expected
    others: list[int] = []

    def another_pipeline_commits(self: DeltaTarget, table: object, expected: dict[str, int | None]) -> None:
        checked(self, table, expected)
        if not others:
            others.append(1)
            load(cluster, DeltaTarget(target.path), pipeline_id="other")

    monkeypatch.setattr(DeltaTarget, "_check_expected", another_pipeline_commits)
    commit(target, plan, files)
    assert len(rows(target.path)) == 200


def test_offsets_outlive_compaction_checkpoint_and_cleanup(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    for number in range(5):
        load(cluster, target)
        cluster.partitions["clicks", 0].append_values([b"%d" % number])
    load(cluster, target)
    table = deltalake.DeltaTable(str(target.path))
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert make_plan(cluster, target, ["clicks"], PlanSettings()).is_empty
    assert len(rows(target.path)) == 105


def test_a_commit_without_files_moves_the_offsets(cluster: MemoryCluster, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path / "table")
    target.ensure()
    plan = make_plan(cluster, target, ["clicks"], PlanSettings())
    commit(target, plan, [])
    assert make_plan(cluster, target, ["clicks"], PlanSettings()).is_empty


def test_tables_that_can_not_serve(cluster: MemoryCluster, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    deltalake.write_deltalake(str(foreign), pa.table({"a": [1]}))
    with pytest.raises(OperatorError, match="lacks the column 'topic'"):
        DeltaTarget(foreign).ensure()
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="can't be made"):
        DeltaTarget(tmp_path / "file").ensure()
    with pytest.raises(OperatorError, match="not by 'value'"):
        DeltaTarget(tmp_path / "table", ["value"])
    forgetful = DeltaTarget(tmp_path / "forgetful")
    forgetful.ensure()
    properties = {delta.TRANSACTION_RETENTION: "interval 1 day"}
    deltalake.DeltaTable(str(forgetful.path)).alter.set_table_properties(properties)
    with pytest.raises(OperatorError, match="load records twice"):
        forgetful.ensure()
