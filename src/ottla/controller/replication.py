"""Leaders and in-sync replicas: changes when brokers come and go, and AlterPartition requests of leaders.

A failed broker may have led ten thousand partitions. So changes for a broker are made in slices: `isr_without` and
`elections_after_unfencing` return a limited number of records for the current image, and whether they are complete. The
fencing itself is written together with the last slice. Until then the broker counts as live; from then on it leads
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.config.feature_levels import SAME_EPOCH_WHERE_ISR_SHRINKS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import OFFLINE_UUID, ZERO_UUID, Uuid
from ottla.controller.partition_change import Acceptable, Election, PartitionChange
from ottla.controller.result import ControllerContext, ControllerResult, elr_enabled
from ottla.metadata.delta import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE
from ottla.metadata.image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    metadata_level,
)
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.protocol.messages.alter_partition import (
        AlterPartitionPartition,
        AlterPartitionPartitionResult,
        AlterPartitionRequest,
        AlterPartitionResponse,
    )

FIRST_VERSION_WITH_EPOCHS = 3
ANY_EPOCH = -1

PlacedPartition = tuple[TopicImage, int, PartitionImage]
"""A partition with its topic and number."""


class Slice(NamedTuple):
    """At most `limit` records of a change, and whether they complete the change."""

    records: list[ApiMessageAndVersion]
    complete: bool


def active(image: MetadataImage, *, excluding: int | None = None, including: int | None = None) -> Acceptable:
    """Return a predicate for brokers that may lead: active brokers and `including`, but not `excluding`."""

    def acceptable(broker_id: int) -> bool:
        if broker_id == excluding:
            return False
        broker = image.brokers.get(broker_id)
        return broker is not None and (broker.active or broker_id == including)

    return acceptable


def electable(
    image: MetadataImage, context: ControllerContext, *, excluding: int | None = None, including: int | None = None
) -> Acceptable:
    """Return a predicate for automatic elections: as `active`, without brokers that have not contacted this controller.

    After the restart of a whole cluster such brokers may never return, or may have lost a disk. The first heartbeat of
    a broker triggers the elections that it may win.
    """
    may_lead = active(image, excluding=excluding, including=including)
    granted = context.heartbeats.is_granted
    return lambda broker_id: may_lead(broker_id) and (broker_id == including or not granted(broker_id))


def directories_of(image: MetadataImage, broker_id: int) -> tuple[Uuid, ...]:
    """Return the registered directories of a broker; none for an unknown one."""
    broker = image.brokers.get(broker_id)
    return () if broker is None else broker.log_dirs


def change_of(
    image: MetadataImage, topic: TopicImage, index: int, acceptable: Acceptable, context: ControllerContext
) -> PartitionChange:
    """Return an empty change of one partition."""
    partition = topic.partitions[index]
    return PartitionChange(
        partition,
        topic.topic_id,
        index,
        acceptable=acceptable,
        min_isr=context.min_isr(image, topic.name, partition),
        elr_enabled=elr_enabled(image),
        bumps_on_shrink=metadata_level(image) < SAME_EPOCH_WHERE_ISR_SHRINKS,
        directories_of=lambda broker_id: directories_of(image, broker_id),
    )


# -- broker changes ----------------------------------------------------------------------------------------------------


def isr_without(
    image: MetadataImage,
    broker_id: int,
    context: ControllerContext,
    limit: int,
    *,
    unclean: bool = False,
    directories: Collection[Uuid] | None = None,
    is_another_process: bool = False,
) -> Slice:
    """Remove a broker from every ISR and from leadership. `unclean`: it may have lost unflushed records.

    With `directories`, only its replicas in one of them are affected. `is_another_process`: the broker restarted, so
    its offline directories may be available again.
    """

    def concerns(partition: PartitionImage) -> bool:
        if directories is not None and partition.directory_of(broker_id) not in directories:
            return False
        return (
            broker_id in partition.isr
            or partition.leader == broker_id
            or (is_another_process and partition.directory_of(broker_id) == OFFLINE_UUID)
            or (unclean and broker_id in partition.eligible_leader_replicas)
        )

    def change(change: PartitionChange, partition: PartitionImage) -> None:
        change.set_isr([member for member in partition.isr if member != broker_id])
        if unclean:
            change.unclean_shutdown = (broker_id,)
        if is_another_process and partition.directory_of(broker_id) == OFFLINE_UUID:
            change.set_directory(broker_id, ZERO_UUID)
        if partition.leader not in (NO_LEADER, broker_id):
            # A leader in controlled shutdown leads until its own heartbeat moves the leadership to a live broker. A
            # leader that has not contacted this controller may be gone, and would then remain alone in the ISR.
            granted = context.heartbeats.is_granted(partition.leader)
            including = None if granted else partition.leader
            change.acceptable = electable(image, context, excluding=broker_id, including=including)

    concerned = _partitions(image, concerns)
    return _slice(image, context, limit, concerned, change, electable(image, context, excluding=broker_id))


def isr_without_stopping(image: MetadataImage, stopping: BrokerImage, context: ControllerContext, limit: int) -> Slice:
    """Remove a broker in controlled shutdown from ISRs and leaderships, in favour of live brokers.

    A session does not prove that a broker is alive: a killed one keeps it until expiry. So the stopping broker stays in
    the ISR until another member has sent a heartbeat since the shutdown request. Each of its own heartbeats tries
    again. If no other member can lead, it gives up its leadership at once. The partition is then leaderless, and its
    last in-sync replica remains in the ISR or eligible.
    """
    broker_id = stopping.broker_id
    may_lead = active(image, excluding=broker_id)

    def is_alive(other: int) -> bool:
        return context.heartbeats.is_alive_since_request(other, stopping)

    def concerns(partition: PartitionImage) -> bool:
        if broker_id not in partition.isr and partition.leader != broker_id:
            return False
        others = [member for member in partition.isr if may_lead(member)]
        if not others:
            # Another leader in shutdown could commit alone: this broker stays until that one has given up leadership.
            return partition.leader in (NO_LEADER, broker_id)
        return any(map(is_alive, others))

    def change(change: PartitionChange, partition: PartitionImage) -> None:
        change.set_isr([member for member in partition.isr if member != broker_id])
        if partition.leader not in (NO_LEADER, broker_id):
            change.acceptable = active(image, excluding=broker_id, including=partition.leader)

    concerned = _partitions(image, concerns)
    return _slice(image, context, limit, concerned, change, lambda other: may_lead(other) and is_alive(other))


def elections_after_unfencing(image: MetadataImage, broker_id: int, context: ControllerContext, limit: int) -> Slice:
    """Elect leaders for leaderless partitions that `broker_id` may lead now."""
    concerned = (each for each in _leaderless(image) if broker_id in each[2].replicas)
    return _slice(image, context, limit, concerned, _unchanged, electable(image, context, including=broker_id))


def elections_of_leaderless(image: MetadataImage, context: ControllerContext, limit: int) -> Slice:
    """Elect leaders for all leaderless partitions, after a change of settings or an incomplete slice of elections."""
    return _slice(image, context, limit, _leaderless(image), _unchanged, electable(image, context))


def _unchanged(_change: PartitionChange, _partition: PartitionImage) -> None:
    """Change nothing except the election."""


def _slice(
    image: MetadataImage,
    context: ControllerContext,
    limit: int,
    concerned: Iterable[PlacedPartition],
    fill: Callable[[PartitionChange, PartitionImage], None],
    acceptable: Acceptable,
) -> Slice:
    records: list[ApiMessageAndVersion] = []
    for topic, index, partition in concerned:
        change = change_of(image, topic, index, acceptable, context)
        fill(change, partition)
        if context.unclean_election(image, topic.name):
            change.election = Election.UNCLEAN
        record = change.record()
        if record is not None:
            if len(records) == limit:
                return Slice(records, complete=False)
            records.append(versioned(record))
    return Slice(records, complete=True)


def _partitions(image: MetadataImage, concerns: Callable[[PartitionImage], bool]) -> Iterator[PlacedPartition]:
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if concerns(partition):
                yield topic, index, partition


def _leaderless(image: MetadataImage) -> Iterator[PlacedPartition]:
    return ((topic, index, topic.partitions[index]) for topic in image.topics.values() for index in topic.leaderless)


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    """Return whether `broker_id` leads any partition."""
    return any(True for _ in _partitions(image, lambda partition: partition.leader == broker_id))


def cleared_elr(image: MetadataImage, topics: Sequence[TopicImage]) -> list[ApiMessageAndVersion]:
    """Return records that clear the eligible leader replicas of `topics` before a new minimum ISR applies.

    These replicas are eligible under the old minimum. Under a smaller one, records may be committed that they lack.
    """
    return [
        versioned(PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, eligible_leader_replicas=[]))
        for topic in topics
        for index, partition in topic.partitions.items()
        if partition.eligible_leader_replicas
    ]


# -- AlterPartition ----------------------------------------------------------------------------------------------------


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Return the registered broker; raises KafkaError when the request is from another incarnation."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
        )
    return broker


def handle_alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, version: int, context: ControllerContext
) -> ControllerResult[AlterPartitionResponse]:
    """Check and decide each partition. Raises KafkaError STALE_BROKER_EPOCH for the request as a whole."""
    from ottla.protocol.messages.alter_partition import (  # imported here: elections need no messages
        AlterPartitionPartitionResult,
        AlterPartitionResponse,
        AlterPartitionTopicResult,
    )

    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    response = AlterPartitionResponse()
    records: list[ApiMessageAndVersion] = []
    for asked in request.topics:
        result = AlterPartitionTopicResult(topic_id=asked.topic_id)
        response.topics.append(result)
        topic = image.topic_by_id(bytes(asked.topic_id))
        for item in asked.partitions:
            try:
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                decided, record = _alter_partition(image, request.broker_id, topic, item, version, context)
            except KafkaError as error:
                decided = AlterPartitionPartitionResult(partition_index=item.partition_index, error_code=error.code)
                record = None
            if record is not None:
                records.append(versioned(record))
            result.partitions.append(decided)
    return ControllerResult(records, response)


def _alter_partition(
    image: MetadataImage,
    leader: int,
    topic: TopicImage,
    asked: AlterPartitionPartition,
    version: int,
    context: ControllerContext,
) -> tuple[AlterPartitionPartitionResult, PartitionChangeRecord | None]:
    from ottla.protocol.messages.alter_partition import (  # imported here: elections need no messages
        AlterPartitionPartitionResult,
    )

    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if version >= FIRST_VERSION_WITH_EPOCHS:
        wanted = [(state.broker_id, state.broker_epoch) for state in asked.new_isr_with_epochs]
    else:
        wanted = [(broker_id, ANY_EPOCH) for broker_id in asked.new_isr]
    isr = [broker_id for broker_id, _ in wanted]
    _check_epochs(partition, leader, asked)
    _check_isr(partition, leader, isr, asked.leader_recovery_state)
    _check_eligible(image, wanted)
    change = change_of(image, topic, asked.partition_index, active(image), context)
    change.set_isr(isr)
    change.leader_recovery_state = asked.leader_recovery_state
    if context.unclean_election(image, topic.name):
        change.election = Election.UNCLEAN
    record = change.record()
    result = AlterPartitionPartitionResult(
        partition_index=asked.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
    if record is not None:
        if record.leader != NO_LEADER_CHANGE:
            result.leader_id, result.leader_epoch = record.leader, partition.leader_epoch + 1
        if record.isr is not None:
            result.isr = record.isr
        if record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE:
            result.leader_recovery_state = record.leader_recovery_state
        result.partition_epoch = partition.partition_epoch + 1
        if result.leader_id != leader:
            # This ISR completed a reassignment that moves the leadership away from the requesting broker.
            result.error_code = ErrorCode.NEW_LEADER_ELECTED
    return result, record


def _check_epochs(partition: PartitionImage, leader: int, asked: AlterPartitionPartition) -> None:
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        # The leader has newer metadata than this controller, which is therefore no longer the active one.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if asked.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionImage, leader: int, isr: list[int], recovery_state: int) -> None:
    """The ISR is a set of replicas that includes the leader; a recovering leader is its only member."""
    valid = len(set(isr)) == len(isr) and set(isr) <= set(partition.replicas) and leader in isr
    if recovery_state not in (RECOVERED, RECOVERING):
        valid = False
    if recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        valid = False
    if not valid:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _check_eligible(image: MetadataImage, wanted: Sequence[tuple[int, int]]) -> None:
    """Reject members that are fenced, shutting down, or not of the incarnation in the request (KIP-841, KIP-903)."""
    for broker_id, broker_epoch in wanted:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or broker_epoch not in (ANY_EPOCH, broker.broker_epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
