"""Partition reassignments (KIP-455): start, cancel, list; and automatic replication of internal topics.

A reassignment first adds the new replicas, and removes the old ones once all new ones are in the ISR. `PartitionChange`
completes it with the AlterPartition that adds the last one. Meanwhile the assignment contains the target first, then
the replicas to remove.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.internal_topics import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    MAX_DEFAULT_REPLICAS,
    TRANSACTION_STATE_TOPIC,
)
from ottla.controller.partition_change import Election
from ottla.controller.placement import place_replicas, validate_manual_assignment
from ottla.controller.replication import active, change_of
from ottla.controller.result import ControllerContext, ControllerResult, check_record_count
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import ApiMessageAndVersion, versioned

if TYPE_CHECKING:
    from ottla.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
    )
    from ottla.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

INTERNAL_REPLICATION_SETTINGS = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}


def is_reassigning(partition: PartitionImage) -> bool:
    """Return whether replicas are being added or removed."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def handle_alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, context: ControllerContext
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Start, replace or cancel the reassignment of each partition."""
    from ottla.protocol.messages.alter_partition_reassignments import (  # imported here: upkeep needs no messages
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )

    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    records: list[ApiMessageAndVersion] = []
    for asked in request.topics:
        result = ReassignableTopicResponse(name=asked.name)
        response.responses.append(result)
        for item in asked.partitions:
            outcome = ReassignablePartitionResponse(partition_index=item.partition_index, error_message=None)
            result.partitions.append(outcome)
            try:
                may_resize = request.allow_replication_factor_change
                records += _alter(image, asked.name, item, context, may_resize=may_resize)
                check_record_count(len(records))
            except KafkaError as error:
                outcome.error_code, outcome.error_message = error.code, error.message or None
    return ControllerResult(records, response)


def _alter(
    image: MetadataImage, name: str, asked: ReassignablePartition, context: ControllerContext, *, may_resize: bool
) -> list[ApiMessageAndVersion]:
    topic = image.topic(name)
    if topic is None or asked.partition_index not in topic.partitions:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find a topic named {name}."
            if topic is None
            else f"Unable to find partition {name}:{asked.partition_index}.",
        )
    if asked.replicas is None:
        return _cancel(image, topic, asked.partition_index, context)
    partition = topic.partitions[asked.partition_index]
    validate_manual_assignment(image, asked.replicas, None)
    size = len(partition.replicas) - len(partition.removing_replicas)
    if not may_resize and len(asked.replicas) != size:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {len(asked.replicas)}",
        )
    return move(image, topic, asked.partition_index, asked.replicas, context)


def move(
    image: MetadataImage, topic: TopicImage, index: int, target: Sequence[int], context: ControllerContext
) -> list[ApiMessageAndVersion]:
    """Start the reassignment of a partition to `target`; replaces the current one."""
    partition = topic.partitions[index]
    change = change_of(image, topic, index, active(image), context)
    before = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]
    removing = [broker_id for broker_id in partition.replicas if broker_id not in target]
    adding = [broker_id for broker_id in target if broker_id not in before]
    change.set_assignment([*target, *removing], sorted(adding), sorted(removing))
    record = change.record()
    return [] if record is None else [versioned(record)]


def _cancel(
    image: MetadataImage, topic: TopicImage, index: int, context: ControllerContext
) -> list[ApiMessageAndVersion]:
    """Restore the previous replicas. Rejected if only new ones may lead and the topic forbids unclean elections.

    If too few of the previous replicas have all committed records, a reassignment to them removes the new ones later.
    """
    partition = topic.partitions[index]
    if not is_reassigning(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]
    isr = [broker_id for broker_id in partition.isr if broker_id not in partition.adding_replicas]
    change = change_of(image, topic, index, active(image), context)
    may_lead = partition.isr or partition.eligible_leader_replicas or partition.last_known_elr
    if may_lead and not set(may_lead) & set(replicas):
        if not context.unclean_election(image, topic.name):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Can't revert {topic.name}-{index}: that would require an unclean leader election.",
            )
        change.election = Election.UNCLEAN
    elif not change.may_drop(partition.adding_replicas):
        return move(image, topic, index, replicas, context)
    change.set_assignment(replicas, (), ())
    change.set_isr(isr)
    record = change.record()
    return [] if record is None else [versioned(record)]


# -- ListPartitionReassignments ----------------------------------------------------------------------------------------


def handle_list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List current reassignments of all partitions, or of the named ones."""
    from ottla.protocol.messages.list_partition_reassignments import (  # imported here: upkeep needs no messages
        ListPartitionReassignmentsResponse,
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )

    asked = request.topics
    wanted = None if asked is None else {topic.name: frozenset(topic.partition_indexes) for topic in asked}
    topics = []
    for topic in image.topics.values():
        if wanted is not None and topic.name not in wanted:
            continue
        found = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index, partition in topic.partitions.items()
            if is_reassigning(partition) and (wanted is None or index in wanted[topic.name])
        ]
        if found:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=found))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


# -- internal topics ---------------------------------------------------------------------------------------------------


def replicate_internal_topics(image: MetadataImage, context: ControllerContext) -> list[ApiMessageAndVersion]:
    """Raise internal topics to min(3, live brokers) replicas, unless their replication factor is configured.

    A topic that was created with one broker would otherwise stay on it for ever.
    """
    usable = [broker for broker in image.active_brokers() if not broker.all_cordoned]
    wanted = min(MAX_DEFAULT_REPLICAS, len(usable))
    records: list[ApiMessageAndVersion] = []
    for name in sorted(INTERNAL_TOPICS & image.topics.keys()):
        setting = INTERNAL_REPLICATION_SETTINGS.get(name)
        if setting is None or context.config.is_set(setting):
            continue
        topic = image.topics[name]
        for index, partition in topic.partitions.items():
            if len(partition.replicas) >= wanted or is_reassigning(partition):
                continue
            placed = place_replicas(image, index, 1, wanted)[0]
            others = [broker_id for broker_id in placed if broker_id not in partition.replicas]
            all_placed = set(partition.replicas) <= set(placed)
            target = placed if all_placed else [*partition.replicas, *others][:wanted]
            records += move(image, topic, index, target, context)
    return records
