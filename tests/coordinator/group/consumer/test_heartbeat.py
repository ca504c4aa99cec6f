"""Heartbeats of KIP-848: requests, responses, written records."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.modern.consumer.member import MemberState
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import CoordinatorResult
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)

from .world import GROUP, V0, World, as_dict, owned, topic_id


@pytest.fixture
def world() -> World:
    """Topics foo (6 partitions) and bar (3); targets are computed at once."""
    world = World({"foo": 6, "bar": 3})
    world.set_config(group_consumer_assignment_interval_ms=0)
    return world


def refused(code: ErrorCode, world: World, **fields: Any) -> str:
    """Return the error message of a heartbeat that must fail without changes."""
    offset = world.offset
    with pytest.raises(KafkaError) as error:
        world.heartbeat(**fields)
    assert error.value.code is code
    assert world.offset == offset
    return error.value.message


# -- invalid requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": "", "member_id": "a"}, "GroupId can't be empty."),
        ({"group_id": " ", "member_id": "a"}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "a", "instance_id": ""}, "InstanceId can't be empty."),
        ({"member_id": "a", "rack_id": ""}, "RackId can't be empty."),
        ({"member_id": "a", "rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"member_id": "a", "topic_partitions": owned(foo=[1])}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"member_id": "a", "subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_id": "a", "member_epoch": -2}, "InstanceId can't be null."),
        ({"member_id": "a", "member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_requests(world: World, fields: dict[str, Any], message: str) -> None:
    join = {"member_epoch": 0, "rebalance_timeout_ms": 5_000, "subscribed_topic_names": ["foo"], "topic_partitions": []}
    assert refused(ErrorCode.INVALID_REQUEST, world, **{**join, **fields}) == message


def test_unknown_assignor(world: World) -> None:
    with pytest.raises(KafkaError) as error:
        world.join("a", server_assignor="mine")
    assert error.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert error.value.message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."


def test_coordinator_generates_ids_for_version_0(world: World) -> None:
    response = world.join("", context=V0)
    assert response.member_id is not None
    assert len(response.member_id) == 22
    assert list(world.group.members) == [response.member_id]


# -- joining and sharing -----------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything(world: World) -> None:
    response = world.join("a")
    assert (response.member_epoch, response.heartbeat_interval_ms) == (2, 5_000)
    assert as_dict(response.assignment) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert world.describe().group_state == "Stable"
    response = world.heartbeat(member_id="a", member_epoch=2)
    assert response.assignment is None, "nothing changed"
    assert not world.last_records


def test_a_new_group_is_in_epoch_1_without_records_of_it(world: World) -> None:
    """As in Apache Kafka 4.3.1: the first subscription makes it 2; a member without subscription stays in 1."""
    assert world.join("a", subscribed_topic_names=[]).member_epoch == 1
    kinds = [type(record.key) for record in world.last_records]
    assert kinds == [ConsumerGroupMemberMetadataKey, ConsumerGroupCurrentMemberAssignmentKey]
    assert world.join("b", subscribed_topic_names=[]).member_epoch == 1
    world.restart()
    described = world.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert world.heartbeat(member_id="a", member_epoch=1).member_epoch == 1
    response = world.heartbeat(member_id="b", member_epoch=1, subscribed_topic_names=["bar"])
    assert (response.member_epoch, as_dict(response.assignment)) == (2, {"bar": [0, 1, 2]})


def test_second_member_waits_for_revocation(world: World) -> None:
    world.join("a")
    response = world.join("b")
    assert (response.member_epoch, as_dict(response.assignment)) == (3, {})
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    response = world.heartbeat(member_id="a", member_epoch=2)
    assert (response.member_epoch, as_dict(response.assignment)) == (2, {"foo": [0, 1, 2]})
    assert world.describe().group_state == "Reconciling"
    response = world.heartbeat(member_id="b", member_epoch=3)
    assert (response.member_epoch, response.assignment) == (3, None)
    # The first member confirms and moves to the new epoch; the other one gets the freed partitions.
    response = world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(foo=[0, 1, 2]))
    assert (response.member_epoch, response.assignment) == (3, None)
    response = world.heartbeat(member_id="b", member_epoch=3)
    assert (response.member_epoch, as_dict(response.assignment)) == (3, {"foo": [3, 4, 5]})
    assert world.describe().group_state == "Stable"


@pytest.mark.parametrize(("shared", "free"), [("bar", "foo"), ("foo", "bar")])
def test_member_waits_for_partitions_of_any_topic(world: World, shared: str, free: str) -> None:
    """Whether it waits must not depend on the order of the topics."""
    world.join("a", [shared])
    world.join("b", [shared, free], server_assignor="range")
    assert world.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    target = world.heartbeat(member_id="a", member_epoch=2).assignment
    world.heartbeat(member_id="a", member_epoch=2, topic_partitions=target.topic_partitions)
    response = world.heartbeat(member_id="b", member_epoch=3)
    gained = {"bar": [2], "foo": [3, 4, 5]}[shared]
    assert as_dict(response.assignment) == {shared: gained, free: list(range(world.topics[free]))}


def test_a_revocation_that_is_still_owned_is_not_done(world: World) -> None:
    world.join("a")
    world.join("b")
    world.heartbeat(member_id="a", member_epoch=2)
    response = world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(foo=[0, 1, 2, 3]))
    assert response.member_epoch == 2
    assert world.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_a_full_request_gets_the_assignment_again(world: World) -> None:
    world.join("a")
    response = world.heartbeat(
        member_id="a",
        member_epoch=2,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["foo"],
        topic_partitions=owned(foo=[0]),
    )
    assert as_dict(response.assignment) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert not world.last_records


def test_members_that_join_together_are_assigned_together() -> None:
    world = World({"foo": 6})
    world.set_config(group_consumer_assignment_interval_ms=1_000)
    world.join("a")
    assert world.join("b").member_epoch == 2
    assert world.join("c").member_epoch == 2
    assert (world.group.group_epoch, world.group.assignment_epoch) == (4, 2)
    assert world.describe().group_state == "Assigning"
    world.time.advance(1.0)
    response = world.heartbeat(member_id="a", member_epoch=2)
    assert world.group.assignment_epoch == 4
    assert as_dict(response.assignment) == {"foo": [0, 1]}


def test_backward_clock_does_not_delay_the_assignment() -> None:
    world = World({"foo": 6})
    world.set_config(group_consumer_assignment_interval_ms=1_000)
    world.join("a")
    world.time.wall_clock_s -= 1_800.0
    world.join("b")
    assert world.group.assignment_epoch == world.group.group_epoch == 3


def test_group_max_size(world: World) -> None:
    world.set_config(group_consumer_max_size=1)
    world.join("a")
    with pytest.raises(KafkaError) as error:
        world.join("b")
    assert error.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    world.join("a")


def test_majority_selects_the_assignor() -> None:
    """Range gives the only partition of each topic to the first member, uniform gives one topic to each."""
    world = World({"foo": 1, "bar": 1})
    world.set_config(group_consumer_assignment_interval_ms=0)
    join = partial(world.join, topics=["foo", "bar"])
    for member_id, assignor, selected, assigned in [
        ("a", None, "uniform", [2]),
        ("b", None, "uniform", [1, 1]),
        ("c", "range", "range", [2, 0, 0]),
        ("d", "uniform", "range", [2, 0, 0, 0]),
        ("e", "uniform", "uniform", [1, 1, 0, 0, 0]),
    ]:
        join(member_id, server_assignor=assignor)
        assert world.describe().assignor_name == selected, member_id
        counts = [sum(map(len, target.values())) for target in world.group.targets.values()]
        assert sorted(counts, reverse=True) == assigned, member_id


# -- epochs and fencing ---------------------------------------------------------------------------------------------


def test_unknown_groups_and_members(world: World) -> None:
    assert refused(ErrorCode.GROUP_ID_NOT_FOUND, world, member_id="a", member_epoch=1)
    assert refused(ErrorCode.GROUP_ID_NOT_FOUND, world, member_id="a", member_epoch=-1)
    world.join("a")
    assert refused(ErrorCode.UNKNOWN_MEMBER_ID, world, member_id="b", member_epoch=1)
    assert refused(ErrorCode.UNKNOWN_MEMBER_ID, world, member_id="b", member_epoch=-1)


def test_wrong_member_epochs_are_fenced(world: World) -> None:
    world.join("a")
    world.join("b")
    world.heartbeat(member_id="a", member_epoch=2)
    world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(foo=[0, 1, 2]))
    assert "greater" in refused(ErrorCode.FENCED_MEMBER_EPOCH, world, member_id="a", member_epoch=4)
    assert "smaller" in refused(ErrorCode.FENCED_MEMBER_EPOCH, world, member_id="a", member_epoch=2)
    more = owned(foo=[0, 1, 2, 3])
    refused(ErrorCode.FENCED_MEMBER_EPOCH, world, member_id="a", member_epoch=2, topic_partitions=more)
    # The response with the new epoch was lost: the old one counts while no foreign partition is owned.
    response = world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(foo=[0, 1]))
    assert response.member_epoch == 3


def test_fenced_member_rejoins(world: World) -> None:
    world.join("a")
    response = world.join("a")
    assert (response.member_epoch, as_dict(response.assignment)) == (2, {"foo": [0, 1, 2, 3, 4, 5]})


def test_leaving_frees_partitions(world: World) -> None:
    world.join("a")
    world.join("b")
    response = world.heartbeat(member_id="a", member_epoch=-1)
    assert (response.member_id, response.member_epoch) == ("a", -1)
    assert [record.value for record in world.last_records[:3]] == [None] * 3
    response = world.heartbeat(member_id="b", member_epoch=3)
    assert as_dict(response.assignment) == {"foo": [0, 1, 2, 3, 4, 5]}


def test_an_empty_group_stays(world: World) -> None:
    world.join("a")
    world.heartbeat(member_id="a", member_epoch=-1)
    assert world.describe().group_state == "Empty"
    assert world.group.group_epoch == 3
    response = world.join("b")
    assert response.member_epoch == 4


def test_a_silent_member_is_removed(world: World) -> None:
    world.join("a")
    world.join("b")
    world.time.advance(44.9)
    world.heartbeat(member_id="b", member_epoch=3)
    world.time.advance(0.2)
    assert list(world.group.members) == ["b"]
    response = world.heartbeat(member_id="b", member_epoch=3)
    assert as_dict(response.assignment) == {"foo": [0, 1, 2, 3, 4, 5]}


def test_a_member_that_does_not_revoke_in_time_is_removed(world: World) -> None:
    world.join("a")
    world.join("b")
    world.heartbeat(member_id="a", member_epoch=2)
    for _ in range(5):
        world.time.advance(5)
        world.heartbeat(member_id="a", member_epoch=2)
        world.heartbeat(member_id="b", member_epoch=3)
    assert "a" in world.group.members
    world.time.advance(5.1)
    assert list(world.group.members) == ["b"]
    assert refused(ErrorCode.UNKNOWN_MEMBER_ID, world, member_id="a", member_epoch=2)


def test_failed_confirmation_keeps_the_revocation_timer(world: World) -> None:
    world.join("a")
    world.join("b")
    world.heartbeat(member_id="a", member_epoch=2)
    world.appends = False
    refused(ErrorCode.NOT_COORDINATOR, world, member_id="a", member_epoch=2, topic_partitions=owned(foo=[0]))
    world.appends = True
    for _ in range(4):
        world.time.advance(5)
        world.heartbeat(member_id="a", member_epoch=2)
        world.heartbeat(member_id="b", member_epoch=3)
    assert "a" in world.group.members
    world.time.advance(11)
    assert list(world.group.members) == ["b"]


def test_a_group_has_its_own_settings(world: World) -> None:
    """They apply from the next heartbeat on, always within the broker's limits."""
    assert world.join("a").heartbeat_interval_ms == 5_000
    world.set_group_configs(
        {
            "consumer.session.timeout.ms": "60000",
            "consumer.heartbeat.interval.ms": "20000",
            "consumer.assignment.interval.ms": "10000",
        }
    )
    response = world.heartbeat(member_id="a", member_epoch=world.group.members["a"].member_epoch)
    assert response.heartbeat_interval_ms == 15_000
    world.time.advance(59)
    assert "a" in world.group.members
    world.time.advance(2)
    assert not world.group.members
    world.join("a")
    world.time.advance(1)
    world.join("b")
    assert world.group.group_epoch > world.group.assignment_epoch
    world.time.advance(9)
    world.heartbeat(member_id="b", member_epoch=world.group.members["b"].member_epoch)
    assert world.group.group_epoch == world.group.assignment_epoch
    assert world.join("c", group_id="other").heartbeat_interval_ms == 5_000


