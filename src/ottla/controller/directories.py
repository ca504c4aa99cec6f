"""Data directories of replicas: AssignReplicasToDirs, failed directories (KIP-858), cordoned directories (KIP-1066).

A broker that finds damage in a replica assigns it to `LOST_UUID`. Another broker then leads, and the damaged replica is
in no ISR until the broker has repaired it and reports its directory. The assignment is rejected for the last in-sync
replica, since a damaged leader has more data than none. (Apache Kafka's brokers use it for a directory that failed
before it was known.) Brokers report cordoned directories, which take no new replicas, with their heartbeats.

Invariant: a broker leads no partition, and is in no ISR, with a replica in a directory that it does not have; if the
directory returns, the replica has to catch up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.common.config.feature_levels import DIRECTORY_ASSIGNMENT
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import LOST_UUID, ZERO_UUID, Uuid
from ottla.controller.replication import Slice, active, change_of, check_broker_epoch, isr_without
from ottla.controller.result import ControllerContext, ControllerResult, check_record_count
from ottla.metadata.image import BrokerImage, MetadataImage, metadata_level
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from ottla.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )


def handle_assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, context: ControllerContext
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """Store the directories of replicas. Raises KafkaError STALE_BROKER_EPOCH, UNSUPPORTED_VERSION for the whole
    request.

    A replica in an unregistered directory, e.g. one that failed meanwhile, leaves the ISR.
    """
    from ottla.protocol.messages.assign_replicas_to_dirs import (  # imported here: upkeep needs no messages
        AssignReplicasToDirsResponse,
        DirectoryAssignmentResult,
        PartitionAssignmentResult,
        TopicAssignmentResult,
    )

    if metadata_level(image) < DIRECTORY_ASSIGNMENT:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    response = AssignReplicasToDirsResponse()
    records: list[ApiMessageAndVersion] = []
    done: set[tuple[Uuid, int]] = set()
    for directory in request.directories:
        assignment = DirectoryAssignmentResult(id=directory.id)
        response.directories.append(assignment)
        for topic in directory.topics:
            result = TopicAssignmentResult(topic_id=topic.topic_id)
            assignment.topics.append(result)
            for item in topic.partitions:
                key = (bytes(topic.topic_id), item.partition_index)
                code = ErrorCode.NONE if key not in done else ErrorCode.INVALID_REQUEST
                done.add(key)
                try:
                    if code is ErrorCode.NONE:
                        records += _assign(image, broker, bytes(directory.id), *key, context)
                        check_record_count(len(records))
                except KafkaError as error:
                    code = error.code
                result.partitions.append(
                    PartitionAssignmentResult(partition_index=item.partition_index, error_code=code)
                )
    return ControllerResult(records, response)


def _assign(
    image: MetadataImage, broker: BrokerImage, directory: Uuid, topic_id: Uuid, index: int, context: ControllerContext
) -> list[ApiMessageAndVersion]:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker.broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # A broker without registered directories (ZooKeeper) reports `ZERO_UUID` for intact replicas.
    lost = directory not in (broker.log_dirs or (ZERO_UUID,))
    acceptable = active(image, excluding=broker.broker_id if lost else None)
    if directory == LOST_UUID and broker.broker_id in partition.isr and not any(map(acceptable, partition.isr)):
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    change = change_of(image, topic, index, acceptable, context)
    change.set_directory(broker.broker_id, directory)
    if lost:
        change.set_isr([member for member in partition.isr if member != broker.broker_id])
        change.unclean_shutdown = (broker.broker_id,)
    record = change.record()
    return [] if record is None else [versioned(record)]


def without_directories(
    image: MetadataImage, broker: BrokerImage, lost: Sequence[Uuid], context: ControllerContext, limit: int
) -> Slice:
    """Return records that take the replicas in `lost` from the broker; the last slice removes the directories.

    Unreplicated records in them may be lost, so these replicas are not eligible leaders either.
    """
    moved = isr_without(image, broker.broker_id, context, limit, unclean=True, directories=lost)
    if moved.complete:
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            log_dirs=[item for item in broker.log_dirs if item not in lost],
        )
        moved.records.append(versioned(record))
    return moved
