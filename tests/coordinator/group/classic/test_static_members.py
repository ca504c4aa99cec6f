"""Static members of classic groups (KIP-345, KIP-814): a restart inside the session changes nothing."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError

from ..conversation import INITIAL_DELAY_S, SESSION_MS, Conversation, subscription


def test_a_static_member_needs_one_request(talk: Conversation) -> None:
    answer = talk.join(instance="i")
    assert answer.pending
    talk.time.advance(INITIAL_DELAY_S)
    assert answer.response.member_id.startswith("i-")
    assert [member.group_instance_id for member in answer.response.members] == ["i"]


def test_follower_rejoins_without_rebalance(talk: Conversation) -> None:
    leader, follower = talk.static_group("a", "b")
    response = talk.join(instance="b").response
    assert (response.error_code, response.generation_id, response.leader, response.members) == (0, 1, leader, [])
    assert response.member_id not in (leader, follower)
    assert talk.heartbeat(leader, 1, instance="a") == ErrorCode.NONE
    synced = talk.sync(response.member_id, 1, instance="b")
    assert bytes(synced.response.assignment) == follower.encode()


def test_replaced_member_is_fenced(talk: Conversation) -> None:
    _, follower = talk.static_group("a", "b")
    talk.join(instance="b")
    assert talk.heartbeat(follower, 1, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert talk.sync(follower, 1, instance="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert talk.join(follower, instance="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert talk.commit_code(member_id=follower, generation=1, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    (left,) = talk.leave((follower, "b")).members
    assert left.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert talk.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_rejoins_and_skips_the_assignment(talk: Conversation) -> None:
    talk.static_group("a", "b")
    response = talk.join(instance="a").response
    assert (response.generation_id, response.skip_assignment) == (1, True)
    assert response.leader == response.member_id
    assert sorted(member.group_instance_id or "" for member in response.members) == ["a", "b"]


def test_returning_leader_below_version_9_gets_old_leader_id(talk: Conversation) -> None:
    leader, _ = talk.static_group("a", "b")
    response = talk.join(instance="a", version=8).response
    assert (response.skip_assignment, response.leader, response.members) == (False, leader, [])
    assert response.member_id != leader


def test_new_member_id_is_stored_before_the_response(talk: Conversation) -> None:
    talk.static_group("a")
    talk.log.commits = False
    answer = talk.join(instance="a")
    assert answer.pending
    talk.log.commit(0, talk.log.end[0])
    member_id = answer.response.member_id
    assert [member.member_id for member in talk.records()[-1].value.members] == [member_id]
    talk.start()
    assert talk.heartbeat(member_id, 1, instance="a") == ErrorCode.NONE


def test_failed_write_of_new_id_restores_the_old_one(talk: Conversation) -> None:
    _, follower = talk.static_group("a", "b")
    talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
    answer = talk.join(instance="b")
    assert answer.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.heartbeat(follower, 1, instance="b") == ErrorCode.NONE
    assert talk.describe().group_state == "Stable"


def test_late_id_change_keeps_member_of_next_generation(talk: Conversation) -> None:
    """The old id would be in the group without assignment, and no client would rejoin (simulation, cluster seed
    800005)."""
    leader, follower = talk.static_group("a", "b")
    talk.log.commits = False
    newcomer = talk.join(instance="b")
    talk.time.advance(1)
    again = talk.join(leader, instance="a")
    assert (newcomer.response.generation_id, again.response.generation_id) == (2, 2)
    member_id = newcomer.response.member_id
    assert member_id != follower
    synced = talk.sync(leader, 2, {leader: b"1", member_id: b"2"}, instance="a")
    talk.time.advance(4)  # the record of the new id times out, the assignments do not
    assert synced.pending
    talk.log.commits = True
    talk.log.commit(0, talk.log.end[0])
    assert bytes(synced.response.assignment) == b"1"
    assert bytes(talk.sync(member_id, 2, instance="b").response.assignment) == b"2"


def test_replacement_that_changes_the_protocol_rebalances(talk: Conversation) -> None:
    both = {"range": b"", "sticky": b""}
    leader, _ = talk.static_group("a", "b", protocols=both, protocol_type="x")
    answer = talk.join(instance="b", protocols={"sticky": b""}, protocol_type="x")
    assert answer.pending
    assert talk.heartbeat(leader, 1, instance="a") == ErrorCode.REBALANCE_IN_PROGRESS
    talk.join(leader, instance="a", protocols=both, protocol_type="x")
    assert answer.response.protocol_name == "sticky"


def test_replacement_without_common_protocol_is_rejected(talk: Conversation) -> None:
    talk.static_group("a", "b")
    assert talk.join(instance="b", protocols={"other": b""}).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_replacement_during_join_phase(talk: Conversation) -> None:
    leader, follower = talk.static_group("a", "b")
    waiting = talk.join(leader, instance="a")
    back = talk.join(instance="b")
    assert waiting.response.generation_id == back.response.generation_id == 2
    assert talk.heartbeat(follower, 2, instance="b") == ErrorCode.FENCED_INSTANCE_ID


def test_replaced_member_with_pending_join_is_fenced(talk: Conversation) -> None:
    _, follower = talk.static_group("a", "b")
    waiting = talk.join(follower, instance="b", protocols={"range": subscription("u")})
    talk.join(instance="b")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID


def test_replacement_during_sync_phase(talk: Conversation) -> None:
    answers = [talk.join(instance=instance) for instance in ("a", "b")]
    talk.time.advance(2 * INITIAL_DELAY_S)
    leader, follower = (answer.response.member_id for answer in answers)
    waiting = talk.sync(follower, 1, instance="b")
    back = talk.join(instance="b")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID
    assert back.pending
    assert talk.join(leader, instance="a").response.generation_id == back.response.generation_id == 2


def test_static_member_survives_a_missed_rebalance(talk: Conversation) -> None:
    leader, follower = talk.static_group("a", "b", session_ms=1_000_000)
    answer = talk.join(leader, instance="a", session_ms=1_000_000)
    talk.time.advance(60)
    response = answer.response
    assert (response.generation_id, len(response.members)) == (2, 2)
    assert talk.heartbeat(follower, 2, instance="b") == ErrorCode.NONE


def test_rebalance_without_rejoining_static_members_continues(talk: Conversation) -> None:
    leader, follower = talk.static_group("a", "b", session_ms=1_000_000)
    dynamic, waiting = talk.join_new(session_ms=1_000_000)
    talk.leave(dynamic)
    assert waiting.error == ErrorCode.UNKNOWN_MEMBER_ID
    talk.time.advance(61)
    assert talk.describe().group_state == "PreparingRebalance"
    first, second = talk.join(leader, instance="a"), talk.join(follower, instance="b")
    assert first.response.generation_id == second.response.generation_id == 2


def test_static_member_expires_with_its_session(talk: Conversation) -> None:
    leader, _ = talk.static_group("a", "b")
    talk.time.advance(SESSION_MS / 2000)
    talk.heartbeat(leader, 1)
    talk.time.advance(SESSION_MS / 2000)
    assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    back = talk.join(instance="b")
    assert back.pending
    assert talk.join(leader, instance="a").response.generation_id == 2


@pytest.mark.parametrize("named", [True, False])
def test_admin_removes_static_member_by_instance_id(talk: Conversation, named: bool) -> None:
    leader, follower = talk.static_group("a", "b")
    response = talk.leave((follower if named else "", "b"), ("", "c"), ("", None))
    assert [member.error_code for member in response.members] == [
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [member.group_instance_id for member in response.members] == ["b", "c", None]
    assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_unknown_instance_id_is_rejected(talk: Conversation) -> None:
    (leader,) = talk.static_group("a")
    assert talk.join(leader, instance="b").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat(leader, 1, instance="b") == ErrorCode.UNKNOWN_MEMBER_ID


def test_replacement_before_sync(talk: Conversation) -> None:
    answers = [talk.join(instance=instance) for instance in ("a", "b")]
    talk.time.advance(2 * INITIAL_DELAY_S)
    leader, follower = (answer.response.member_id for answer in answers)
    talk.sync(leader, 1, {leader: b"1", follower: b"2"}, instance="a")
    back = talk.join(instance="b").response.member_id
    assert bytes(talk.sync(back, 1, instance="b").response.assignment) == b"2"
    for _ in range(20):
        talk.time.advance(5)
        assert talk.heartbeat(leader, 1) == talk.heartbeat(back, 1) == ErrorCode.NONE


@pytest.mark.parametrize("rebalance_ms", [0, -5])
def test_timeout_of_no_time_does_not_spin_the_loop(talk: Conversation, rebalance_ms: int) -> None:
    """Repeated rebalances for which no static member rejoins are at least one second apart."""
    talk.static_group("a", "b", session_ms=1_000_000)
    for instance in ("a", "b"):
        talk.join(instance=instance, session_ms=1_000_000, rebalance_ms=rebalance_ms)
    talk.leave(("", "b"))  # raises when the loop does not become idle
    talk.time.advance(60)
    assert talk.describe().group_state == "PreparingRebalance"
    assert talk.join(instance="a", session_ms=1_000_000).response.generation_id == 2