def test_timers_restart_after_a_load(world: World) -> None:
    world.join("a")
    world.join("b")
    world.heartbeat(member_id="a", member_epoch=2)
    world.restart()
    world.time.advance(29)
    world.heartbeat(member_id="a", member_epoch=2)
    world.heartbeat(member_id="b", member_epoch=3)
    world.time.advance(2)
    assert list(world.group.members) == ["b"], "the load restarts the rebalance timeout"
    world.restart()
    world.time.advance(46)
    assert not world.group.members


# -- static members -------------------------------------------------------------------------------------------------


def test_a_static_member_returns_without_a_rebalance(world: World) -> None:
    world.join("a", instance_id="i")
    world.join("b")
    world.heartbeat(member_id="a", member_epoch=2, instance_id="i")
    world.heartbeat(member_id="a", member_epoch=2, instance_id="i", topic_partitions=owned(foo=[0, 1, 2]))
    world.heartbeat(member_id="b", member_epoch=3)
    with pytest.raises(KafkaError) as error:
        world.join("a2", instance_id="i")
    assert error.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    response = world.heartbeat(member_id="a", member_epoch=-2, instance_id="i")
    assert (response.member_id, response.member_epoch) == ("a", -2)
    assert world.heartbeat(member_id="b", member_epoch=3).assignment is None
    response = world.join("a2", instance_id="i")
    assert (response.member_epoch, as_dict(response.assignment)) == (3, {"foo": [0, 1, 2]})
    assert world.group.group_epoch == 3, "no rebalance"
    assert sorted(world.group.members) == ["a2", "b"]
    refused(ErrorCode.FENCED_INSTANCE_ID, world, member_id="a", member_epoch=3, instance_id="i")
    refused(ErrorCode.FENCED_INSTANCE_ID, world, member_id="a", member_epoch=-1, instance_id="i")
    refused(ErrorCode.UNKNOWN_MEMBER_ID, world, member_id="a", member_epoch=3, instance_id="j")


