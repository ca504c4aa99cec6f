"""Share state of groups: alteration and deletion of offsets, deletion of groups, and the other APIs' answers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.modern.share.work import OffsetAlteration, OffsetDeletion, StateDeletion
from ottla.coordinator.group.shard import GroupFilter
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)

from ..consumer.world import CLIENT, GROUP
from .world import ShareWorld, share_topic_id


@pytest.fixture
def world() -> ShareWorld:
    """A group with state, and without members."""
    world = ShareWorld({"foo": 3, "bar": 2}, group_share_assignment_interval_ms=0)
    world.subscribe("a")
    world.converge("a")
    world.beat("a", -1)
    return world


def alter(world: ShareWorld, group_id: str = GROUP, **offsets: tuple[int, int]) -> OffsetAlteration:
    """Set offsets, given as topic=(partition, offset)."""
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)],
            )
            for name, (number, offset) in offsets.items()
        ],
    )
    result: OffsetAlteration = world.run(lambda: world.shard.share_states.alter(request))
    if result.initialization is not None:
        world.initializations.append(result.initialization)
    return result


def delete_offsets(world: ShareWorld, *names: str) -> OffsetDeletion:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    request = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics)
    result: OffsetDeletion = world.run(lambda: world.shard.share_states.delete(request))
    return result


def codes(result: OffsetAlteration | OffsetDeletion) -> dict[str, int]:
    response: Any = result.response
    return {
        topic.topic_name: topic.error_code if hasattr(topic, "error_code") else topic.partitions[0].error_code
        for topic in response.responses
    }


def delete_group(world: ShareWorld) -> ErrorCode:
    """Delete the group without its state."""
    (result,) = world.run(lambda: world.shard.delete_groups([GROUP], CLIENT))
    return ErrorCode(result.error_code)


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_alteration_initializes_in_a_newer_epoch(world):
    epochs = {epoch for epoch, _ in world.share_state.values()}
    result = alter(world, foo=(1, 7), bar=(0, 3), gone=(0, 1))
    assert codes(result) == {"foo": 0, "bar": 0, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert result.initialization is not None
    assert result.initialization.state_epoch > max(epochs)
    world.initialize()
    assert sorted(offset for _, offset in world.share_state.values()) == [-1, -1, 3, 7]
    assert world.share_group.state.initialized(share_topic_id("bar")) == {0}


@pytest.mark.parametrize(
    ("number", "offset", "code"), [(9, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, -1, ErrorCode.INVALID_REQUEST)]
)
def test_invalid_alteration_is_refused_for_its_partition(world, number, offset, code):
    result = alter(world, foo=(number, offset))
    assert codes(result) == {"foo": code}
    assert result.initialization is None


def test_offsets_of_a_group_with_members_stay(world):
    world.subscribe("a")
    for call in (lambda: alter(world, foo=(0, 1)), lambda: delete_offsets(world, "foo")):
        with pytest.raises(KafkaError) as error:
            call()
        assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(KafkaError) as error:
        alter(world, "missing", foo=(0, 1))
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_offsets_start_over(world):
    result = delete_offsets(world, "foo", "bar", "gone")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(result) == {"foo": 0, "bar": unknown, "gone": unknown}
    assert result.deletion is not None
    world.delete(result.deletion)
    assert not world.share_state
    world.subscribe("a")
    assert world.converge("a") == {"a": {"foo": [0, 1, 2]}}


def test_failed_deletion_of_offsets_is_repeated(world):
    first, second = delete_offsets(world, "foo").deletion, delete_offsets(world, "foo").deletion
    assert first == second
    assert first is not None


def test_state_is_initialized_again_only_after_its_deletion(world):
    deletion = delete_offsets(world, "foo").deletion
    assert deletion is not None
    world.subscribe("a")
    assert not world.initializations
    world.delete(deletion)
    assert world.converge("a") == {"a": {"foo": [0, 1, 2]}}


# -- groups ------------------------------------------------------------------------------------------------------------


def test_group_is_deleted_after_its_state(world):
    assert delete_group(world) is ErrorCode.GROUP_DELETION_FAILED
    deletion: StateDeletion = world.run(lambda: world.shard.share_states.delete_all(GROUP))
    assert sum(map(len, deletion.keys.values())) == 3
    assert delete_group(world) is ErrorCode.GROUP_DELETION_FAILED
    world.delete(deletion)
    assert delete_group(world) is ErrorCode.NONE
    assert not world.log
    assert world.shard.context.groups.find(GROUP) is None


def test_group_with_members_is_not_deleted(world):
    world.subscribe("a")
    assert delete_group(world) is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(KafkaError) as error:
        world.run(lambda: world.shard.share_states.delete_all(GROUP))
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP


def test_empty_share_group_does_not_expire(world):
    world.time.advance(8 * 24 * 3600.0)
    assert world.share_group.is_empty()


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [((), (), 1), (("empty",), ("Share",), 1), (("stable",), (), 0), ((), ("consumer",), 0)],
)
def test_listing_has_type_and_state(world, states, types, found):
    rows = world.shard.list_groups(GroupFilter(states, types), [GROUP], world.offset)
    assert [(row.group_type, row.group_state, row.protocol_type) for row in rows] == [
        ("share", "Empty", "share")
    ] * found


def test_description_shows_members(world):
    world.subscribe("b", "foo")
    world.converge("b")
    described = world.shard.share.description(GROUP, world.offset)
    for _ in described.members:
        pass
    row = described.row
    (member,) = row.members
    assert (row.group_state, row.assignor_name, row.group_epoch) == ("Stable", "simple", member.member_epoch)
    assert [each.topic_name for each in member.assignment.topic_partitions] == ["foo"]
    missing = world.shard.share.description("missing", world.offset).row
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found.")


@pytest.mark.parametrize("operation", ["commit", "fetch", "delete"])
def test_committed_offsets_are_refused(world, operation):
    group = world.share_group
    calls = {
        "commit": lambda: group.validate_offset_commit("", None, -1, 9),
        "fetch": lambda: group.validate_offset_fetch(None, -1, None),
        "delete": group.validate_offset_delete,
    }
    with pytest.raises(KafkaError) as error:
        calls[operation]()
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
