"""Runs that are killed or race: the table is in the old or the new state, and the next run makes up for it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.stores.open_store import open_store

from ..forks import Forks

if TYPE_CHECKING:
    from .world import World

STEPS = ("landing", "landed", "merging", "merged", "committed")
RACE_STEPS = ("planned", "landing", "landed", "merging", "merged")
PLACED_STEPS = [(kind, "disk", step) for kind in ("delta", "iceberg", "parquet") for step in STEPS]
PLACED_STEPS += [("delta", "s3", "landed"), ("delta", "s3", "committed"), ("parquet", "s3", "merged")]
"""In a bucket: leftovers of one stage, and a commit that is found again."""
RACES = [("delta", step, history) for step in RACE_STEPS for history in (False, True)]
RACES += [(kind, step, step.startswith("merg")) for kind in ("iceberg", "parquet") for step in RACE_STEPS]
"""A history changes the merge, for every format alike."""


def files_there(world: World) -> set[str]:
    """Names of data files, each of which exists only once."""
    found = open_store(world.path).files()
    return {file.name for file in found if file.name.endswith(".parquet") and "_delta_log" not in file.path.split("/")}


def files_named(world: World) -> set[str]:
    tables = [world.open(), world.open().dead_letters()]
    return {Path(path).name for table in tables if table.exists() for path in table.named_files()}


def check_recovery(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vacuum and the next run clean up after a killed run."""
    from ottla.pipeline.operations.vacuum import vacuum
    from ottla.pipeline.snapshot.staging import STAGED_DIRECTORY

    from .world import second_records

    second_records(world)
    with monkeypatch.context() as patch:
        patch.setattr("ottla.pipeline.load.leases.EXPIRY_S", -1)
        vacuum(world.open())
    assert list(open_store(world.path).files(STAGED_DIRECTORY)) == []
    assert files_there(world) == files_named(world)
    world.snapshot()
    world.check()
    assert len(world.letters()) == 2
    assert world.snapshot().version is None


@pytest.mark.promise("P8")
@pytest.mark.parametrize(("kind", "place", "step"), PLACED_STEPS)
def test_killed_at_each_step(
    make_world: Callable[..., World],
    killed: Forks,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    place: str,
    step: str,
) -> None:
    from .world import first_records

    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    world = make_world(kind, place=place, history=True)
    first_records(world)
    world.snapshot()
    before = world.rows()
    assert killed.run(kind, str(world.path), step) == -signal.SIGKILL
    if step != "committed":
        assert world.rows() == before
    check_recovery(world, monkeypatch)


@pytest.mark.parametrize("operation", range(0, 12, 2))
def test_killed_before_an_operation_on_files(
    make_world: Callable[..., World], killed: Forks, monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    from .world import first_records

    world = make_world("parquet", history=True)
    first_records(world)
    world.snapshot()
    assert killed.run("parquet", str(world.path), str(operation)) == -signal.SIGKILL
    check_recovery(world, monkeypatch)


@pytest.mark.parametrize(("kind", "step", "history"), RACES, indirect=["kind"])
def test_of_two_runs_one_is_refused(make_world: Callable[..., World], kind: str, step: str, history: bool) -> None:
    """The other one commits first, and has read more."""
    from ottla.pipeline.sinks.table import StaleCommitError

    from .world import Steps, first_records, second_records

    world = make_world(kind, history=history)
    first_records(world)
    world.snapshot()
    second_records(world)

    def other() -> None:
        world.produce((b"key 5", b"of the winner"))
        world.snapshot()

    with pytest.raises(StaleCommitError):
        world.snapshot(observer=Steps(**{step: other}))
    world.check()
    assert len(world.letters()) == 2
    assert world.snapshot().version is None
    world.produce((b"key 5", None))
    world.snapshot()
    world.check()


def test_two_first_runs(make_world: Callable[..., World], kind: str) -> None:
    from ottla.pipeline.sinks.table import StaleCommitError

    from .world import Steps, first_records

    world = make_world(kind)
    first_records(world)
    with pytest.raises(StaleCommitError):
        world.snapshot(observer=Steps(merged=world.snapshot))
    world.check()


def test_runs_over_different_topics_race_as_well(world: World) -> None:
    """Their keys may be in one bucket, without either seeing the writes of the other."""
    from ottla.pipeline.sinks.table import StaleCommitError

    from .world import Steps

    world.cluster.create("other", 1)
    world.produce((b"a", b"1"))
    world.produce((b"a", b"1"), topic="other")
    with pytest.raises(StaleCommitError):
        world.snapshot(observer=Steps(merged=lambda: world.snapshot("other")))
    world.snapshot()
    world.check()


@pytest.mark.parametrize("step", ["merging", "merged"])
def test_run_commits_after_concurrent_compaction(make_world: Callable[..., World], kind: str, step: str) -> None:
    """It removes files that were to be replaced; the buckets are merged again."""
    from .world import Steps, first_records, second_records

    world = make_world(kind, history=True, buckets=1)
    first_records(world)
    world.snapshot()
    world.produce((b"key 1", b"2"))
    world.snapshot()
    second_records(world)
    world.snapshot(observer=Steps(**{step: world.rewrite}))
    world.check()
    assert files_there(world) == files_named(world)
    assert world.snapshot().version is None


def test_late_compaction_is_refused(world: World) -> None:
    """It would restore rows that a run has replaced."""
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    from .world import first_records, second_records

    first_records(world)
    world.snapshot()
    stale = DeltaTable(str(world.path))
    second_records(world)
    world.snapshot()
    with pytest.raises(CommitFailedError):
        stale.optimize.z_order(["offset"])
    world.check()