def test_absent_static_member_is_removed(world: World) -> None:
    world.join("a", instance_id="i")
    world.heartbeat(member_id="a", member_epoch=-2, instance_id="i")
    world.time.advance(46)
    assert not world.group.members
    assert world.join("a2", instance_id="i").member_epoch > 0


def test_static_member_leaves_permanently(world: World) -> None:
    world.join("a", instance_id="i")
    world.heartbeat(member_id="a", member_epoch=-1, instance_id="i")
    assert not world.group.members
    assert not world.group.static_members


def test_fenced_static_member_rejoins_under_its_own_id(world: World) -> None:
    world.join("a", instance_id="i")
    response = world.join("a", instance_id="i")
    assert (response.member_epoch, as_dict(response.assignment)) == (2, {"foo": [0, 1, 2, 3, 4, 5]})


def test_returning_static_member_with_new_topics_rebalances(world: World) -> None:
    world.join("a", instance_id="i")
    world.heartbeat(member_id="a", member_epoch=-2, instance_id="i")
    response = world.join("a2", topics=["bar"], instance_id="i")
    assert (response.member_epoch, as_dict(response.assignment)) == (3, {"bar": [0, 1, 2]})


# -- subscriptions and topics ---------------------------------------------------------------------------------------


def test_a_changed_subscription(world: World) -> None:
    world.join("a", topics=["foo", "bar"])
    response = world.heartbeat(member_id="a", member_epoch=2, subscribed_topic_names=["bar"])
    assert (response.member_epoch, as_dict(response.assignment)) == (2, {"bar": [0, 1, 2]})
    response = world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(bar=[0, 1, 2]))
    assert response.member_epoch == 3


