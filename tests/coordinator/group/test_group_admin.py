"""List, describe and delete groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.platform.shares import finish

from ..answers import Answer
from .conversation import INITIAL_DELAY_S, Conversation


class TestList:
    def test_by_state_and_type(self, talk: Conversation) -> None:
        talk.stable_group(1, group="stable")
        talk.commit_code(1, group="simple")
        talk.join(group="joining", version=3)
        assert talk.list_groups() == ["joining", "simple", "stable"]
        assert talk.list_groups(["stable", "EMPTY"]) == ["simple", "stable"]
        assert talk.list_groups(["PreparingRebalance"]) == ["joining"]
        assert talk.list_groups(["no such state"]) == []
        assert talk.list_groups(types=["Classic"]) == ["joining", "simple", "stable"]
        assert talk.list_groups(types=["consumer"]) == []

    def test_uncommitted_groups_are_not_listed(self, talk: Conversation) -> None:
        talk.log.commits = False
        talk.commit({("t", 0): 1})
        assert talk.list_groups() == []
        talk.log.commit(0, talk.log.end[0])
        assert talk.list_groups() == ["g"]


class TestDescribe:
    def test_a_stable_group(self, talk: Conversation) -> None:
        members = talk.stable_group(2, client_id="app")
        described = talk.describe()
        assert (described.error_code, described.group_state, described.protocol_type, described.protocol_data) == (
            0,
            "Stable",
            "consumer",
            "range",
        )
        assert [member.member_id for member in described.members] == members
        assert {(member.client_id, member.client_host) for member in described.members} == {("app", "/10.0.0.1")}

    def test_between_generations_no_protocol_is_selected(self, talk: Conversation) -> None:
        leader, _ = talk.stable_group(2)
        talk.join(leader)
        described = talk.describe()
        assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
        assert [bytes(member.member_metadata) for member in described.members] == [b"", b""]

    @pytest.mark.parametrize(("version", "error"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
    def test_no_group(self, talk: Conversation, version: int, error: int) -> None:
        described = talk.describe(version=version)
        assert (described.group_id, described.group_state, described.error_code) == ("g", "Dead", error)
        assert described.error_message == ("Group g not found." if error else None)


class TestDelete:
    def test_an_empty_group_with_its_offsets(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.commit_code(5, member_id=leader, generation=1)
        talk.leave(leader)
        assert talk.delete_groups("g", "h", "g") == {"g": ErrorCode.NONE, "h": ErrorCode.GROUP_ID_NOT_FOUND}
        assert talk.list_groups() == []
        assert talk.offsets() == {}
        talk.start()
        assert talk.list_groups() == []
        assert talk.offsets() == {}

    def test_a_group_in_use(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        assert talk.delete_groups("g") == {"g": ErrorCode.NON_EMPTY_GROUP}
        assert talk.heartbeat(leader, 1) == ErrorCode.NONE

    def test_the_id_can_be_used_again(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.leave(leader)
        talk.delete_groups("g")
        talk.stable_group(2)
        talk.time.advance(1)
        assert talk.describe().group_state == "Stable"

    def test_pending_member_of_a_deleted_group_is_unknown(self, talk: Conversation) -> None:
        pending = talk.join().response.member_id
        assert talk.delete_groups("g") == {"g": ErrorCode.NONE}
        assert talk.join(pending).error == ErrorCode.UNKNOWN_MEMBER_ID
        talk.time.advance(60)

    def test_more_offsets_than_fit_in_a_batch(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk()
        talk.commit({("t", partition): 1 for partition in range(400)})
        talk.log.batch_bytes = 2_000
        assert talk.delete_groups("g") == {"g": ErrorCode.NONE}
        assert talk.offsets() == {}
        assert talk.list_groups() == []


class TestElsewhere:
    """This broker does not coordinate the group: not yet, or no longer."""

    def test_not_coordinator(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.runtime.resign(0)
        assert talk.join(leader).error == ErrorCode.NOT_COORDINATOR
        assert talk.sync(leader, 1).error == ErrorCode.NOT_COORDINATOR
        assert talk.heartbeat(leader, 1) == ErrorCode.NOT_COORDINATOR
        assert talk.leave(leader).error_code == ErrorCode.NOT_COORDINATOR
        assert talk.commit_code() == ErrorCode.NOT_COORDINATOR
        assert talk.describe().error_code == ErrorCode.NOT_COORDINATOR
        assert talk.delete_groups("g") == {"g": ErrorCode.NOT_COORDINATOR}
        assert talk.delete_offsets(("t", 0)).error_code == ErrorCode.NOT_COORDINATOR
        assert talk.list_groups() == []

    def test_before_the_topic_exists(self, talk: Conversation) -> None:
        talk.runtime.stop()
        assert talk.join().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.sync("m", 1).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.heartbeat("m", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.leave("m").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.commit_code() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.describe().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.delete_groups("g") == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert talk.fetch().response.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert talk.fetch(require_stable=True).response.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_heartbeat_succeeds_while_loading(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.leader_epoch += 1
        talk.log.leader_epoch[0] = talk.leader_epoch
        talk.runtime.become_leader(0, talk.leader_epoch)
        from ottla.protocol.messages.heartbeat import HeartbeatRequest
        from ottla.protocol.messages.list_groups import ListGroupsRequest
        from ottla.protocol.messages.sync_group import SyncGroupRequest

        beat: Answer[object] = Answer()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=leader)
        talk.coordinator.heartbeat(talk.context("heartbeat", 4), request, beat)
        assert beat.error == ErrorCode.NONE
        synced: Answer[object] = Answer()
        sync = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=leader, protocol_type="consumer", protocol_name="range"
        )
        talk.coordinator.sync_group(talk.context("sync", 5), sync, synced)
        assert synced.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listed = finish(talk.coordinator.listing(ListGroupsRequest()))
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        talk.time.settle()
        assert talk.heartbeat(leader, 1) == ErrorCode.NONE


def test_the_initial_delay_is_not_needed_to_see_a_group(talk: Conversation) -> None:
    talk.join(version=3)
    assert talk.describe().group_state == "PreparingRebalance"
    talk.time.advance(INITIAL_DELAY_S)
    assert talk.describe().group_state == "CompletingRebalance"
