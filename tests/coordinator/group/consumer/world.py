"""Consumer groups of one shard on virtual time, without a runtime: records are encoded, decoded and replayed at once.

The log is stored compacted, so that a test can start a second shard from it at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext, ShardContext
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.records import GroupRecord, decode_record, encode_record
from ottla.coordinator.group.shard import GroupCoordinatorShard
from ottla.coordinator.runtime import CoordinatorResult, CoordinatorTimer
from ottla.metadata.image import BrokerImage, ConfigResource, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.timeline import SnapshotRegistry

from ...runtime.harness import VirtualTime

GROUP = "group"
CLIENT = RequestContext("client", "/127.0.0.1", 1)
V0 = RequestContext("client", "/127.0.0.1", 0)


STARTS_OVER = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    # All members were gone for so long that the group was deleted: clients fail and are restarted.
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class SeededRng:
    def __init__(self) -> None:
        self._random = Random(7)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


def topic_id(name: str) -> Uuid:
    return name.encode().ljust(16, b"\0")


def image_of(topics: Mapping[str, int], offset: int, racks: Sequence[str | None] = (None,)) -> MetadataImage:
    """One broker for each rack; partition p is on broker p modulo their number."""
    images = {
        name: TopicImage(
            name,
            topic_id(name),
            {
                partition: PartitionImage((partition % len(racks),), (partition % len(racks),), 0, 0, 0)
                for partition in range(count)
            },
        )
        for name, count in topics.items()
    }
    brokers = {
        broker_id: BrokerImage(broker_id, 0, bytes(16), (), {}, rack, False, False, ())
        for broker_id, rack in enumerate(racks)
    }
    return MetadataImage(
        offset=offset, topics=images, topics_by_id={each.topic_id: each for each in images.values()}, brokers=brokers
    )


class World:
    """One shard, its metadata, its log."""

    def __init__(self, topics: Mapping[str, int], config: GroupCoordinatorConfig | None = None) -> None:
        self.config = config or GroupCoordinatorConfig()
        self.time = VirtualTime()
        self.rng = SeededRng()
        self.topics = dict(topics)
        self.racks: Sequence[str | None] = (None,)
        self.image = image_of(topics, 1)
        self.log: dict[bytes, bytes | None] = {}
        self.appends = True
        """False: writes fail."""
        self.commits = True
        """False: writes time out and are committed later."""
        self.uncommitted: list[Callable[[KafkaError | None], None]] | None = None
        """A list: callbacks of writes are queued here until they are committed."""
        self.last_records: list[GroupRecord] = []
        self.timer_records: list[GroupRecord] = []
        self.start()

    def start(self) -> None:
        """Load a new shard from the log, as after a restart."""
        self.registry = SnapshotRegistry()
        self.timer = CoordinatorTimer(self.time, self.time, self._timer_operation)
        self.shard = GroupCoordinatorShard(
            ShardContext(
                config=lambda: self.config,
                image=lambda: self.image,
                clock=self.time,
                rng=self.rng,
                registry=self.registry,
                timer=self.timer,
            )
        )
        self.offset = 0
        self.registry.snapshot(0)
        for key, value in self.log.items():
            self._replay(key, value)
        self.shard.loaded()

    def restart(self) -> None:
        """Unload the old shard first."""
        self.timer.cancel_all()
        self.shard.unloaded()
        self.start()

    # -- operations ----------------------------------------------------------------------------------------------------

    def run(self, operation: Callable[[], CoordinatorResult[GroupRecord, Any]]) -> Any:
        """Execute a write operation like the runtime."""
        result = operation()
        if not self.appends and result.records:
            self.registry.revert_to(self.offset)
            if result.appended is not None:
                result.appended(KafkaError(ErrorCode.NOT_COORDINATOR))
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        self.last_records = list(result.records)
        for record in result.records:
            key, value = encode_record(record)
            if result.replay:
                self._replay(key, value)
            self.log.pop(key, None)
            if value is not None:
                self.log[key] = value
        self._appended(0 if result.replay else len(result.records))
        error = None if self.commits or not result.records else KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if result.appended is not None and self.uncommitted is not None:
            self.uncommitted.append(result.appended)
        elif result.appended is not None:
            result.appended(error)
        if error is not None:
            raise error
        return result.response

    def _replay(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        assert record is not None
        self.shard.replay(self.offset, record, -1, -1)
        self._appended(1)

    def _appended(self, records: int) -> None:
        self.offset += records
        self.registry.snapshot(self.offset)
        self.registry.delete_up_to(self.offset)

    def _timer_operation(
        self, operation: Callable[[], CoordinatorResult[Any, Any]], done: Callable[[Any, KafkaError | None], None]
    ) -> None:
        try:
            response = self.run(operation)
        except KafkaError as error:
            done(None, error)
            return
        self.timer_records += self.last_records
        done(response, None)

    def heartbeat(self, context: RequestContext = CLIENT, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Raises KafkaError."""
        request = ConsumerGroupHeartbeatRequest(group_id=fields.pop("group_id", GROUP), **fields)
        response: ConsumerGroupHeartbeatResponse = self.run(lambda: self.shard.consumer.heartbeat(context, request))
        return response

    def join(self, member_id: str, topics: Sequence[str] = ("foo",), **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("subscribed_topic_names", list(topics))
        return self.heartbeat(
            member_id=member_id, member_epoch=0, rebalance_timeout_ms=30_000, topic_partitions=[], **fields
        )

    # -- metadata ------------------------------------------------------------------------------------------------------

    def change_topics(self, topics: Mapping[str, int], racks: Sequence[str | None] | None = None) -> None:
        changed = {name for name in {*topics, *self.topics} if topics.get(name) != self.topics.get(name)}
        self.topics = dict(topics)
        self.racks = self.racks if racks is None else racks
        self.image = image_of(topics, self.image.offset + 1, self.racks)
        self.shard.consumer.image_changed(frozenset(changed))

    def set_group_configs(self, values: Mapping[str, str]) -> None:
        """The group's own settings in the metadata."""
        configs = {ConfigResource(ConfigResourceType.GROUP, GROUP): dict(values)}
        self.image = replace(self.image, configs=configs)

    def set_config(self, **values: Any) -> None:
        self.config = self.config._replace(**values)

    # -- queries -------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.context.groups.get(GROUP)
        assert isinstance(group, ConsumerGroup)
        return group

    def describe(self) -> Any:
        described = self.shard.consumer.description(GROUP, self.offset)
        deque(described.members, 0)
        return described.row


def owned(**topics: Sequence[int]) -> list[TopicPartitions]:
    """The partitions in the format of a request."""
    return [TopicPartitions(topic_id=topic_id(name), partitions=list(numbers)) for name, numbers in topics.items()]


def as_dict(assignment: Assignment | None) -> dict[str, list[int]] | None:
    """By topic name."""
    if assignment is None:
        return None
    return {each.topic_id.rstrip(b"\0").decode(): sorted(each.partitions) for each in assignment.topic_partitions}


class Member:
    """A client of KIP-848: one heartbeat at a time, revokes partitions, starts over when fenced.

    `owns` are the partitions that it reads now. Messages may be lost; after that it sends all fields, as clients do.
    """

    def __init__(
        self,
        world: World,
        member_id: str,
        topics: Sequence[str],
        instance_id: str | None = None,
        regex: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = list(topics)
        self.regex = regex
        self.epoch = 0
        self.owns: set[tuple[Uuid, int]] = set()
        self.to_revoke: set[tuple[Uuid, int]] = set()
        self.to_add: set[tuple[Uuid, int]] = set()
        self.full = True
        self.last_reported: set[tuple[Uuid, int]] | None = None
        self.error: ErrorCode | None = None

    def report(self) -> list[TopicPartitions]:
        by_topic: dict[Uuid, list[int]] = {}
        for each, partition in sorted(self.owns):
            by_topic.setdefault(each, []).append(partition)
        return [TopicPartitions(topic_id=each, partitions=numbers) for each, numbers in by_topic.items()]

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.epoch == 0 or self.full:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = list(self.topics)
            request.subscribed_topic_regex = self.regex
            request.topic_partitions = self.report()
        elif self.last_reported != self.owns:
            request.topic_partitions = self.report()
        return request

    def heartbeat(self, lose_request: bool = False, lose_response: bool = False) -> None:
        """Send one heartbeat and process its response."""
        request = self.request()
        reported = set(self.owns)
        if lose_request:
            self._not_answered()
            return
        try:
            response = self.world.run(lambda: self.world.shard.consumer.heartbeat(CLIENT, request))
        except KafkaError as error:
            self.failed(error.code)
            return
        if lose_response:
            self._not_answered()
            return
        self.error = None
        self.full = False
        self.last_reported = reported if request.topic_partitions is not None else self.last_reported
        self.epoch = response.member_epoch
        if response.assignment is not None:
            target = {
                (each.topic_id, partition)
                for each in response.assignment.topic_partitions
                for partition in each.partitions
            }
            self.to_revoke = self.owns - target
            self.to_add = target - self.owns

    def _not_answered(self) -> None:
        """The request did not report partitions that the member was about to take, so it must not take them any more:
        the coordinator may have assigned them elsewhere."""
        self.full = True
        self.to_add = set()

    def failed(self, code: ErrorCode) -> None:
        self.error = code
        self.full = True
        if code in STARTS_OVER:
            self.abandon()

    def abandon(self) -> None:
        """Start over."""
        self.epoch = 0
        self.owns = set()
        self.to_revoke = set()
        self.to_add = set()
        self.last_reported = None

    def apply(self) -> None:
        """The application has polled: process revocations first, then new partitions."""
        self.owns -= self.to_revoke
        self.to_revoke = set()
        self.owns |= self.to_add
        self.to_add = set()

    def resubscribe(self, topics: Sequence[str]) -> None:
        self.topics = list(topics)
        self.full = True

    def leave(self, epoch: int = -1) -> None:
        self.abandon()
        try:
            self.world.heartbeat(member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)
        except KafkaError as error:
            self.error = error.code
