"""A topic under a snapshot: it is recreated, grows, is truncated, loses records, or has records that no table can
store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ottla.common.errors import OperatorError

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.model.decode import MAX_TIMESTAMP_MS  # noqa: E402
from ottla.pipeline.model.plan import Boundary, DataLossError  # noqa: E402
from ottla.pipeline.snapshot import staging  # noqa: E402
from ottla.pipeline.snapshot.run import NO_KEY  # noqa: E402
from ottla.pipeline.transform.value_format import JsonFormat  # noqa: E402

from ..sinks.loads import revoke_leases  # noqa: E402

if TYPE_CHECKING:
    from .world import World

TOPIC = "users"


def test_records_that_change_nothing(world: World) -> None:
    """One without a key, one that does not fit the columns, one that can't be decoded: the value before them stays."""
    world.produce((b"a", b'{"id": 1}'), (b"b", b'{"id": 2}'))
    world.snapshot(value_format=JsonFormat())
    before = world.latest()
    world.produce((b"a", b"broken"), (None, b'{"id": 3}'), (None, None))
    world.produce((b"b", None), time=MAX_TIMESTAMP_MS + 1)
    summary = world.snapshot(value_format=JsonFormat())
    assert (summary.dead_letters, summary.updated, summary.deleted) == (4, 0, 0)
    assert summary.version is not None
    assert world.latest() == before
    reasons = [reason for _, reason in sorted(world.letters().items())]
    assert reasons[0].startswith("the value is not valid JSON")
    assert reasons[1:3] == [NO_KEY, NO_KEY]
    assert "years 1970 to 9999" in reasons[3]


def test_decoded_fields_are_columns_beside_those_of_the_snapshot(past: World) -> None:
    past.produce((b"a", b'{"current": 1, "valid_to": "x", "key": 2}'))
    past.snapshot(value_format=JsonFormat())
    past.produce((b"a", b'{"current": 5, "new": true}'), (b"b", None))
    past.snapshot(value_format=JsonFormat())
    past.check()
    [now] = [row for row in past.rows() if row["current"]]
    assert (now["value_current"], now["value_valid_to"], now["value_key"], now["new"]) == (5, None, None, True)
    past.produce((b"a", b"not decoded any more"))
    past.snapshot()
    past.check()


def test_topic_was_recreated(world: World) -> None:
    """Its offsets start again, below those of the table."""
    world.produce(*((b"key %d" % number, b"old") for number in range(9)))
    world.snapshot()
    world.cluster.create(TOPIC, 2)
    world.records.clear()
    world.produce((b"key 1", b"new"), partition=0)
    summary = world.snapshot()
    assert (summary.inserted, summary.updated, summary.deleted) == (0, 1, 8)
    assert "the rows of the old topic are void" in summary.notes[0]
    world.check()
    assert world.snapshot().version is None


def test_recreated_topic_is_empty(world: World) -> None:
    world.produce((b"a", b"old"))
    world.snapshot()
    world.cluster.create(TOPIC, 2)
    world.records.clear()
    assert world.snapshot().deleted == 1
    world.check()
    assert world.snapshot().version is None
    world.produce((b"a", b"new"))
    world.snapshot()
    world.check()


def test_a_topic_of_another_cluster_voids_nothing(world: World) -> None:
    world.produce((b"a", b"old"))
    world.snapshot()
    world.cluster.cluster_id = "other"
    world.cluster.create(TOPIC, 2)
    with pytest.raises(OperatorError, match="was loaded from cluster memory"):
        world.snapshot()
    world.check()


def test_history_of_recreated_topic(past: World) -> None:
    """Values of the old topic were valid until the recreation was noticed."""
    past.produce((b"a", b"old"), (b"b", b"old"))
    past.snapshot()
    past.cluster.create(TOPIC, 2)
    past.records.clear()
    past.produce((b"a", b"new"))
    past.snapshot()
    assert past.latest() == past.expected_latest()
    closed = [row for row in past.rows() if not row["current"]]
    assert sorted((row["key"], row["value"]) for row in closed) == [(b"a", b"old"), (b"b", b"old")]
    assert all(row["valid_to"] > row["valid_from"] for row in closed)


def test_partitions_and_topics_are_added(world: World) -> None:
    """A key that moves to another partition then has two rows, as in a compacted log."""
    world.produce((b"a", b"1"))
    world.snapshot()
    world.cluster.partitions[TOPIC, 2] = type(world.cluster.partitions[TOPIC, 0])()
    world.cluster.create("other", 1)
    world.produce((b"a", b"2"), partition=2)
    world.produce((b"a", b"3"), topic="other")
    world.snapshot(TOPIC, "other")
    world.check()
    assert len(world.latest()) == 3


