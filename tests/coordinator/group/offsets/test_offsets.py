"""Commit, fetch, delete and expiry of offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.coordinator.group import shard
from ottla.coordinator.group.offsets.committed_offset import (
    NO_TIMESTAMP,
    CommittedOffset,
    pack,
    unpack,
)
from ottla.coordinator.group.records import OffsetPlace
from ottla.coordinator.runtime import TIMER
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

from ...answers import Answer
from ..conversation import Conversation, image_of, subscription

DAY_S = 24 * 60 * 60
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        CommittedOffset,
        INT64,
        st.integers(-(2**31), 2**31 - 1),
        INT64,
        st.one_of(st.just(NO_TIMESTAMP), INT64),
        st.binary(min_size=16, max_size=16),
        st.one_of(st.text(max_size=100), st.just("m" * 126), st.just("m" * 127), st.just("m" * 200)),
    )
)
def test_packed_offset_round_trip(committed: CommittedOffset) -> None:
    if committed.expire_timestamp != NO_TIMESTAMP:
        committed = committed._replace(leader_epoch=-1, topic_id=ZERO_UUID)
    assert unpack(pack(*committed)) == committed


class TestCommit:
    def test_by_a_member(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        assert talk.commit_code(5, member_id=leader, generation=1) == ErrorCode.NONE
        assert talk.commit_code(6, member_id=follower, generation=1) == ErrorCode.NONE
        assert talk.offsets(("t", 0), ("t", 1)) == {("t", 0): 6, ("t", 1): -1}

    def test_survives(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.commit({("t", 0): 1, ("t", 3): 2, ("u", 0): 3}, member_id=leader, generation=1)
        talk.commit({("t", 0): 9}, member_id=leader, generation=1)
        talk.start()
        assert talk.offsets() == {("t", 0): 9, ("t", 3): 2, ("u", 0): 3}
        assert len(talk.shard.offsets) == 3
        assert talk.heartbeat(leader, 1) == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "unknown", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": 1, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_refused_by_a_group_with_members(
        self, talk: Conversation, options: dict[str, Any], error: ErrorCode
    ) -> None:
        (leader,) = talk.stable_group(1)
        assert talk.commit_code(**{"member_id": leader, **options}) == error
        assert talk.offsets() == {}

    @pytest.mark.parametrize(
        ("version", "error"),
        [(9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION), (2, ErrorCode.ILLEGAL_GENERATION)],
    )
    def test_a_generation_of_a_group_that_does_not_exist(
        self, talk: Conversation, version: int, error: ErrorCode
    ) -> None:
        assert talk.commit_code(member_id="m", generation=1, version=version) == error

    def test_between_generations(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        waiting = talk.join(leader)
        # Members may still commit their partitions until the others have joined.
        assert talk.commit_code(member_id=follower, generation=1) == ErrorCode.NONE
        talk.join(follower)
        assert waiting.response.generation_id == 2
        assert talk.commit_code(member_id=follower, generation=1) == ErrorCode.ILLEGAL_GENERATION
        assert talk.commit_code(member_id=follower, generation=2) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_commit_without_group_creates_a_simple_one(self, talk: Conversation) -> None:
        assert talk.commit_code(7) == ErrorCode.NONE
        assert talk.offsets() == {("t", 0): 7}
        assert talk.list_groups() == ["g"]
        described = talk.describe()
        assert (described.group_state, described.protocol_type) == ("Empty", "")
        talk.start()
        assert talk.offsets() == {("t", 0): 7}
        assert talk.list_groups() == ["g"]

    def test_the_empty_group_id_is_a_group(self, talk: Conversation) -> None:
        assert talk.commit_code(7, group="") == ErrorCode.NONE
        assert talk.offsets(group="") == {("t", 0): 7}
        assert talk.delete_groups("") == {"": ErrorCode.NONE}

    def test_by_an_admin_after_all_members_left(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        assert talk.commit_code(1) == ErrorCode.UNKNOWN_MEMBER_ID
        talk.leave(leader)
        assert talk.commit_code(1) == ErrorCode.NONE

    def test_results_are_per_partition(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk(offset_metadata_max_bytes=4)
        response = talk.commit({("t", 0): 1, ("gone", 0): 1, ("u", 2): 2}, metadata="four").response
        assert [(topic.name, [each.error_code for each in topic.partitions]) for topic in response.topics] == [
            ("t", [0]),
            ("gone", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
            ("u", [0]),
        ]
        assert talk.commit_code(metadata="fives") == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert talk.offsets() == {("t", 0): 1, ("u", 2): 2}

    def test_no_topic_exists(self, talk: Conversation) -> None:
        response = talk.commit({("gone", 0): 1}).response
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert talk.list_groups() == []

    def test_metadata_is_returned(self, talk: Conversation) -> None:
        talk.commit({("t", 0): 1}, metadata="über")
        (group,) = talk.fetch(("t", 0)).response.groups
        assert group.topics[0].partitions[0].metadata == "über"

    @pytest.mark.promise("G1")
    def test_waits_for_the_high_watermark(self, talk: Conversation) -> None:
        talk.commit_code(1)
        talk.log.commits = False
        answer = talk.commit({("t", 0): 2})
        assert answer.pending
        assert talk.offsets() == {("t", 0): 1}
        stable = talk.fetch(require_stable=True)
        assert stable.pending
        talk.log.commit(0, talk.log.end[0])
        assert not answer.pending
        assert stable.response.groups[0].topics[0].partitions[0].committed_offset == 2

    @pytest.mark.parametrize(
        ("failure", "error"),
        [
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        ],
    )
    def test_failed_commit_changes_nothing(self, talk: Conversation, failure: ErrorCode, error: ErrorCode) -> None:
        talk.log.append_failures.append(KafkaError(failure))
        assert talk.commit_code(1) == error
        assert talk.offsets() == {}
        assert talk.list_groups() == []
        assert len(talk.shard.offsets) == 0

    def test_by_topic_id(self, talk: Conversation) -> None:
        known = talk.image.topics["t"].topic_id
        request = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=4, committed_metadata=None)
                    ],
                )
                for topic_id in (b"?" * 16, known)
            ],
        )
        answer: Answer[object] = Answer()
        talk.coordinator.offset_commit(talk.context("commit", 10), request, answer)
        talk.time.settle()
        topics = answer.response.topics  # type: ignore[attr-defined]
        assert [topic.topic_id for topic in topics] == [b"?" * 16, known]
        assert [topic.partitions[0].error_code for topic in topics] == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
        assert talk.offsets() == {("t", 0): 4}


class TestFetch:
    def test_a_group_that_does_not_exist_has_no_offsets_and_no_error(self, talk: Conversation) -> None:
        assert talk.offsets(("t", 0), ("gone", 1)) == {("t", 0): -1, ("gone", 1): -1}
        assert talk.offsets() == {}

    @pytest.mark.parametrize("version", [1, 2, 5, 7])
    def test_one_group_in_old_versions(self, talk: Conversation, version: int) -> None:
        talk.commit_code(5)
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
        answer: Answer[object] = Answer()
        talk.coordinator.offset_fetch(talk.context("fetch", version), request, answer)
        response = answer.response
        assert response.error_code == 0  # type: ignore[attr-defined]
        (topic,) = response.topics  # type: ignore[attr-defined]
        assert [(each.committed_offset, each.metadata) for each in topic.partitions] == [(5, ""), (-1, "")]

    def test_all_topics_by_null(self, talk: Conversation) -> None:
        talk.commit({("u", 1): 5, ("t", 2): 6, ("t", 0): 7})
        answer: Answer[object] = Answer()
        request = OffsetFetchRequest(group_id="g", topics=None)
        talk.coordinator.offset_fetch(talk.context("fetch", 7), request, answer)
        topics = answer.response.topics  # type: ignore[attr-defined]
        assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in topics] == [
            ("t", [0, 2]),
            ("u", [1]),
        ]

    def test_several_groups_each_with_its_answer(self, talk: Conversation) -> None:
        talk.commit_code(5, group="one")
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("one", "two")]
        )
        answer: Answer[object] = Answer()
        talk.coordinator.offset_fetch(talk.context("fetch", 8), request, answer)
        groups = answer.response.groups  # type: ignore[attr-defined]
        assert [(group.group_id, len(group.topics)) for group in groups] == [("one", 1), ("two", 0)]

    def test_no_groups(self, talk: Conversation) -> None:
        answer: Answer[object] = Answer()
        talk.coordinator.offset_fetch(talk.context("fetch", 8), OffsetFetchRequest(groups=[]), answer)
        assert answer.response.groups == []  # type: ignore[attr-defined]

    @pytest.mark.parametrize("version", [1, 2, 7, 8])
    def test_where_each_version_carries_the_error(self, talk: Conversation, version: int) -> None:
        talk.runtime.resign(0)
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
        answer: Answer[object] = Answer()
        talk.coordinator.offset_fetch(
            talk.context("fetch", version), OffsetFetchRequest(group_id="g", topics=topics, groups=groups), answer
        )
        response = answer.response
        if version == 1:
            found = response.topics[0].partitions[0].error_code  # type: ignore[attr-defined]
        elif version < 8:
            found = response.error_code  # type: ignore[attr-defined]
        else:
            found = response.groups[0].error_code  # type: ignore[attr-defined]
        assert found == ErrorCode.NOT_COORDINATOR

    def test_by_topic_id(self, talk: Conversation) -> None:
        known = talk.image.topics["t"].topic_id
        talk.commit_code(5)
        asked = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]) for topic_id in (b"?" * 16, known)]
        for topics in (asked, None):
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
            answer: Answer[object] = Answer()
            talk.coordinator.offset_fetch(talk.context("fetch", 10), request, answer)
            found = {
                topic.topic_id: (topic.partitions[0].committed_offset, topic.partitions[0].error_code)
                for topic in answer.response.groups[0].topics  # type: ignore[attr-defined]
            }
            expected = {known: (5, 0)}
            if topics is not None:
                expected[b"?" * 16] = (-1, ErrorCode.UNKNOWN_TOPIC_ID)
            assert found == expected

    def test_offsets_of_a_recreated_topic_are_ignored(self, talk: Conversation) -> None:
        talk.commit_code(5)
        talk.image = image_of("t", "u", generation=2)
        known = talk.image.topics["t"].topic_id
        asked = [OffsetFetchRequestTopics(topic_id=known, partition_indexes=[0])]
        answer: Answer[object] = Answer()
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)])
        talk.coordinator.offset_fetch(talk.context("fetch", 10), request, answer)
        (topic,) = answer.response.groups[0].topics  # type: ignore[attr-defined]
        assert topic.partitions[0].committed_offset == -1


class TestDelete:
    def codes(self, response: object) -> list[int]:
        return [each.error_code for topic in response.topics for each in topic.partitions]  # type: ignore[attr-defined]

    def test_of_an_empty_group(self, talk: Conversation) -> None:
        talk.commit({("t", 0): 1, ("t", 1): 2, ("u", 0): 3})
        response = talk.delete_offsets(("t", 0), ("t", 2), ("gone", 0))
        assert self.codes(response) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert talk.offsets() == {("t", 1): 2, ("u", 0): 3}
        talk.start()
        assert talk.offsets() == {("t", 1): 2, ("u", 0): 3}

    def test_only_of_topics_that_no_consumer_reads(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1, protocols={"range": subscription("t")})
        talk.commit({("t", 0): 1, ("u", 0): 1}, member_id=leader, generation=1)
        response = talk.delete_offsets(("t", 0), ("u", 0))
        assert self.codes(response) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
        assert talk.offsets() == {("t", 0): 1}

    def test_of_consumers_with_undecodable_metadata(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1, protocols={"range": b"?"})
        talk.commit({("u", 0): 1}, member_id=leader, generation=1)
        assert self.codes(talk.delete_offsets(("u", 0))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]

    def test_of_a_group_that_is_not_of_consumers(self, talk: Conversation) -> None:
        talk.stable_group(1, protocol_type="connect", protocols={"x": b""})
        assert talk.delete_offsets(("t", 0)).error_code == ErrorCode.NON_EMPTY_GROUP

    def test_of_no_group(self, talk: Conversation) -> None:
        assert talk.delete_offsets(("t", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert talk.delete_offsets(("t", 0), group="").error_code == ErrorCode.INVALID_GROUP_ID

    def test_of_a_deleted_topic(self, talk: Conversation) -> None:
        old = talk.image.topics["t"].topic_id
        talk.commit({("t", 0): 1, ("u", 0): 2})
        talk.commit({("t", 1): 1}, group="h")
        talk.image = image_of("t", "u", generation=2)
        talk.commit({("t", 3): 8})
        talk.coordinator.image_changed(frozenset(), [("t", old)])
        talk.time.settle()
        assert talk.offsets() == {("t", 3): 8, ("u", 0): 2}
        assert talk.offsets(group="h") == {}


class TestExpiry:
    """KIP-211; retention is seven days, the check comes every ten minutes."""

    def test_a_simple_group_by_each_commit(self, talk: Conversation) -> None:
        talk.commit({("t", 0): 1})
        talk.time.advance(3 * DAY_S)
        talk.commit({("t", 1): 2})
        talk.time.advance(4 * DAY_S + 600)
        assert talk.offsets() == {("t", 1): 2}
        talk.time.advance(3 * DAY_S + 600)
        assert talk.offsets() == {}
        assert talk.list_groups() == []

    def test_an_empty_group_from_the_time_it_became_empty(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1, session_ms=1_800_000)
        talk.commit_code(5, member_id=leader, generation=1)
        for _ in range(8 * 24 * 4):
            talk.time.advance(900)
            talk.heartbeat(leader, 1)
        assert talk.offsets() == {("t", 0): 5}
        talk.leave(leader)
        talk.time.advance(7 * DAY_S - 700)
        assert talk.offsets() == {("t", 0): 5}
        talk.time.advance(1400)
        assert talk.offsets() == {}
        assert talk.list_groups() == []

    def test_a_topic_without_subscribers(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1, session_ms=1_800_000)
        talk.commit({("t", 0): 5, ("u", 0): 6}, member_id=leader, generation=1)
        for _ in range(8 * 24 * 4):
            talk.time.advance(900)
            talk.heartbeat(leader, 1)
        assert talk.offsets() == {("t", 0): 5}
        assert talk.describe().group_state == "Stable"

    def test_live_group_of_other_type_retains_offsets(self, talk: Conversation) -> None:
        options: dict[str, Any] = {"protocol_type": "x", "protocols": {"p": b""}, "session_ms": 1_800_000}
        (leader,) = talk.stable_group(1, **options)
        talk.commit_code(5, member_id=leader, generation=1)
        for _ in range(8 * 24 * 4):
            talk.time.advance(900)
            talk.heartbeat(leader, 1)
        assert talk.offsets() == {("t", 0): 5}

    def test_the_longest_retention(self, talk: Conversation) -> None:
        assert talk.commit_code(5, retention_ms=2**63 - 1, version=4) == ErrorCode.NONE

    def test_retention_requested_by_the_client(self, talk: Conversation) -> None:
        talk.commit({("t", 0): 5}, retention_ms=60_000, version=4)
        talk.time.advance(601)
        assert talk.offsets() == {}

    def test_empty_group_without_offsets_is_deleted(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.leave(leader)
        assert talk.list_groups() == ["g"]
        talk.time.advance(600)
        assert talk.list_groups() == []
        talk.start()
        assert talk.list_groups() == []

    def test_after_a_restart_too(self, talk: Conversation) -> None:
        talk.commit_code(5)
        talk.time.advance(6 * DAY_S)
        talk.start()
        talk.time.advance(1 * DAY_S + 600)
        assert talk.offsets() == {}
        assert [record.value for record in talk.records() if isinstance(record.key, OffsetPlace)][-1] is None

    def test_many_groups_are_looked_at_in_slices(self, talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
        groups = size(75, 750)
        monkeypatch.setattr(shard, "EXPIRATION_SLICE_OFFSETS", size(200, 2_000))
        for group in range(groups):
            for topic in ("t", "u"):
                talk.commit({(topic, partition): 1 for partition in range(4)}, group=f"g{group}")
        assert len(talk.shard.offsets) == 8 * groups
        operations = talk.runtime.statistics.operations[TIMER]
        talk.time.advance(600)
        assert talk.runtime.statistics.operations[TIMER] - operations == 4
        talk.time.advance(7 * DAY_S)
        assert len(talk.shard.offsets) == 0
        assert talk.list_groups() == []

    def test_waiting_member_retains_the_group(self, make_talk: Callable[..., Conversation]) -> None:
        talk = make_talk(group_initial_rebalance_delay_ms=700_000)
        answer = talk.join(version=3, rebalance_ms=1_000_000, session_ms=1_000_000)
        talk.time.advance(599)
        late = talk.join(version=3, rebalance_ms=1_000_000, session_ms=1_000_000)
        talk.time.advance(2)
        assert talk.list_groups() == ["g"]
        assert late.pending
        assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_unloaded_shard_releases_everything(talk: Conversation) -> None:
    for group in ("a", "b"):
        talk.commit_code(5, group=group)
    shard = talk.shard
    assert (len(shard.offsets), len(shard.context.groups)) == (2, 2)
    talk.runtime.resign(0)
    talk.time.settle()
    assert not shard.context.groups
    assert shard.offsets.group_tombstones("a") == shard.offsets.group_tombstones("b") == []