def test_unsubscribed_topics_are_revoked_before_a_new_target() -> None:
    world = World({"foo": 2, "bar": 2})
    world.join("a", topics=["foo", "bar"])
    response = world.heartbeat(member_id="a", member_epoch=2, subscribed_topic_names=["bar"])
    assert world.group.assignment_epoch == 2
    assert as_dict(response.assignment) == {"bar": [0, 1]}


def test_new_partitions_reach_members_with_their_next_heartbeat(world: World) -> None:
    world.join("a")
    world.change_topics({"foo": 8, "bar": 3})
    response = world.heartbeat(member_id="a", member_epoch=2)
    assert (response.member_epoch, as_dict(response.assignment)) == (3, {"foo": [0, 1, 2, 3, 4, 5, 6, 7]})
    world.change_topics({"foo": 8, "bar": 4})
    world.heartbeat(member_id="a", member_epoch=3)
    assert not world.last_records, "bar has no subscribers"


def test_a_topic_that_is_created_later(world: World) -> None:
    response = world.join("a", topics=["later"])
    assert as_dict(response.assignment) == {}
    world.change_topics({"foo": 6, "later": 2})
    assert as_dict(world.heartbeat(member_id="a", member_epoch=2).assignment) == {"later": [0, 1]}


def test_a_deleted_topic(world: World) -> None:
    world.join("a", topics=["foo", "bar"])
    world.change_topics({"foo": 6})
    assert as_dict(world.heartbeat(member_id="a", member_epoch=2).assignment) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert [each.topic_name for each in world.describe().members[0].assignment.topic_partitions] == ["foo"]


