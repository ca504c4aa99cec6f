"""Offsets of transactions: pending until the marker, fenced by generation and member epoch (KIP-98, KIP-447)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.offsets.committed_offset import pack
from ottla.coordinator.group.records import GroupRecord, OffsetPlace, encode_record
from ottla.coordinator.runtime import Transaction
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.record.builder import RecordData, build_batch

from ..conversation import Conversation, image_of

DAY_S = 24 * 60 * 60
T0 = ("t", 0)


class TestMarker:
    def test_commits(self, talk: Conversation) -> None:
        talk.commit({T0: 1})
        assert talk.txn_code(5) == ErrorCode.NONE
        assert talk.offsets(T0) == {T0: 1}
        assert talk.unstable(T0, ("t", 1)) == {T0}
        assert talk.end_transaction() == ErrorCode.NONE
        assert talk.offsets(T0) == {T0: 5}
        assert talk.unstable(T0) == set()
        assert len(talk.shard.offsets) == 1

    def test_aborts(self, talk: Conversation) -> None:
        talk.commit({T0: 1})
        talk.txn_commit({T0: 5, ("u", 1): 6})
        assert talk.end_transaction(committed=False) == ErrorCode.NONE
        assert talk.offsets() == {T0: 1}
        assert talk.unstable(T0, ("u", 1)) == set()

    def test_a_group_of_pending_offsets_only(self, talk: Conversation) -> None:
        talk.txn_code(5)
        assert talk.list_groups() == ["g"]
        assert talk.offsets() == {}
        assert talk.unstable() == set(), "a fetch of all returns committed offsets"
        assert talk.unstable(T0) == {T0}
        talk.end_transaction()
        assert talk.offsets() == {T0: 5}

    def test_one_producer_for_all_partitions_of_several_groups(self, talk: Conversation) -> None:
        """KIP-447."""
        offsets = {(topic, partition): 10 + partition for topic in "tu" for partition in range(4)}
        for group in ("g", "h"):
            talk.txn_commit(offsets, group=group)
        talk.end_transaction()
        assert talk.offsets() == talk.offsets(group="h") == offsets

    def test_the_last_of_a_transaction_counts(self, talk: Conversation) -> None:
        talk.txn_code(5)
        talk.txn_code(4)
        talk.end_transaction()
        assert talk.offsets() == {T0: 4}

    def test_a_commit_of_a_consumer_meanwhile_is_newer(self, talk: Conversation) -> None:
        talk.txn_code(5)
        talk.commit({T0: 9})
        assert talk.unstable(T0) == {T0}
        talk.end_transaction()
        assert talk.offsets() == {T0: 9}

    def test_a_later_offset_of_the_transaction_wins(self, talk: Conversation) -> None:
        talk.txn_code(5)
        talk.commit({T0: 9})
        talk.txn_code(6)
        talk.end_transaction()
        assert talk.offsets() == {T0: 6}

    def test_newer_record_of_two_producers_wins(self, talk: Conversation) -> None:
        for first, second in ((1, 2), (2, 1)):
            talk.txn_code(5, producer_id=1)
            talk.txn_code(6, producer_id=2)
            talk.end_transaction(first)
            assert talk.unstable(T0) == {T0}
            talk.end_transaction(second)
            assert talk.offsets() == {T0: 6}

    def test_aborted_offset_supersedes_nothing(self, talk: Conversation) -> None:
        talk.txn_code(5, producer_id=1)
        talk.txn_code(6, producer_id=2)
        talk.end_transaction(2, committed=False)
        talk.end_transaction(1)
        assert talk.offsets() == {T0: 5}

    def test_without_pending_offsets_changes_nothing(self, talk: Conversation) -> None:
        talk.commit({T0: 1})
        assert talk.end_transaction() == ErrorCode.NONE
        assert talk.offsets() == {T0: 1}

    def test_failed_marker_leaves_offsets_pending(self, talk: Conversation) -> None:
        talk.txn_code(5)
        talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert talk.end_transaction() == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (talk.offsets(), talk.unstable(T0)) == ({}, {T0})
        talk.end_transaction()
        assert talk.offsets() == {T0: 5}

    def test_stable_fetch_waits_for_uncommitted_writes(self, talk: Conversation) -> None:
        talk.log.commits = False
        talk.coordinator.txn_offset_commit(talk.context("txn", None), _request("g", ("t", 0, 5)), lambda response: None)
        answer = talk.fetch(T0, require_stable=True)
        assert answer.pending, "until the offsets it has seen are committed"
        talk.log.commit(0, 1)
        (group,) = answer.response.groups
        assert group.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        talk.log.commits = True


class TestRestart:
    def test_pending_offsets_are_restored(self, talk: Conversation) -> None:
        talk.commit({T0: 1})
        talk.txn_commit({T0: 5, ("u", 0): 6}, 1)
        talk.txn_commit({("t", 1): 7}, 2)
        talk.txn_commit({("t", 2): 8}, 3)
        talk.end_transaction(2)
        talk.end_transaction(3, committed=False)
        talk.start()
        assert talk.offsets() == {T0: 1, ("t", 1): 7}
        assert talk.unstable(T0, ("t", 1), ("t", 2), ("u", 0)) == {T0, ("u", 0)}
        talk.end_transaction(1)
        assert talk.offsets() == {T0: 5, ("t", 1): 7, ("u", 0): 6}

    def test_superseding_offsets_are_restored(self, talk: Conversation) -> None:
        talk.txn_code(5)
        talk.commit({T0: 9})
        talk.start()
        talk.end_transaction()
        assert talk.offsets() == {T0: 9}
        talk.start()
        assert talk.offsets() == {T0: 9}

    def test_unloaded_shard_releases_everything(self, talk: Conversation) -> None:
        talk.txn_commit({T0: 5, ("u", 0): 6})
        shard = talk.shard
        talk.runtime.resign(0)
        talk.time.settle()
        assert shard.offsets.group_tombstones("g") == []
        assert shard.offsets.topics_deleted([("t", bytes(16))]).records == []


class TestDeletion:
    def test_of_the_group(self, talk: Conversation) -> None:
        talk.commit({T0: 1})
        talk.txn_commit({T0: 5, ("u", 0): 6})
        assert talk.delete_groups("g") == {"g": ErrorCode.NONE}
        assert talk.unstable(T0, ("u", 0)) == set()
        talk.end_transaction()
        assert talk.list_groups() == []
        talk.start()
        assert talk.list_groups() == []

    def test_of_an_offset_that_is_pending_only(self, talk: Conversation) -> None:
        talk.txn_commit({T0: 5, ("t", 1): 6})
        talk.txn_commit({T0: 7}, 8)
        assert talk.delete_offsets(T0).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert talk.unstable(T0, ("t", 1)) == {("t", 1)}
        for producer_id in (7, 8):
            talk.end_transaction(producer_id)
        assert talk.offsets() == {("t", 1): 6}

    def test_of_a_topic(self, talk: Conversation) -> None:
        old = talk.image.topics["t"].topic_id
        talk.commit({T0: 1})
        talk.txn_commit({T0: 5, ("t", 1): 6, ("u", 0): 7})
        talk.image = image_of("t", "u", generation=2)
        talk.txn_commit({("t", 3): 8})
        talk.coordinator.image_changed(frozenset(), [("t", old)])
        talk.time.settle()
        assert talk.unstable(T0, ("t", 1), ("t", 3), ("u", 0)) == {("t", 3), ("u", 0)}
        talk.end_transaction()
        assert talk.offsets() == {("t", 3): 8, ("u", 0): 7}

    def test_a_topic_has_one_tombstone_for_each_partition(self, talk: Conversation) -> None:
        talk.commit({T0: 1})
        talk.txn_code(5)
        deleted = [("t", talk.image.topics["t"].topic_id)]
        assert len(talk.shard.offsets.topics_deleted(deleted).records) == 1

    def test_expiry_spares_them_and_their_group(self, talk: Conversation) -> None:
        talk.commit({T0: 1, ("t", 1): 2})
        talk.txn_code(5)
        talk.txn_commit({("u", 0): 6}, group="h")
        talk.commit({T0: 1}, group="i")
        talk.txn_commit({("u", 0): 6}, group="i")
        talk.time.advance(8 * DAY_S)
        assert talk.offsets() == {T0: 1}
        assert talk.offsets(group="i") == {}
        assert talk.list_groups() == ["g", "h", "i"]
        talk.end_transaction(committed=False)
        talk.time.advance(600)
        assert talk.offsets() == {}
        assert talk.list_groups() == []


class TestClassicGroup:
    def test_a_member_of_the_generation(self, talk: Conversation) -> None:
        leader, follower = talk.stable_group(2)
        assert talk.txn_code(5, member_id=leader, generation=1) == ErrorCode.NONE
        assert talk.txn_code(6, member_id=follower, generation=1) == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "unknown", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation": 1, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": -1}, ErrorCode.NONE),
        ],
    )
    def test_member_checks(self, talk: Conversation, options: dict[str, Any], error: ErrorCode) -> None:
        """A producer without member id (before KIP-447) may always commit, unlike a consumer."""
        (leader,) = talk.stable_group(1)
        assert talk.txn_code(**{"member_id": leader, **options}) == error
        assert talk.unstable(T0) == ({T0} if error == ErrorCode.NONE else set())

    def test_static_members_are_fenced(self, talk: Conversation) -> None:
        (old,) = talk.static_group("i")
        talk.join(instance="i")
        assert talk.txn_code(member_id=old, generation=1, instance="i") == ErrorCode.FENCED_INSTANCE_ID

    @pytest.mark.promise("T12")
    def test_a_zombie_of_the_generation_before_is_fenced(self, talk: Conversation) -> None:
        """KIP-447: the group rebalanced, which one transaction has not noticed."""
        leader, follower = talk.stable_group(2)
        talk.leave(follower)
        answer = talk.join(leader)
        talk.time.settle()
        assert answer.response.generation_id == 2
        assert talk.txn_code(member_id=leader, generation=1) == ErrorCode.ILLEGAL_GENERATION
        assert talk.txn_code(member_id=leader, generation=2) == ErrorCode.NONE, "also before its assignment"
        assert talk.commit_code(member_id=leader, generation=2) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_does_not_extend_the_session(self, talk: Conversation) -> None:
        (leader,) = talk.stable_group(1)
        talk.time.advance(6)
        assert talk.txn_code(member_id=leader, generation=1) == ErrorCode.NONE
        talk.time.advance(6)
        assert talk.txn_code(member_id=leader, generation=1) == ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize(("version", "error"), [(5, "ILLEGAL_GENERATION"), (6, "GROUP_ID_NOT_FOUND")])
    def test_a_missing_group(self, talk: Conversation, version: int, error: str) -> None:
        assert talk.txn_code(member_id="m", generation=1, version=version) == ErrorCode[error]


class TestConsumerGroup:
    """KIP-848, and KIP-1251 for commits of an epoch of the past."""

    def heartbeat(
        self, talk: Conversation, epoch: int, owned: list[int] | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        topic_id = talk.image.topics["t"].topic_id
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else [TopicPartitions(topic_id=topic_id, partitions=owned or [])],
        )
        response: ConsumerGroupHeartbeatResponse = talk._send(
            talk.coordinator.consumer_group_heartbeat, talk.context("fetch", 1), request
        ).response
        assert response.error_code == 0, response
        return response

    def joined(self, talk: Conversation) -> int:
        epoch = self.heartbeat(talk, 0).member_epoch
        return self.heartbeat(talk, epoch, [0, 1, 2, 3]).member_epoch

    def test_a_member_of_the_epoch(self, talk: Conversation) -> None:
        epoch = self.joined(talk)
        assert talk.txn_code(member_id="m", generation=epoch) == ErrorCode.NONE

    @pytest.mark.parametrize(("version", "error"), [(5, "ILLEGAL_GENERATION"), (6, "STALE_MEMBER_EPOCH")])
    def test_another_epoch(self, talk: Conversation, version: int, error: str) -> None:
        epoch = self.joined(talk)
        assert talk.txn_code(member_id="m", generation=epoch + 1, version=version) == ErrorCode[error]
        assert talk.txn_code(member_id="m", generation=0, version=version) == ErrorCode[error]

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"member_id": "", "generation": -1}, ErrorCode.NONE),
            ({"member_id": "", "generation": -2}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation": -1, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "n", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_member_checks(self, talk: Conversation, options: dict[str, Any], error: ErrorCode) -> None:
        self.joined(talk)
        assert talk.txn_code(**options) == error


class TestWire:
    def test_results_are_per_partition(self, talk: Conversation) -> None:
        response = talk.txn_commit({T0: 1, ("t", 9): 2, ("v", 0): 3, ("u", 1): 4}).response
        assert {
            (topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        } == {
            T0: ErrorCode.NONE,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("v", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("u", 1): ErrorCode.NONE,
        }
        assert talk.unstable(T0, ("u", 1)) == {T0, ("u", 1)}

    def test_unknown_partitions_are_reported_with_an_error(self, talk: Conversation) -> None:
        talk.log.verification_failures.append(KafkaError(ErrorCode.INVALID_TXN_STATE))
        transactional = talk.txn_commit({T0: 1, ("t", 9): 2}).response
        plain = talk.commit({T0: 1, ("t", 9): 2}, group="h", generation=4, member_id="m").response
        for response, refusal in ((transactional, "INVALID_TXN_STATE"), (plain, "GROUP_ID_NOT_FOUND")):
            assert [ErrorCode(each.error_code).name for each in response.topics[0].partitions] == [
                refusal,
                "UNKNOWN_TOPIC_OR_PARTITION",
            ]

    def test_topics_by_id(self, talk: Conversation) -> None:
        request = _request("g", ("", 0, 5), ("", 1, 6))
        request.topics[0].topic_id = talk.image.topics["t"].topic_id
        request.topics[1].topic_id = b"x" * 16
        response = talk._send(talk.coordinator.txn_offset_commit, talk.context("txn", 6), request).response
        assert [(topic.topic_id, topic.partitions[0].error_code) for topic in response.topics] == [
            (request.topics[0].topic_id, ErrorCode.NONE),
            (request.topics[1].topic_id, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert talk.unstable(T0) == {T0}

    def test_metadata_that_is_too_long(self, talk: Conversation) -> None:
        assert talk.txn_code(metadata="m" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert talk.txn_code(metadata="m" * 4096) == ErrorCode.NONE

    def test_nothing_to_commit(self, talk: Conversation) -> None:
        assert talk.txn_commit({}).response.topics == []
        assert talk.log.verified == []

    def test_a_group_without_a_name(self, talk: Conversation) -> None:
        assert talk.txn_code(group="") == ErrorCode.INVALID_GROUP_ID

    @pytest.mark.parametrize(("version", "add"), [(0, False), (4, False), (5, True), (6, True)])
    def test_version_selects_the_adder_of_the_partition(self, talk: Conversation, version: int, add: bool) -> None:
        talk.txn_code(version=version)
        assert talk.log.verified == [(0, Transaction("t7", 7, 3, add=add))]

    @pytest.mark.parametrize(
        ("version", "refused", "expected"),
        [
            (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
            (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (2, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (5, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
            (5, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
            (5, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ],
    )
    def test_refusals_of_the_transaction_s_coordinator(
        self, talk: Conversation, version: int, refused: ErrorCode, expected: ErrorCode
    ) -> None:
        talk.log.verification_failures.append(KafkaError(refused))
        assert talk.txn_code(version=version) == expected
        talk.log.append_failures.append(KafkaError(refused))
        assert talk.txn_code(version=version) == expected
        assert talk.log.end[0] == 0

    def test_commit_larger_than_a_batch(self, talk: Conversation) -> None:
        talk.log.batch_bytes = 100
        assert talk.txn_code(metadata="m" * 100) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert talk.unstable(T0) == set()


def _request(group: str, *offsets: tuple[str, int, int]) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="t7",
        group_id=group,
        producer_id=7,
        producer_epoch=3,
        member_id="",
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name, partitions=[TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)]
            )
            for name, index, offset in offsets
        ],
    )


def test_offset_by_an_idempotent_producer_counts_at_once(talk: Conversation) -> None:
    """E.g. a tool that restores offsets: no marker follows, so pending offsets would stay pending for ever."""
    key, value = encode_record(GroupRecord(OffsetPlace("g", "t", 0), pack(5, -1, 7, -1, bytes(16), "")))
    talk.log.put(0, build_batch([RecordData(0, key, value)], producer_id=7, producer_epoch=0, base_sequence=0))
    talk.log.high_watermark[0] = talk.log.end[0]
    talk.start()
    assert talk.offsets(("t", 0)) == {("t", 0): 5}
    assert not talk.unstable(("t", 0))