def cut(world: World) -> None:
    """The log loses its second batch, and other records get those offsets."""
    world.produce((b"a", b"1"), (b"b", b"1"))
    world.produce((b"a", b"lost"), (b"c", b"lost"), (b"d", b"lost"))
    world.snapshot()
    world.cluster.partitions[TOPIC, 0].elect_leader(2)
    world.records = {key: records[:1] for key, records in world.records.items() if records[0][0] < 2}
    world.produce((b"b", b"2"))


def test_a_log_that_was_cut_is_read_from_its_start(world: World) -> None:
    """The truncated records are in the table, the records that replaced them are not."""
    cut(world)
    with pytest.raises(DataLossError, match="load from offset 0 on with --on-data-loss skip"):
        world.snapshot()
    world.snapshot(on_data_loss="skip")
    world.check()
    assert world.snapshot().version is None


def test_a_history_of_a_log_that_was_cut_is_refused(past: World) -> None:
    cut(past)
    with pytest.raises(OperatorError, match="create the history in another directory"):
        past.snapshot(on_data_loss="skip")


def test_records_that_retention_took(world: World) -> None:
    world.produce((b"a", b"1"), (b"b", b"1"))
    world.snapshot()
    world.produce((b"a", None))
    world.produce((b"b", b"3"))
    log = world.cluster.partitions[TOPIC, 0]
    log.log_start, log.batches = 3, log.batches[2:]
    with pytest.raises(DataLossError, match="offsets 2 to 2 were deleted before they were loaded"):
        world.snapshot()
    summary = world.snapshot(on_data_loss="skip")
    assert (summary.skipped_offsets, summary.updated) == (1, 1)
    assert {key[2]: value for key, (_, value) in world.latest().items()} == {b"a": b"1", b"b": b"3"}


def test_up_to_an_offset_and_on_from_there(world: World) -> None:
    world.produce((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    world.snapshot(end=Boundary(offset=2))
    assert world.latest() == {(TOPIC, 0, b"a"): (1, b"2")}
    world.snapshot()
    world.check()


def test_more_than_a_task_holds(world: World, past: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is staged separately, so that a key is in several files."""
    monkeypatch.setattr(staging, "SPILL_BYTES", 1)
    for each in (world, past):
        for number in range(5):
            each.produce((b"a", b"%d" % number), (b"b", None if number % 2 else b"x"), (b"c%d" % number, b"1"))
        each.snapshot()
        each.check()


@pytest.mark.parametrize("history", [False, True])
def test_a_bucket_in_which_nothing_changes_stays(make_world: Callable[..., World], history: bool) -> None:
    world = make_world(history=history)
    world.produce(*((b"key %d" % number, b"1") for number in range(20)))
    assert world.snapshot().buckets == 4
    files = set(world.open().files())
    world.produce((b"key 1", b"2"))
    summary = world.snapshot()
    assert summary.buckets == 1
    assert len(files & set(world.open().files())) == 3
    world.produce((b"nobody", None))
    last = world.snapshot()
    assert (last.buckets, last.records) == (0, 1)
    assert last.version is not None


@pytest.mark.promise("P7")
@pytest.mark.parametrize("step", ["landed", "merged"])
def test_snapshot_with_revoked_lease_commits_nothing(world: World, step: str) -> None:
    """It was suspended for so long that a vacuum will remove its files: neither rows nor dead letters are committed."""
    from .world import Steps

    world.produce((b"a", b"1"))
    world.snapshot()
    version = world.open().version()
    world.produce((b"a", b"2"), *([(None, b"x")] if step == "landed" else []))
    with pytest.raises(OperatorError, match=r"the lease .* is gone"):
        world.snapshot(observer=Steps(**{step: lambda: revoke_leases(world.open())}))
    assert world.open().version() == version
    assert not world.open().dead_letters().exists()
    world.snapshot()
    world.check()


def test_recreated_key_begins_a_new_validity(past: World) -> None:
    """Times that go back are corrected only within the lifetime of a key."""
    past.produce((b"a", b"1"), time=5_000)
    past.produce((b"a", None), time=6_000)
    past.produce((b"a", b"2"), time=2_000)
    past.snapshot()
    past.check()