def test_racks_of_brokers(world: World) -> None:
    world.change_topics({"foo": 6}, racks=["x", "y"])
    world.join("a", rack_id="x")
    world.join("b", rack_id="y")
    world.heartbeat(member_id="a", member_epoch=2)
    world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(foo=[0, 2, 4]))
    assert as_dict(world.heartbeat(member_id="b", member_epoch=3).assignment) == {"foo": [1, 3, 5]}


# -- regular expressions --------------------------------------------------------------------------------------------


def join_by_regex(world: World, member_id: str, regex: str, **fields: Any) -> Any:
    return world.join(member_id, subscribed_topic_names=None, subscribed_topic_regex=regex, **fields)


def test_a_regex_is_resolved_soon_after_the_heartbeat(world: World) -> None:
    response = join_by_regex(world, "a", "fo+|ba.")
    assert (response.member_epoch, as_dict(response.assignment)) == (1, {})
    world.time.settle()
    assert world.group.regexes["fo+|ba."].topics == {"foo", "bar"}
    response = world.heartbeat(member_id="a", member_epoch=1)
    assert as_dict(response.assignment) == {"foo": [0, 1, 2, 3, 4, 5], "bar": [0, 1, 2]}
    described = world.describe().members[0]
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ([], "fo+|ba.")
    assert world.group.is_subscribed_to_topic("bar")
    assert not world.group.is_subscribed_to_topic("zap")


def test_a_regex_matches_whole_names(world: World) -> None:
    join_by_regex(world, "a", "fo")
    world.time.settle()
    assert world.group.regexes["fo"].topics == frozenset()


@pytest.mark.parametrize("regex", ["[", "(?=look)", "a**", "(" * 2_000, "a{2000}", "x" * 70_000])
def test_invalid_regexes(world: World, regex: str) -> None:
    with pytest.raises(KafkaError) as error:
        join_by_regex(world, "a", regex)
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(error.value.message) < 600


def test_a_second_member_with_the_same_regex_is_assigned_at_once(world: World) -> None:
    join_by_regex(world, "a", "foo")
    world.time.settle()
    world.heartbeat(member_id="a", member_epoch=1)
    join_by_regex(world, "b", "foo")
    assert {len(world.group.targets[name][topic_id("foo")]) for name in "ab"} == {3}


def test_new_topics_are_found(world: World) -> None:
    join_by_regex(world, "a", "f.*")
    world.time.settle()
    world.heartbeat(member_id="a", member_epoch=1)
    world.change_topics({"foo": 6, "fab": 1})
    world.heartbeat(member_id="a", member_epoch=2)
    world.time.settle()
    assert "fab" not in world.group.regexes["f.*"].topics, "not sooner than ten seconds after the last time"
    world.time.advance(10.1)
    world.heartbeat(member_id="a", member_epoch=2)
    world.time.settle()
    assert as_dict(world.heartbeat(member_id="a", member_epoch=2).assignment) == {
        "foo": [0, 1, 2, 3, 4, 5],
        "fab": [0],
    }


def test_regex_without_subscriber_is_removed(world: World) -> None:
    join_by_regex(world, "a", "foo")
    world.time.settle()
    join_by_regex(world, "b", "foo")
    world.heartbeat(member_id="a", member_epoch=-1)
    assert list(world.group.regexes) == ["foo"]
    world.heartbeat(
        member_id="b",
        member_epoch=world.group.members["b"].member_epoch,
        subscribed_topic_regex="",
        subscribed_topic_names=["bar"],
    )
    assert not world.group.regexes
    assert not world.group.regex_subscribers


def test_hostile_patterns_do_not_block_the_loop(world: World) -> None:
    world.change_topics({f"{'x' * 200}-{number}": 1 for number in range(3_000)})
    join_by_regex(world, "a", "(x+x+)+y")
    turns = 0
    while world.time.turn():
        turns += 1
    assert turns >= 6, "in steps"
    assert world.group.regexes["(x+x+)+y"].topics == frozenset()


# -- the log --------------------------------------------------------------------------------------------------------


