"""Generations of a classic group: sync, heartbeat, sessions, leaving, and missed rebalances."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.coordinator_records import GroupMetadataKey

from ..conversation import CONSUMER, INITIAL_DELAY_S, REBALANCE_MS, SESSION_MS, Conversation, assignment_of


def joined_group(talk: Conversation, count: int = 2) -> list[str]:
    """Members of generation 1 that have not synced, the leader first."""
    answers = [talk.join(version=3) for _ in range(count)]
    talk.time.advance(2 * INITIAL_DELAY_S)
    return [answer.response.member_id for answer in answers]


class TestSync:
    def test_followers_wait_for_the_leader(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        waiting = talk.sync(follower, 1)
        assert waiting.pending
        assert assignment_of(talk.sync(leader, 1, {leader: b"1", follower: b"2"})) == b"1"
        response = waiting.response
        assert (bytes(response.assignment), response.protocol_type, response.protocol_name) == (
            b"2",
            "consumer",
            "range",
        )
        assert talk.describe().group_state == "Stable"

    def test_sync_after_the_leader_is_answered_at_once(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        talk.sync(leader, 1, {leader: b"1", follower: b"2"})
        assert assignment_of(talk.sync(follower, 1)) == b"2"
        assert assignment_of(talk.sync(follower, 1)) == b"2"

    def test_unassigned_member_gets_empty_assignment(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        talk.sync(leader, 1, {leader: b"1", "stranger": b"x"})
        assert assignment_of(talk.sync(follower, 1)) == b""

    def test_the_assignment_waits_for_the_high_watermark(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        waiting = talk.sync(follower, 1)
        talk.log.commits = False
        answer = talk.sync(leader, 1, {leader: b"1", follower: b"2"})
        assert answer.pending
        assert waiting.pending
        assert talk.describe().group_state == "CompletingRebalance"
        talk.log.commit(0, talk.log.end[0])
        assert assignment_of(answer) == b"1"
        assert assignment_of(waiting) == b"2"

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "unknown", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": 1, "group": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": 1, "group": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"generation": 1, "protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"generation": 1, "protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"generation": 1, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_refused(self, talk: Conversation, options: dict[str, object], error: ErrorCode) -> None:
        leader, follower = joined_group(talk)
        assert talk.sync(**{"member_id": leader, **options}).error == error  # type: ignore[arg-type]
        # The group continues unharmed.
        talk.settle_generation([leader, follower], 1)

    def test_in_a_rebalance(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        talk.join(leader)
        assert talk.sync(follower, 1).error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_in_an_empty_group(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.leave(leader)
        assert talk.sync(leader, 2).error == ErrorCode.UNKNOWN_MEMBER_ID

    def test_member_without_sync_is_removed(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        assert talk.sync(leader, 1, {leader: b"1"}).error == ErrorCode.NONE
        for _ in range(REBALANCE_MS // 5_000):
            talk.time.advance(5)
            talk.heartbeat(leader, 1)
            talk.heartbeat(follower, 1)
        assert talk.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_leader_without_sync_is_removed(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        waiting = talk.sync(follower, 1)
        for _ in range(REBALANCE_MS // 5_000):
            talk.time.advance(5)
            talk.heartbeat(leader, 1)
        assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
        assert talk.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.join(follower).response.leader == follower

    def test_a_follower_that_waits_needs_no_heartbeat(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        waiting = talk.sync(follower, 1)
        for _ in range(4):
            talk.time.advance(SESSION_MS / 2000)
            talk.heartbeat(leader, 1)
        assert waiting.pending
        talk.sync(leader, 1, {follower: b"2"})
        assert assignment_of(waiting) == b"2"

    def test_a_request_that_the_client_gave_up_is_answered_too(self, talk: Conversation) -> None:
        _, follower = joined_group(talk)
        first = talk.sync(follower, 1)
        second = talk.sync(follower, 1)
        assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
        assert second.pending


class TestHeartbeat:
    def test_in_every_state(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        assert talk.heartbeat(leader, 1) == ErrorCode.NONE
        talk.settle_generation([leader, follower], 1)
        assert talk.heartbeat(leader, 1) == ErrorCode.NONE
        talk.join(leader)
        assert talk.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_refused(self, talk: Conversation) -> None:
        leader, _ = talk.stable_group(2)
        assert talk.heartbeat(leader, 0) == ErrorCode.ILLEGAL_GENERATION
        assert talk.heartbeat("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.heartbeat(leader, 1, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.heartbeat(leader, 1, group="") == ErrorCode.INVALID_GROUP_ID
        assert talk.heartbeat(leader, 1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID

    def test_keeps_the_session(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        for _ in range(5):
            talk.time.advance(SESSION_MS / 1000 - 0.1)
            assert talk.heartbeat(leader, 1) == ErrorCode.NONE

    def test_a_session_without_heartbeat_ends(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        talk.time.advance(SESSION_MS / 2000)
        talk.heartbeat(leader, 1)
        talk.time.advance(SESSION_MS / 2000)
        assert talk.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert talk.join(leader).response.generation_id == 2

    def test_a_commit_counts(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        for _ in range(3):
            talk.time.advance(SESSION_MS / 1000 - 0.1)
            assert talk.commit_code(member_id=leader, generation=1) == ErrorCode.NONE

    def test_the_last_session_leaves_an_empty_group(self, talk: Conversation) -> None:
        talk.stable_group(1)
        talk.time.advance(SESSION_MS / 1000)
        described = talk.describe()
        assert (described.group_state, described.members) == ("Empty", [])
        assert talk.records()[-1].value.members == []
        assert talk.records()[-1].value.generation == 2


class TestRebalance:
    def test_member_without_join_is_removed(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        answer = talk.join(leader)
        for _ in range(REBALANCE_MS // 5_000):
            assert answer.pending
            assert talk.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
            talk.time.advance(5)
        assert answer.response.generation_id == 2
        assert [member.member_id for member in answer.response.members] == [leader]
        assert talk.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_leader_that_does_not_join_is_succeeded(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        answer = talk.join(follower, protocols={"range": b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"})
        talk.leave(leader)
        assert answer.response.leader == follower

    def test_the_longest_timeout_counts(self, talk: Conversation) -> None:
        one = talk.join(version=3, rebalance_ms=20_000)
        two = talk.join(version=3, rebalance_ms=40_000)
        talk.time.advance(2 * INITIAL_DELAY_S)
        leader, follower = one.response.member_id, two.response.member_id
        talk.settle_generation([leader, follower], 1)
        answer = talk.join(leader, rebalance_ms=20_000)
        for _ in range(7):
            talk.time.advance(5)
            talk.heartbeat(follower, 1)
        assert answer.pending
        talk.time.advance(5)
        assert not answer.pending

    def test_a_waiting_member_needs_no_heartbeat(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        answer = talk.join(leader)
        for _ in range(5):
            talk.time.advance(5)
            talk.heartbeat(follower, 1)
        assert talk.join(follower).response.generation_id == 2
        assert answer.response.generation_id == 2

    def test_new_member_has_its_own_timeout(self, talk: Conversation) -> None:
        """Its client may be gone while it waits, and it can't send heartbeats to prove the opposite."""
        leader, follower = talk.stable_group(2, rebalance_ms=900_000)
        newcomer = talk.join(version=3, rebalance_ms=900_000)
        for _ in range(299 // 5):
            talk.time.advance(5)
            talk.heartbeat(leader, 1)
            talk.heartbeat(follower, 1)
        assert newcomer.pending
        talk.time.advance(6)
        response = newcomer.response
        assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")

    def test_many_generations_of_joins_and_leaves(self, talk: Conversation) -> None:
        members = talk.stable_group(1)
        for generation in range(2, 12):
            new_id, waiting = talk.join_new()
            answers = [talk.join(member) for member in members]
            members = [*members, new_id]
            assert waiting.response.generation_id == generation
            assert {answer.response.generation_id for answer in answers} == {generation}
            assert len(answers[0].response.members) == len(members)
            talk.settle_generation(members, generation)
        assert talk.describe().group_state == "Stable"

    def test_only_assignments_and_empty_groups_are_written(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        talk.join(leader)
        talk.join(follower)
        talk.settle_generation([leader, follower], 2)
        talk.leave(leader, follower)
        values = [record.value for record in talk.records() if isinstance(record.key, GroupMetadataKey)]
        assert [(value.generation, len(value.members)) for value in values] == [(0, 0), (1, 2), (2, 2), (3, 0)]


class TestLeave:
    def test_the_others_rebalance(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        assert [member.error_code for member in talk.leave(follower).members] == [0]
        assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert talk.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_several_at_once_each_with_its_answer(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        response = talk.leave(leader, "unknown", follower)
        assert response.error_code == 0
        assert [member.error_code for member in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
        assert talk.describe().group_state == "Empty"

    @pytest.mark.parametrize("version", [0, 2])
    def test_one_by_its_id_in_old_versions(self, talk: Conversation, version: int) -> None:
        (leader,) = talk.stable_group(1)
        assert talk.leave("unknown", version=version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        response = talk.leave(leader, version=version)
        assert (response.error_code, response.members) == (0, [])

    def test_a_group_that_does_not_exist(self, talk: Conversation) -> None:
        response = talk.leave("unknown", group="other")
        assert response.error_code == 0
        assert [member.error_code for member in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert talk.leave("unknown", group="other", version=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_leave_while_join_is_pending(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        waiting = talk.join(leader)
        talk.leave(leader)
        assert waiting.error == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.join(follower).response.leader == follower

    def test_leave_while_sync_is_pending(self, talk: Conversation) -> None:
        leader, follower = joined_group(talk)
        waiting = talk.sync(follower, 1)
        talk.leave(follower)
        assert waiting.error == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.sync(leader, 1).error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_the_last_one_of_a_rebalance_leaves(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        waiting = talk.join(leader)
        talk.leave(follower)
        assert waiting.response.generation_id == 2

    def test_the_group_can_start_again(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.leave(leader)
        answer = talk.join(version=3, protocol_type="connect", protocols={"x": b""})
        talk.time.advance(INITIAL_DELAY_S)
        assert (answer.response.generation_id, answer.response.protocol_name) == (3, "x")
        assert talk.join(protocols=CONSUMER).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
