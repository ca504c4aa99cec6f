"""A controller without a log: brokers call its pure handlers, and returned records are applied at once.

Every step ends with `check`, which verifies the invariants of any image after any request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

import pytest

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.feature_levels import ELIGIBLE_LEADER_REPLICAS_VERSION, NEW_CLUSTER_LEVELS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.features import bootstrap_records
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.controller.reassignments import is_reassigning
from ottla.controller.registration import (
    fence_silent,
    handle_broker_heartbeat,
    handle_broker_registration,
    handle_unregister_broker,
)
from ottla.controller.replication import elections_of_leaderless, handle_alter_partition
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.controller.topics import handle_create_topics
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import (
    EMPTY_IMAGE,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    MetadataImage,
    PartitionImage,
    metadata_level,
)
from ottla.metadata.records import SUPPORTED_FEATURES, ApiMessageAndVersion, at_level, decode_record, encode_record
from ottla.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    RegistrationFeature,
    RegistrationListener,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.security.sasl.tokens import TokenIndex

CLUSTER_ID = "a-cluster-of-tests-0000"
SESSION_MS = 9000


class World:
    """The controller's image and soft state, with brokers that the test controls."""

    def __init__(self, levels: Mapping[str, int] = NEW_CLUSTER_LEVELS, /, **properties: str) -> None:
        self.config, _ = BrokerConfig.parse({name.replace("_", "."): text for name, text in properties.items()})
        self.image: MetadataImage = EMPTY_IMAGE
        self.now_ms = 0
        self.heartbeats = BrokerHeartbeats(SESSION_MS)
        self.epochs: dict[int, int] = {}
        self._numbers = count(1)
        self._incarnations = count(1)
        self.elr_enabled = ELIGIBLE_LEADER_REPLICAS_VERSION in levels
        self.apply(bootstrap_records(levels))

    # -- the log -----------------------------------------------------------------------------------------------------

    def apply(self, records: Sequence[ApiMessageAndVersion]) -> None:
        before = self.image
        delta = MetadataDelta(before)
        for record in at_level(records, metadata_level(before)):
            delta.replay(decode_record(encode_record(record)).message)
        self.image = delta.apply(before.offset + len(records), 1)[0]
        check_step(before, self.image)
        if self.elr_enabled:
            self.check_departures(before)

    def check_departures(self, before: MetadataImage) -> None:
        """No replica with all committed records is dropped from a partition when too few others have them."""
        for topic_id, topic in self.image.topics_by_id.items():
            old_topic = before.topics_by_id.get(topic_id)
            for index, new in topic.partitions.items():
                old = old_topic.partitions.get(index) if old_topic is not None else None
                if old is None or new.leader_recovery_state == RECOVERING:
                    continue
                dropped = {
                    broker_id
                    for broker_id in {*old.isr, *old.eligible_leader_replicas} - set(new.replicas)
                    # A replica that returned from an unclean stop may be empty.
                    if self.image.brokers.get(broker_id) == before.brokers.get(broker_id)
                }
                kept = {*new.isr, *new.eligible_leader_replicas}
                min_isr = self.context().min_isr(self.image, topic.name, new)
                where = f"{topic.name}-{index}: {old} to {new}"
                if dropped:
                    assert len(kept) >= min(min_isr, len(kept | dropped)), where

    def context(self) -> ControllerContext:
        return ControllerContext(
            config=self.config,
            new_uuid=lambda: next(self._numbers).to_bytes(16, "big"),
            cluster_id=CLUSTER_ID,
            heartbeats=self.heartbeats,
            now_ms=self.now_ms,
            time_ms=0,
            tokens=TokenIndex(""),
            next_offset=self.image.offset + 1,
            kraft_version=1,
            check_voters=lambda: None,
        )

    def run(self, operation: Callable[[MetadataImage, ControllerContext], ControllerResult[Any]]) -> Any:
        """Run an operation to its end, slice by slice."""
        for _ in range(100):
            result = operation(self.image, self.context())
            self.apply(result.records)
            if not result.again:
                if self.elr_enabled:
                    check_image(self.image)
                return result.response
        raise AssertionError("an operation does not end")

    def upkeep(self) -> None:
        """The controller's work after broker changes."""
        for _ in range(100):
            records, complete = elections_of_leaderless(self.image, self.context(), 10_000)
            self.apply(records)
            if complete:
                return
        raise AssertionError("elections do not end")

    # -- brokers -----------------------------------------------------------------------------------------------------

    def register(self, broker_id: int, *, clean: bool = False, rack: str | None = None, **overrides: Any) -> int:
        """Register a new incarnation; `clean`: after a clean stop of the registered one. Returns the broker epoch."""
        existing = self.image.brokers.get(broker_id)
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": next(self._incarnations).to_bytes(16, "big"),
            "listeners": [RegistrationListener(name="PLAINTEXT", host="h", port=9092)],
            "features": [
                RegistrationFeature(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            "rack": rack,
            "log_dirs": [bytes([broker_id & 0xFF]) * 16],
            "previous_broker_epoch": existing.broker_epoch if clean and existing is not None else -1,
        } | overrides
        request = BrokerRegistrationRequest(**fields)
        response = self.run(lambda image, context: handle_broker_registration(image, request, context))
        self.epochs[broker_id] = response.broker_epoch
        return int(response.broker_epoch)

    def heartbeat(self, broker_id: int, *, epoch: int | None = None, offset: int | None = None, **wants: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id] if epoch is None else epoch,
            current_metadata_offset=self.image.offset if offset is None else offset,
            **wants,
        )
        response = self.run(lambda image, context: handle_broker_heartbeat(image, request, context))
        self.upkeep()
        return response

    def join(self, *broker_ids: int, **options: Any) -> None:
        """Register and unfence."""
        for broker_id in broker_ids:
            self.register(broker_id, **options)
            assert not self.heartbeat(broker_id).is_fenced

    def silence(self, *broker_ids: int) -> None:
        """These brokers are silent until their sessions end; all others send heartbeats."""
        self.now_ms += SESSION_MS - 1
        for broker_id, broker in self.image.brokers.items():
            if broker_id not in broker_ids and not broker.fenced:
                self.heartbeat(broker_id)
        self.now_ms += 1
        self.fence_silent()

    def _fence(self, broker_id: int) -> None:
        self.run(lambda image, context: fence_silent(image, broker_id, context))

    def fence_silent(self) -> None:
        for broker in self.heartbeats.stale(self.image, self.now_ms):
            self._fence(broker.broker_id)
        self.upkeep()

    def shut_down(self, broker_id: int) -> None:
        """Run a controlled shutdown, with the required heartbeats of all brokers."""
        for _ in range(20):
            if self.heartbeat(broker_id, want_shut_down=True).should_shut_down:
                return
            for other, broker in self.image.brokers.items():
                if not broker.fenced and other != broker_id:
                    self.heartbeat(other)
        raise AssertionError("a controlled shutdown does not end")

    def unregister(self, broker_id: int) -> Any:
        request = UnregisterBrokerRequest(broker_id=broker_id)
        return self.run(lambda image, context: handle_unregister_broker(image, request, context))

    # -- topics ------------------------------------------------------------------------------------------------------

    def create(self, name: str, *placements: Sequence[int], **configs: str) -> None:
        """A topic with these replicas."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(placements)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic])
        response = self.run(lambda image, context: handle_create_topics(image, request, context))
        assert response.topics[0].error_code == 0, response

    def partition(self, name: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def alter_partition(
        self, isr: Sequence[int], name: str = "t", index: int = 0, *, version: int = 3, **overrides: Any
    ) -> Any:
        """Request this ISR as the leader; return the result of the partition."""
        topic = self.image.topics[name]
        partition = topic.partitions[index]
        leader = overrides.pop("broker_id", partition.leader)
        broker_epoch = overrides.pop("broker_epoch", self.epochs.get(leader, -1))
        members = overrides.pop("members", None) or [(member, self.epochs.get(member, -1)) for member in isr]
        fields = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": RECOVERED,
        } | overrides
        if version >= 3:
            fields["new_isr_with_epochs"] = [BrokerState(broker_id=one, broker_epoch=epoch) for one, epoch in members]
        else:
            fields["new_isr"] = list(isr)
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=broker_epoch,
            topics=[AlterPartitionTopic(topic_id=topic.topic_id, partitions=[AlterPartitionPartition(**fields)])],
        )
        response = self.run(lambda image, context: handle_alter_partition(image, request, version, context))
        return response.topics[0].partitions[0]


def refused(code: ErrorCode, call: Callable[[], Any]) -> str:
    """The message of the KafkaError that `call` raises."""
    with pytest.raises(KafkaError) as caught:
        call()
    assert caught.value.code is code
    return caught.value.message


# -- invariants --------------------------------------------------------------------------------------------------------


def check_image(image: MetadataImage) -> None:
    """Check any image between two operations."""
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            where = f"{topic.name}-{index}: {partition}"
            replicas, isr, elr = partition.replicas, partition.isr, partition.eligible_leader_replicas
            assert replicas, where
            assert len(set(replicas)) == len(replicas), where
            assert set(isr) <= set(replicas), where
            assert set(elr) <= set(replicas), where
            assert not set(isr) & set(elr), where
            assert set(partition.adding_replicas) <= set(replicas), where
            assert set(partition.removing_replicas) <= set(replicas), where
            if partition.leader != NO_LEADER:
                assert partition.leader in isr, where
                leader = image.brokers.get(partition.leader)
                assert leader is not None, where
                assert not leader.fenced, where
            for member in isr:
                broker = image.brokers.get(member)
                assert broker is not None, where
                assert not broker.fenced, where


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """Check two consecutive images: epochs rise, and only with a change that requires it."""
    for topic_id, topic in after.topics_by_id.items():
        old_topic = before.topics_by_id.get(topic_id)
        for index, partition in topic.partitions.items():
            old = old_topic.partitions.get(index) if old_topic is not None else None
            if old is None or old is partition:
                continue
            where = f"{topic.name}-{index}: {old} to {partition}"
            assert partition.partition_epoch > old.partition_epoch, where
            assert partition.leader_epoch >= old.leader_epoch, where
            if partition.leader != old.leader:
                assert partition.leader_epoch > old.leader_epoch, where
            check_election(old, partition, where)


def check_election(old: PartitionImage, new: PartitionImage, where: str) -> None:
    """A new leader has all committed records, or is marked as RECOVERING."""
    if new.leader in (old.leader, NO_LEADER):
        return
    # The leader added it to the ISR, which completed a reassignment that removed the leader itself.
    brought_in = is_reassigning(old) and not is_reassigning(new) and old.leader not in new.replicas
    clean = (
        brought_in
        or new.leader in old.isr
        or (new.leader in old.eligible_leader_replicas and not new.leader_recovery_state)
    )
    if not clean:
        assert new.leader_recovery_state != RECOVERED, where
        assert new.isr == (new.leader,), where


class CountedText(str):
    """Text that counts its comparisons."""

    __slots__ = ()
    compared: ClassVar[int] = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedText.compared += 1
        return str.__eq__(self, other)

    def split(self, separator: Any = None, most: Any = -1) -> list[str]:
        return [CountedText(part) for part in str.split(self, separator, most)]

    def strip(self, characters: str | None = None) -> CountedText:
        return CountedText(str.strip(self, characters))
