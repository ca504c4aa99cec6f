"""Heartbeats of share groups: joining, epochs, fencing, sessions, and partitions that are assigned when initialized."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePartitionKey

from ..consumer.world import GROUP
from .world import ShareWorld, partitions_of, share_topic_id, state_of


@pytest.fixture
def world() -> ShareWorld:
    return ShareWorld({"foo": 3, "bar": 2}, group_share_assignment_interval_ms=0)


def keys(name: str, *numbers: int, generation: int = 0) -> set[SharePartitionKey]:
    return {SharePartitionKey(GROUP, share_topic_id(name, generation), number) for number in numbers}


# -- membership --------------------------------------------------------------------------------------------------------


def test_join_gets_an_epoch_and_an_empty_assignment(world):
    response = world.subscribe("a")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert partitions_of(response.assignment) == {}
    assert world.share_group.state_name() == "Stable"


def test_heartbeat_without_changes_writes_nothing(world):
    world.subscribe("a")
    world.converge("a")
    response = world.beat("a", world.share_group.member("a").member_epoch)
    assert response.assignment is None
    assert world.last_records == []


def test_initialized_partitions_are_assigned_by_a_heartbeat(world):
    epoch = world.subscribe("a").member_epoch
    (initialization,) = world.initializations
    assert set(initialization.start_offsets) == keys("foo", 0, 1, 2)
    assert set(initialization.start_offsets.values()) == {-1}
    assert initialization.state_epoch == epoch
    assert world.beat("a", epoch).assignment is None
    world.initialize()
    response = world.beat("a", epoch)
    assert response.member_epoch == epoch + 1
    assert partitions_of(response.assignment) == {"foo": [0, 1, 2]}


def test_failed_initialization_is_repeated(world):
    epoch = world.subscribe("a").member_epoch
    (failed,) = keys("foo", 1)
    world.initialize(failed=frozenset({failed}))
    response = world.beat("a", epoch)
    assert partitions_of(response.assignment) == {"foo": [0, 2]}
    (again,) = world.initializations
    assert set(again.start_offsets) == {failed}
    assert again.state_epoch > epoch
    assert world.converge("a") == {"a": {"foo": [0, 1, 2]}}


def test_unfinished_initialization_is_repeated_after_a_time(world):
    epoch = world.subscribe("a").member_epoch
    world.beat("a", epoch)
    assert len(world.initializations) == 1
    world.time.advance(30.0)
    world.beat("a", epoch)
    assert len(world.initializations) == 2


def test_initialization_is_repeated_by_a_new_coordinator(world):
    epoch = world.subscribe("a").member_epoch
    world.restart()
    world.beat("a", epoch)
    assert len(world.initializations) == 2


def test_failed_append_leaves_no_initialization_in_progress(world):
    world.appends = False
    with pytest.raises(KafkaError):
        world.subscribe("a")
    world.appends = True
    world.subscribe("a")
    assert len(world.initializations) == 1


def test_refused_creation_leaves_no_group(world):
    world.set_config(group_member_max_bytes=1_024)
    assert world.error_of("a", 0, ["foo"]) is ErrorCode.INVALID_REQUEST
    assert world.shard.context.groups.find(GROUP) is None


def test_members_share_partitions(world):
    for name in ("a", "b", "c", "d"):
        world.subscribe(name)
    assigned = world.converge("a", "b", "c", "d")
    holders = [number for each in assigned.values() for number in each["foo"]]
    assert sorted(holders) == [0, 0, 1, 1, 2, 2]


def test_members_get_only_topics_that_they_subscribe_to(world):
    world.subscribe("a", "foo")
    world.subscribe("b", "bar")
    assert world.converge("a", "b") == {"a": {"foo": [0, 1, 2]}, "b": {"bar": [0, 1]}}
    response = world.beat("a", world.share_group.member("a").member_epoch, ["bar"])
    assert "foo" not in (partitions_of(response.assignment) or {})


def test_leaving_member_frees_its_share(world):
    world.subscribe("a")
    world.subscribe("b")
    world.converge("a", "b")
    assert world.beat("b", -1).member_epoch == -1
    assert world.converge("a") == {"a": {"foo": [0, 1, 2]}}
    world.beat("a", -1)
    assert world.share_group.state_name() == "Empty"
    assert world.error_of("a", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_session_ends_without_heartbeats(world):
    world.subscribe("a")
    world.time.advance(44.0)
    world.subscribe("b")
    world.time.advance(2.0)
    assert set(world.share_group.members) == {"b"}


def test_loaded_member_gets_a_full_session(world):
    world.subscribe("a")
    world.time.advance(40.0)
    world.restart()
    world.time.advance(40.0)
    assert set(world.share_group.members) == {"a"}
    world.time.advance(6.0)
    assert not world.share_group.members


def test_settings_of_the_group_are_used(world):
    values = {"share.session.timeout.ms": "50000", "share.heartbeat.interval.ms": "7000"}
    world.set_group_configs(values)
    assert world.subscribe("a").heartbeat_interval_ms == 7_000
    world.time.advance(49.0)
    assert set(world.share_group.members) == {"a"}
    world.time.advance(2.0)
    assert not world.share_group.members


def test_target_waits_for_the_assignment_interval():
    world = ShareWorld({"foo": 2}, group_share_assignment_interval_ms=1_000)
    epoch = world.subscribe("a").member_epoch
    world.initialize()
    assert world.beat("a", epoch).assignment is None
    world.time.advance(1.0)
    assert partitions_of(world.beat("a", epoch).assignment) == {"foo": [0, 1]}


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_epochs_are_fenced(world):
    first = world.subscribe("a").member_epoch
    world.initialize()
    second = world.beat("a", first).member_epoch
    assert world.error_of("a", first) is ErrorCode.NONE
    assert world.error_of("a", second + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    world.subscribe("b")
    world.beat("a", second)
    assert world.error_of("a", first) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.error_of("unknown", second) is ErrorCode.UNKNOWN_MEMBER_ID
    response = world.subscribe("a")
    assert partitions_of(response.assignment) is not None


def test_group_of_another_type_is_refused(world):
    world.join("a")
    assert world.error_of("b", 0, ["foo"]) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.error_of("b", 3, group_id="missing") is ErrorCode.GROUP_ID_NOT_FOUND


def test_consumer_protocol_is_refused_in_a_share_group(world):
    world.subscribe("a")
    with pytest.raises(KafkaError) as error:
        world.join("b")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "fields"),
    [
        ("", 0, ["foo"], {}),
        (" ", 0, ["foo"], {}),
        ("m" * 37, 0, ["foo"], {}),
        ("a", 0, None, {}),
        ("a", 0, [], {}),
        ("a", -2, None, {}),
        ("a", 0, ["foo"], {"rack_id": ""}),
    ],
)
def test_invalid_request_is_refused(world, member_id, epoch, topics, fields):
    assert world.error_of(member_id, epoch, topics, **fields) is ErrorCode.INVALID_REQUEST


def test_group_size_is_limited(world):
    world.set_config(group_share_max_size=2)
    world.subscribe("a")
    epoch = world.subscribe("b").member_epoch
    assert world.error_of("c", 0, ["foo"]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.error_of("b", epoch) is ErrorCode.NONE


def test_subscription_size_is_limited(world):
    world.set_config(group_member_max_bytes=4_096)
    names = [f"topic-{number}" for number in range(100)]
    assert world.error_of("a", 0, names) is ErrorCode.INVALID_REQUEST
    world.set_config(group_member_max_bytes=1 << 20, group_max_bytes=4_096)
    assert world.error_of("a", 0, names) is ErrorCode.GROUP_MAX_SIZE_REACHED


# -- topics ------------------------------------------------------------------------------------------------------------


def test_new_partitions_are_initialized_before_they_are_assigned(world):
    world.subscribe("a")
    world.converge("a")
    world.set_topics({"foo": 5, "bar": 2})
    world.beat("a", world.share_group.member("a").member_epoch)
    assert world.assigned("a") == {"foo": [0, 1, 2]}
    (initialization,) = world.initializations
    assert set(initialization.start_offsets) == keys("foo", 3, 4)
    assert world.converge("a") == {"a": {"foo": [0, 1, 2, 3, 4]}}


def test_topic_that_appears_later_is_assigned(world):
    world.subscribe("a", "new")
    assert world.converge("a") == {"a": {}}
    world.set_topics({"foo": 3, "bar": 2, "new": 1})
    assert world.converge("a") == {"a": {"new": [0]}}


def test_topic_created_again_starts_over(world):
    world.subscribe("a")
    world.converge("a")
    old = keys("foo", 0, 1, 2)
    (deletion,) = world.set_topics({"foo": (2, 1), "bar": 2})
    assert {key for each in deletion.keys.values() for key in each} == old
    assert set(world.share_group.state.deleting) == {share_topic_id("foo")}
    world.beat("a", world.share_group.member("a").member_epoch)
    assert world.assigned("a") == {}
    world.delete(deletion)
    assert world.converge("a") == {"a": {"foo": [0, 1]}}
    assert set(world.share_state) == keys("foo", 0, 1, generation=1)
    assert not world.share_group.state.deleting


def test_deleted_topic_is_unassigned(world):
    world.subscribe("a", "foo", "bar")
    world.converge("a")
    world.set_topics({"bar": 2})
    assert world.converge("a") == {"a": {"bar": [0, 1]}}


# -- log ---------------------------------------------------------------------------------------------------------------


def test_replay_restores_the_state(world):
    world.subscribe("a", "foo", "bar")
    world.subscribe("b")
    world.converge("a", "b")
    world.set_topics({"foo": 4, "bar": 2})
    world.beat("a", world.share_group.member("a").member_epoch)
    before = state_of(world.share_group)
    world.restart()
    assert state_of(world.share_group) == before


def test_failed_append_reverts_the_state(world):
    world.subscribe("a")
    world.converge("a")
    before = state_of(world.share_group)
    world.appends = False
    for call in (lambda: world.subscribe("b", "bar"), lambda: world.beat("a", -1)):
        with pytest.raises(KafkaError):
            call()
    assert state_of(world.share_group) == before
    world.appends = True
    world.time.advance(46.0)
    assert not world.share_group.members


def test_member_sees_partitions_initialized_before_a_restart(world):
    epoch = world.subscribe("a").member_epoch
    world.initialize()
    world.restart()
    assert partitions_of(world.beat("a", epoch).assignment) == {"foo": [0, 1, 2]}
