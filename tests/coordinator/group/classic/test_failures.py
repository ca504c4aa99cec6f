"""Failed appends, lost leadership and undecodable metadata in classic groups."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.records import GroupRecord, encode_record
from ottla.protocol.messages.coordinator_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.record.builder import RecordData, build_batch

from ..conversation import INITIAL_DELAY_S, REBALANCE_MS, SESSION_MS, Conversation, assignment_of


def joined_group(talk: Conversation) -> tuple[str, str]:
    answers = [talk.join(version=3) for _ in range(2)]
    talk.time.advance(2 * INITIAL_DELAY_S)
    return answers[0].response.member_id, answers[1].response.member_id


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_assignment_write_fails_sync(talk: Conversation, failure: ErrorCode, error: ErrorCode) -> None:
    leader, follower = joined_group(talk)
    waiting = talk.sync(follower, 1)
    talk.log.append_failures.append(KafkaError(failure))
    answer = talk.sync(leader, 1, {leader: b"1", follower: b"2"})
    assert answer.error == waiting.error == error
    assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    first, second = talk.join(leader), talk.join(follower)
    assert first.response.generation_id == second.response.generation_id == 2
    talk.settle_generation([leader, follower], 2)


def test_assignments_beyond_a_record_batch(talk: Conversation) -> None:
    leader, follower = joined_group(talk)
    talk.log.batch_bytes = 10_000
    waiting = talk.sync(follower, 1)
    answer = talk.sync(leader, 1, {leader: b"x" * 20_000})
    assert answer.error == waiting.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.join(leader).pending
    talk.join(follower)
    talk.settle_generation([leader, follower], 2)


def test_the_high_watermark_does_not_pass_the_assignment(talk: Conversation) -> None:
    leader, follower = joined_group(talk)
    waiting = talk.sync(follower, 1)
    talk.log.commits = False
    answer = talk.sync(leader, 1, {leader: b"1"})
    talk.time.advance(5)
    assert answer.error == waiting.error == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_that_leaves_while_its_assignment_is_written(talk: Conversation) -> None:
    leader, follower = joined_group(talk)
    waiting = talk.sync(follower, 1)
    talk.log.commits = False
    answer = talk.sync(leader, 1, {leader: b"1", follower: b"2"})
    talk.leave_without_answer(follower)
    talk.log.commits = True
    talk.log.commit(0, talk.log.end[0])
    assert waiting.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.join(leader).response.generation_id == 2


def test_failed_group_creation_fails_join(talk: Conversation) -> None:
    talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    answer = talk.join(version=3)
    assert answer.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.list_groups() == []
    talk.time.advance(3600)
    assert talk.stable_group(1)


def test_failed_group_creation_leaves_no_timer(talk: Conversation) -> None:
    talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    talk.join(instance="i")
    pending = talk.join().response
    assert pending.error_code == ErrorCode.MEMBER_ID_REQUIRED
    talk.time.advance(INITIAL_DELAY_S)
    assert talk.describe().group_state == "Empty"
    answer = talk.join(pending.member_id)
    talk.time.advance(INITIAL_DELAY_S)
    assert answer.response.generation_id == 1


def test_member_of_a_failed_group_creation_gets_error(talk: Conversation) -> None:
    talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    answers = talk.join_at_once("a", "b")
    assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert talk.list_groups() == []
    talk.static_group("a", "b")


def test_failed_write_of_an_empty_group(talk: Conversation) -> None:
    (leader,) = talk.stable_group(1)
    talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    response = talk.leave(leader)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.describe().group_state == "Empty"
    # The next coordinator loads a member that has left; its session expires there.
    talk.start()
    assert talk.describe().group_state == "Stable"
    talk.time.advance(SESSION_MS / 1000)
    assert talk.describe().group_state == "Empty"


def test_waiting_members_get_not_coordinator_when_unloaded(talk: Conversation) -> None:
    leader, follower = talk.stable_group(2)
    other_leader, other_follower = (talk.join(version=3, group="other") for _ in range(2))
    talk.time.advance(2 * INITIAL_DELAY_S)
    joining = talk.join(leader)
    syncing = talk.sync(other_follower.response.member_id, 1, group="other")
    assert other_leader.response.generation_id == 1
    talk.runtime.resign(0)
    assert joining.error == syncing.error == ErrorCode.NOT_COORDINATOR
    assert joining.response.member_id == leader
    assert talk.heartbeat(follower, 1) == ErrorCode.NOT_COORDINATOR


def test_the_next_coordinator_knows_the_last_generation(talk: Conversation) -> None:
    leader, follower = talk.stable_group(2)
    before = talk.describe()
    talk.start()
    assert talk.describe() == before
    assert talk.heartbeat(leader, 1) == talk.heartbeat(follower, 1) == ErrorCode.NONE
    assert assignment_of(talk.sync(follower, 1)) == follower.encode()
    answer = talk.join(leader)
    talk.join(follower)
    assert answer.response.generation_id == 2
    assert answer.response.leader == leader


def test_members_get_a_full_session_to_find_the_next_coordinator(talk: Conversation) -> None:
    leader, follower = talk.stable_group(2)
    talk.time.advance(SESSION_MS / 1000 - 1)
    talk.start()
    talk.time.advance(SESSION_MS / 1000 - 1)
    assert talk.heartbeat(leader, 1) == ErrorCode.NONE
    talk.time.advance(1)
    assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_are_known_to_the_next_coordinator(talk: Conversation) -> None:
    _, follower = talk.static_group("a", "b")
    talk.start()
    back = talk.join(instance="b").response
    assert back.generation_id == 1
    assert talk.heartbeat(follower, 1, instance="b") == ErrorCode.FENCED_INSTANCE_ID


def test_incomplete_generation_is_dropped_on_load(talk: Conversation) -> None:
    leader, follower = talk.stable_group(2)
    talk.join(leader)
    talk.join(follower)
    talk.start()
    assert talk.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION
    assert talk.heartbeat(leader, 1) == ErrorCode.NONE


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x03\x00\x00\x00\x01\x7f\xff" + b"x" * 10,
        b"\x00\x01\x00\x00\x00\x01\x00\x01\xff\xff\xff\xff\xff\xff",
        bytes(range(256)),
    ],
)
def test_undecodable_consumer_metadata_keeps_offsets(talk: Conversation, metadata: bytes) -> None:
    (leader,) = talk.stable_group(1, protocols={"range": metadata})
    assert talk.heartbeat(leader, 1) == ErrorCode.NONE
    assert talk.commit_code(member_id=leader, generation=1) == ErrorCode.NONE
    assert bytes(talk.describe().members[0].member_metadata) == metadata
    talk.start()
    assert talk.heartbeat(leader, 1) == ErrorCode.NONE


def test_loaded_group_equals_written_group(talk: Conversation) -> None:
    leader, _ = talk.static_group("a", "b", protocols={"x": b"\x00\xff", "y": b""}, protocol_type="sr")
    (value,) = [record.value for record in talk.records() if isinstance(record.key, GroupMetadataKey)][-1:]
    assert (value.protocol_type, value.protocol, value.leader, value.generation) == ("sr", "x", leader, 1)
    assert value.current_state_timestamp > 0
    member = value.members[0]
    assert (member.group_instance_id, member.client_host, member.session_timeout) == ("a", "/10.0.0.1", SESSION_MS)
    assert bytes(member.subscription) == b"\x00\xff"


@pytest.mark.parametrize("members", [["m", "m"], ["other"]], ids=["twice", "leader is not a member"])
def test_record_that_contradicts_itself_is_skipped(talk: Conversation, members: list[str]) -> None:
    """A rebalance of this group would never end, so the group keeps its previous state."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        members=[MemberMetadata(member_id=each, client_id="c", client_host="/h") for each in members],
    )
    key, stored = encode_record(GroupRecord(GroupMetadataKey(group="g"), value))
    joined_group(talk)
    talk.log.put(0, build_batch([RecordData(0, key, stored)]))
    talk.log.high_watermark[0] = talk.log.end[0]
    talk.start()
    assert talk.runtime.statistics.records_skipped == 1
    first, second = talk.join(version=3), talk.join(version=3)
    talk.time.advance(REBALANCE_MS / 1000)
    assert first.response.generation_id == second.response.generation_id == 1
