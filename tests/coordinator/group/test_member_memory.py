"""Memory limits for one member, a group and all groups, and the release of memory."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.member_memory import MEMBER_BYTES, SMALL_MEMBER_BYTES

from .consumer.world import World
from .conversation import INITIAL_DELAY_S, SESSION_MS, Conversation

KIB = 1024
REFUSED = ErrorCode.GROUP_MAX_SIZE_REACHED


def with_bytes(size: int) -> dict[str, bytes]:
    return {"range": bytes(size)}


def bounded(member: int = 1 << 20, group: int = 1 << 20, groups: int = 1 << 20) -> Conversation:
    return Conversation(group_member_max_bytes=member, group_max_bytes=group, groups_max_bytes=groups)


def test_member_metadata_is_limited() -> None:
    talk = bounded(member=20 * KIB)
    assert talk.join(protocols=with_bytes(21 * KIB), version=3).error == ErrorCode.INVALID_REQUEST
    assert talk.join(protocols={"range": bytes(11 * KIB), "b": bytes(11 * KIB)}).error == ErrorCode.INVALID_REQUEST
    assert talk.shard.context.groups.find("g") is None
    assert talk.join(protocols=with_bytes(19 * KIB), version=3).pending


def test_an_assignment_is_bounded_too() -> None:
    talk = bounded(member=20 * KIB, group=100 * KIB)
    answer = talk.join(version=3)
    talk.time.advance(INITIAL_DELAY_S)
    leader = answer.response.member_id
    assert talk.sync(leader, 1, {leader: bytes(21 * KIB)}).error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.sync(leader, 1, {leader: bytes(19 * KIB)}).error == ErrorCode.NONE
    assert talk.shard.context.groups.held_bytes() > 19 * KIB


def test_assignments_above_the_group_limit() -> None:
    talk = bounded(group=40 * KIB)
    answers = [talk.join(version=3) for _ in range(3)]
    talk.time.advance(2 * INITIAL_DELAY_S)
    leader, *others = (answer.response.member_id for answer in answers)
    waiting = talk.sync(others[0], 1)
    all_members = [leader, *others]
    assert talk.sync(leader, 1, {member: bytes(15 * KIB) for member in all_members}).error == REFUSED
    assert waiting.pending
    assert talk.sync(leader, 1, {member: bytes(10 * KIB) for member in all_members}).error == ErrorCode.NONE
    assert waiting.response.assignment == bytes(10 * KIB)


def test_the_members_of_a_group_share_a_bound() -> None:
    talk = bounded(group=40 * KIB)
    first = talk.join(protocols=with_bytes(15 * KIB), version=3)
    second = talk.join(protocols=with_bytes(15 * KIB), version=3)
    assert first.pending
    assert second.pending
    assert talk.join(protocols=with_bytes(15 * KIB), version=3).error == REFUSED
    assert talk.join(protocols=with_bytes(KIB), version=3).pending
    assert talk.join(protocols=with_bytes(15 * KIB), group="other", version=3).pending
    talk.time.advance(2 * INITIAL_DELAY_S)
    assert talk.join(protocols=with_bytes(10 * KIB), version=3).error == REFUSED
    talk.leave(second.response.member_id)
    assert talk.join(protocols=with_bytes(10 * KIB), version=3).pending


def test_rejoining_member_is_counted_once() -> None:
    talk = bounded(group=40 * KIB)
    answer = talk.join(protocols=with_bytes(30 * KIB), version=3)
    talk.time.advance(INITIAL_DELAY_S)
    member = answer.response.member_id
    for size in (31, 32, 38):
        assert talk.join(member, protocols=with_bytes(size * KIB), version=3).error == ErrorCode.NONE
    assert talk.join(member, protocols=with_bytes(40 * KIB), version=3).error == REFUSED
    static = talk.join(instance="i", group="s", protocols=with_bytes(30 * KIB))
    talk.time.advance(INITIAL_DELAY_S)
    assert static.error == ErrorCode.NONE
    assert talk.join(instance="i", group="s", protocols=with_bytes(30 * KIB)).error == ErrorCode.NONE


def test_half_of_the_broker_limit_is_for_small_members() -> None:
    talk = bounded(groups=400 * KIB)
    large = 2 * SMALL_MEMBER_BYTES
    joined = [talk.join(group=f"large-{number}", protocols=with_bytes(large), version=3) for number in range(20)]
    kept = [answer for answer in joined if answer.pending]
    assert len(kept) == 200 * KIB // (large + MEMBER_BYTES)
    assert {answer.error for answer in joined if not answer.pending} == {REFUSED}
    assert talk.join(group="honest", version=3).pending, "members of the usual size are not kept out"
    flood = [talk.join(group=f"flood-{number}", version=3) for number in range(500)]
    assert 100 < sum(answer.pending for answer in flood) < 400
    assert talk.shard.context.groups.held_bytes() <= 400 * KIB


def test_ids_that_were_handed_out_count() -> None:
    talk = bounded(groups=40 * KIB)
    answers = [talk.join(group=f"g{number}") for number in range(60)]
    codes = [answer.error for answer in answers]
    assert codes.count(ErrorCode.MEMBER_ID_REQUIRED) <= 40
    assert codes[-1] == REFUSED
    talk.time.advance(SESSION_MS / 1000)
    assert talk.shard.context.groups.held_bytes() == 0
    assert talk.join().error == ErrorCode.MEMBER_ID_REQUIRED


def test_leaving_members_free_memory() -> None:
    talk = bounded(groups=100 * KIB)
    for number in range(5):
        answer = talk.join(group=f"g{number}", protocols=with_bytes(40 * KIB), version=3)
        talk.time.advance(2 * INITIAL_DELAY_S)
        assert answer.error == ErrorCode.NONE, "the one before has left"
        assert talk.join(group="x", protocols=with_bytes(40 * KIB), version=3).error == REFUSED
        talk.leave(answer.response.member_id, group=f"g{number}")
        talk.time.advance(1)
    silent = talk.join(group="silent", protocols=with_bytes(40 * KIB), version=3)
    talk.time.advance(INITIAL_DELAY_S)
    assert silent.error == ErrorCode.NONE
    assert talk.join(group="x", protocols=with_bytes(40 * KIB), version=3).error == REFUSED
    talk.time.advance(SESSION_MS / 1000 + INITIAL_DELAY_S)
    assert talk.join(group="x", protocols=with_bytes(40 * KIB), version=3).pending, "its session is over"


def test_groups_that_were_loaded_count() -> None:
    talk = bounded(groups=100 * KIB)
    answer = talk.join(protocols=with_bytes(40 * KIB), version=3)
    talk.time.advance(INITIAL_DELAY_S)
    leader = answer.response.member_id
    assert talk.sync(leader, 1, {leader: b"a"}).error == ErrorCode.NONE
    held = talk.shard.context.groups.held_bytes()
    talk.start()
    assert talk.shard.context.groups.held_bytes() == held
    assert talk.join(group="other", protocols=with_bytes(40 * KIB), version=3).error == REFUSED


def refused(world: World, member: str, **fields: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as failure:
        world.join(member, **fields)
    return failure.value.code


def names(number: int, size: int) -> list[str]:
    """Topic names of `size` bytes that no other member uses."""
    return [f"{number:04}-{index:059}" for index in range(size // 128)]


def test_consumer_members_are_limited_by_subscription_size() -> None:
    world = World({"foo": 2})
    world.set_config(group_member_max_bytes=20 * KIB, group_max_bytes=40 * KIB)
    assert refused(world, "a", topics=names(1, 20 * KIB)) == ErrorCode.INVALID_REQUEST
    assert refused(world, "a", topics=(), subscribed_topic_regex="x" * 21 * KIB) == ErrorCode.INVALID_REQUEST
    world.join("a", names(1, 15 * KIB))
    world.join("b", names(2, 15 * KIB))
    assert refused(world, "c", topics=names(3, 15 * KIB)) == REFUSED
    world.join("c", names(3, KIB))
    assert world.group.held_bytes == sum(member.held_bytes for member in world.group.members.values())
    world.heartbeat(member_id="b", member_epoch=-1)
    world.join("c", names(3, 15 * KIB))


def test_all_consumer_groups_share_a_bound() -> None:
    world = World({"foo": 2})
    world.set_config(groups_max_bytes=100 * KIB)
    world.join("a", names(1, 40 * KIB))
    assert refused(world, "b", topics=names(2, 40 * KIB)) == REFUSED
    world.join("b", ["foo"])
    world.heartbeat(member_id="a", member_epoch=-1)
    world.time.advance(2)
    world.join("b", names(2, 40 * KIB))
