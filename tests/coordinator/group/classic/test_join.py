"""JoinGroup of classic groups: admission, member ids, responses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.group.classic.group import ClassicGroup

from ..conversation import CONSUMER, INITIAL_DELAY_S, SESSION_MS, Conversation, subscription


def test_member_without_id_has_to_rejoin_with_its_id(talk: Conversation) -> None:
    first = talk.join(client_id="app").response
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("app-")
    second = talk.join(first.member_id)
    assert second.pending
    talk.time.advance(INITIAL_DELAY_S)
    joined = second.response
    assert (joined.error_code, joined.generation_id, joined.protocol_type, joined.protocol_name) == (
        0,
        1,
        "consumer",
        "range",
    )
    assert joined.leader == joined.member_id == first.member_id
    assert [(member.member_id, bytes(member.metadata)) for member in joined.members] == [
        (first.member_id, CONSUMER["range"])
    ]


def test_below_version_4_join_response_has_the_id(talk: Conversation) -> None:
    answer = talk.join(version=3)
    assert answer.pending
    talk.time.advance(INITIAL_DELAY_S)
    assert answer.response.generation_id == 1
    assert answer.response.member_id == answer.response.leader


def test_version_0_uses_session_timeout_for_rebalance(talk: Conversation) -> None:
    answer = talk.join(version=0, rebalance_ms=-1, session_ms=6000)
    talk.time.advance(INITIAL_DELAY_S)
    group = talk.shard.context.groups.get("g")
    assert isinstance(group, ClassicGroup)
    member = group.members[answer.response.member_id]
    assert member.rebalance_timeout_ms == 6000


@pytest.mark.parametrize("version", [5, 6, 7, 9])
def test_join_error_has_valid_protocol_name_for_version(talk: Conversation, version: int) -> None:
    response = talk.join("unknown", version=version).response
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "x" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"protocols": {"x" * 40_000: b""}}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_join_is_rejected(talk: Conversation, options: dict[str, object], error: ErrorCode) -> None:
    assert talk.join(**options).error == error  # type: ignore[arg-type]


def test_unknown_member_id_creates_no_group(talk: Conversation) -> None:
    assert talk.join("unknown").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.list_groups() == []


def test_an_unknown_id_in_a_group(talk: Conversation) -> None:
    talk.stable_group(1)
    assert talk.join("unknown").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_other_protocol_type_is_rejected(talk: Conversation) -> None:
    talk.stable_group(1)
    assert talk.join(protocol_type="connect").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_join_without_common_protocol_is_rejected(talk: Conversation) -> None:
    talk.stable_group(2)
    assert talk.join(protocols={"sticky": b""}).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_any_type_of_protocol_with_opaque_metadata(talk: Conversation) -> None:
    (leader,) = talk.stable_group(1, protocol_type="connect", protocols={"sessioned": b"\x00\xff what it likes"})
    described = talk.describe()
    assert (described.protocol_type, described.protocol_data) == ("connect", "sessioned")
    assert bytes(described.members[0].member_metadata) == b"\x00\xff what it likes"
    assert bytes(described.members[0].member_assignment) == leader.encode()


def test_members_vote_for_first_common_protocol(talk: Conversation) -> None:
    one = talk.join(version=3, protocols={"a": b"", "b": b"", "c": b""})
    two = talk.join(version=3, protocols={"c": b"", "b": b""})
    three = talk.join(version=3, protocols={"c": b"", "b": b"", "a": b""})
    talk.time.advance(2 * INITIAL_DELAY_S)
    assert {answer.response.protocol_name for answer in (one, two, three)} == {"c"}


def test_of_two_protocols_with_one_name_the_first_counts(talk: Conversation) -> None:
    from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

    from ...answers import Answer

    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="connect",
        protocols=[
            JoinGroupRequestProtocol(name="a", metadata=b"1"),
            JoinGroupRequestProtocol(name="a", metadata=b"2"),
        ],
    )
    answer: Answer[object] = Answer()
    talk.coordinator.join_group(talk.context("join", 3), request, answer)
    talk.time.advance(INITIAL_DELAY_S)
    assert [bytes(member.metadata) for member in answer.response.members] == [b"1"]  # type: ignore[attr-defined]


def test_only_the_leader_gets_member_metadata(talk: Conversation) -> None:
    leader, follower = talk.join(version=3), talk.join(version=3)
    talk.time.advance(2 * INITIAL_DELAY_S)
    assert len(leader.response.members) == 2
    assert follower.response.members == []
    assert follower.response.leader == leader.response.member_id


class TestInitialDelay:
    def test_the_first_rebalance_waits_for_more_members(self, talk: Conversation) -> None:
        first = talk.join(version=3)
        talk.time.advance(2.9)
        second = talk.join(version=3)
        talk.time.advance(2.9)
        assert first.pending
        talk.time.advance(0.2)
        assert first.response.generation_id == second.response.generation_id == 1

    def test_initial_delay_ends_without_new_members(self, talk: Conversation) -> None:
        first = talk.join(version=3)
        talk.time.advance(INITIAL_DELAY_S)
        assert not first.pending

    def test_it_never_exceeds_the_rebalance_timeout(self, talk: Conversation) -> None:
        first = talk.join(version=3, rebalance_ms=8_000)
        for _ in range(4):
            talk.time.advance(1.9)
            assert first.pending
            talk.join(version=3, rebalance_ms=8_000)
        talk.time.advance(0.5)
        assert not first.pending

    def test_no_delay(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk(group_initial_rebalance_delay_ms=0)
        answer = talk.join(version=3)
        talk.time.advance(0)
        assert answer.response.generation_id == 1


class TestMaxSize:
    def test_a_group_that_is_full(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk(group_max_size=2)
        members = talk.stable_group(2)
        response = talk.join().response
        assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert talk.join(members[0]).pending, "a member may rejoin"
        assert talk.heartbeat(members[1], 1) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_waiting_members_count_for_max_size(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk(group_max_size=2)
        answers = [talk.join(version=3) for _ in range(3)]
        assert answers[2].error == ErrorCode.GROUP_MAX_SIZE_REACHED
        talk.time.advance(2 * INITIAL_DELAY_S)
        assert [answer.error for answer in answers[:2]] == [0, 0]

    def test_pending_member_is_rejected_by_max_size(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk(group_max_size=1)
        ids = [talk.join().response.member_id for _ in range(2)]
        first, second = talk.join(ids[0]), talk.join(ids[1])
        assert first.pending
        assert second.error == ErrorCode.GROUP_MAX_SIZE_REACHED


class TestPendingMembers:
    def test_an_id_that_is_not_used_expires_with_the_session(self, talk: Conversation) -> None:
        member_id = talk.join().response.member_id
        talk.time.advance(SESSION_MS / 1000)
        assert talk.join(member_id).error == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_rebalance_waits_for_it(self, talk: Conversation) -> None:
        members = talk.stable_group(1)
        pending = talk.join(protocols=CONSUMER).response.member_id
        leader = talk.join(members[0])
        assert leader.pending
        late = talk.join(pending)
        assert late.response.generation_id == leader.response.generation_id == 2

    def test_a_rebalance_stops_waiting_when_it_expires(self, talk: Conversation) -> None:
        members = talk.stable_group(1)
        talk.join(session_ms=6_000)
        leader = talk.join(members[0])
        talk.time.advance(6)
        assert leader.response.generation_id == 2

    def test_it_can_leave(self, talk: Conversation) -> None:
        members = talk.stable_group(1)
        pending = talk.join().response.member_id
        leader = talk.join(members[0])
        assert [member.error_code for member in talk.leave(pending).members] == [0]
        assert leader.response.generation_id == 2

    def test_it_can_neither_sync_nor_heartbeat(self, talk: Conversation) -> None:
        talk.stable_group(1)
        pending = talk.join().response.member_id
        assert talk.sync(pending, 1).error == ErrorCode.UNKNOWN_MEMBER_ID
        assert talk.heartbeat(pending, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_pending_member_can_not_become_static(self, talk: Conversation) -> None:
        pending = talk.join().response.member_id
        assert talk.join(pending, instance="i").error == ErrorCode.UNKNOWN_MEMBER_ID


class TestJoiningAgain:
    def test_a_follower_without_news_gets_the_same_generation(self, talk: Conversation) -> None:
        _, follower = talk.stable_group(2)
        response = talk.join(follower).response
        assert (response.error_code, response.generation_id, response.members) == (0, 1, [])

    def test_follower_with_new_subscription_rebalances(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        answer = talk.join(follower, protocols={"range": subscription("u")})
        assert answer.pending
        assert talk.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        talk.join(leader)
        assert answer.response.generation_id == 2

    def test_the_leader_always_starts_a_rebalance(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        answer = talk.join(leader)
        assert answer.pending
        assert talk.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_rejoin_before_sync_repeats_the_response(self, talk: Conversation) -> None:
        leader, follower = talk.join(version=3), talk.join(version=3)
        talk.time.advance(2 * INITIAL_DELAY_S)
        again = talk.join(leader.response.member_id).response
        assert (again.generation_id, len(again.members)) == (1, 2)
        again = talk.join(follower.response.member_id).response
        assert (again.generation_id, len(again.members)) == (1, 0)

    def test_rejoin_before_sync_with_new_metadata_rebalances(self, talk: Conversation) -> None:
        leader, follower = talk.join(version=3), talk.join(version=3)
        talk.time.advance(2 * INITIAL_DELAY_S)
        waiting = talk.sync(follower.response.member_id, 1)
        talk.join(leader.response.member_id, protocols={"range": subscription("u")})
        assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_request_that_the_client_gave_up_is_answered_too(self, talk: Conversation) -> None:
        leader, _ = talk.stable_group(2)
        first = talk.join(leader)
        second = talk.join(leader)
        assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
        assert second.pending