def test_the_old_record_of_partition_metadata_is_deleted(world: World) -> None:
    world.join("a")
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    world.run(lambda: _written(key, ConsumerGroupPartitionMetadataValue(topics=[])))
    world.change_topics({"foo": 7})
    world.heartbeat(member_id="a", member_epoch=2)
    assert (key, None) in world.last_records
    world.change_topics({"foo": 8})
    world.heartbeat(member_id="a", member_epoch=3)
    assert (key, None) not in world.last_records


def _written(key: object, value: object) -> Any:

    return CoordinatorResult([GroupRecord(key, value)])


def test_states_of_a_later_version_make_the_member_start_over(world: World) -> None:
    world.join("a")
    record = world.group.members["a"].assignment_record(GROUP)
    value = record.value
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    value.state = 42
    world.run(lambda: _written(record.key, value))
    world.change_topics({"foo": 7})
    refused(ErrorCode.FENCED_MEMBER_EPOCH, world, member_id="a", member_epoch=2)
    assert world.join("a").member_epoch == 3


def test_deleted_group_leaves_no_records(world: World) -> None:
    join_by_regex(world, "a", "foo")
    world.time.settle()
    with pytest.raises(KafkaError) as error:
        world.group.validate_delete_group()
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    world.run(lambda: _tombstones(world))
    assert world.shard.context.groups.find(GROUP) is None
    assert not world.log


def _tombstones(world: World) -> Any:
    return CoordinatorResult(world.group.tombstone_records())


def test_tombstones_of_missing_state_are_ignored(world: World) -> None:
    world.join("a")
    records = world.group.tombstone_records()
    fresh = World({})
    for record in records:
        fresh.run(partial(_written, record.key, None))
    assert fresh.shard.context.groups.find(GROUP) is None


def test_epoch_records_match_apache_kafka(world: World) -> None:
    world.join("a")
    kinds = [type(record.key) for record in world.last_records]
    assert kinds[:2] == [ConsumerGroupMemberMetadataKey, ConsumerGroupMetadataKey]
    value = world.last_records[1].value
    assert isinstance(value, ConsumerGroupMetadataValue)
    assert value.epoch == 2
    assert value.metadata_hash != 0


# -- commits, fetches, describe -------------------------------------------------------------------------------------


def test_commit_requires_member_and_epoch(world: World) -> None:
    world.join("a")
    world.join("b")
    group = world.group
    check = group.validate_offset_commit
    assert check("a", None, 2, 9) is None
    for member_id, epoch, version, code in (
        ("x", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        with pytest.raises(KafkaError) as error:
            check(member_id, None, epoch, version)
        assert error.value.code is code
    world.heartbeat(member_id="a", member_epoch=2)
    world.heartbeat(member_id="a", member_epoch=2, topic_partitions=owned(foo=[0, 1, 2]))
    world.heartbeat(member_id="b", member_epoch=3)
    # In its previous epoch a member may commit partitions that it retained, but none that moved or arrived since.
    past = check("a", None, 2, 9)
    assert past is not None
    past("foo", topic_id("foo"), 0)
    with pytest.raises(KafkaError) as error:
        past("foo", topic_id("foo"), 3)
    assert error.value.code is ErrorCode.STALE_MEMBER_EPOCH
    newer = check("b", None, 2, 9)
    assert newer is not None
    with pytest.raises(KafkaError) as error:
        newer("foo", topic_id("foo"), 3)
    assert error.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_empty_group_accepts_admin_commits(world: World) -> None:
    world.join("a")
    world.heartbeat(member_id="a", member_epoch=-1)
    assert world.group.validate_offset_commit("", None, -1, 9) is None


def test_fetch_requires_member_and_epoch(world: World) -> None:
    world.join("a")
    fetch = world.group.validate_offset_fetch
    fetch(None, -1, world.offset)
    fetch("a", 2, world.offset)
    for member_id, epoch, code in (
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as error:
            fetch(member_id, epoch, world.offset)
        assert error.value.code is code


def test_describe(world: World) -> None:
    world.join("a", rack_id="r", instance_id="i")
    described = world.describe()
    (member,) = described.members
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert (member.member_id, member.instance_id, member.rack_id, member.member_type) == ("a", "i", "r", 1)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert [(each.topic_name, each.partitions) for each in member.target_assignment.topic_partitions] == [
        ("foo", [0, 1, 2, 3, 4, 5])
    ]
    missing = world.shard.consumer.description("other", world.offset).row
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message == "Group other not found."


def test_list(world: World) -> None:
    world.join("a")
    listed = world.group.as_listed_group(world.offset)
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("consumer", "Stable", "consumer")
