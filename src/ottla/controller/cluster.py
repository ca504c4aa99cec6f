"""Records of a broker start on a single node, and its directories.

Each start is a new incarnation with a new broker epoch (the offset of its registration). Every partition that the
broker leads gets a new leader epoch before the first append. So after a crash that lost an unflushed tail, no offset is
written twice in one leader epoch, and a client that remembers (epoch, offset) can detect the loss. The new epoch is
also above those in the broker's own logs, since the metadata log may have lost its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.common.config.feature_levels import CORDONED_DIRECTORIES, DIRECTORY_ASSIGNMENT, METADATA_LEVELS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import NO_LEADER, BrokerImage, MetadataImage, metadata_level
from ottla.metadata.records import SUPPORTED_FEATURES, ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import partition_record, register_broker_record
from ottla.protocol.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord


def register_broker(
    broker_id: int,
    incarnation_id: Uuid,
    broker_epoch: int,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    log_dirs: Sequence[Uuid],
) -> ApiMessageAndVersion:
    """Return the registration of a broker that is unfenced at once; `broker_epoch` is the offset of the record."""
    broker = BrokerImage(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        incarnation_id=incarnation_id,
        endpoints=tuple(endpoints),
        features=SUPPORTED_FEATURES,
        rack=rack,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=tuple(log_dirs),
    )
    return versioned(register_broker_record(broker))


def check_directories(image: MetadataImage, log_dirs: Sequence[Uuid]) -> None:
    """Raises KafkaError UNSUPPORTED_VERSION for several directories when the level has no directory assignments."""
    if len(log_dirs) > 1 and metadata_level(image) < DIRECTORY_ASSIGNMENT:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Several data directories (log.dirs) need metadata.version {METADATA_LEVELS[DIRECTORY_ASSIGNMENT].name}, "
            f"and the cluster is at {METADATA_LEVELS[metadata_level(image)].name}: start with one directory, "
            "then raise the level",
        )


def name_directories(image: MetadataImage, broker_id: int, log_dirs: Sequence[Uuid]) -> list[ApiMessageAndVersion]:
    """Return records that add the data directories to an older registration, once the metadata level supports them."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.log_dirs or metadata_level(image) < DIRECTORY_ASSIGNMENT:
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, log_dirs=list(log_dirs)
    )
    return [versioned(change)]


def cordoned_directories(
    image: MetadataImage, broker: BrokerImage, cordoned: Sequence[Uuid] | None
) -> list[ApiMessageAndVersion]:
    """Return records that cordon exactly these directories of the broker, if the metadata level supports it.

    None means no report; ids that the broker has not registered are ignored.
    """
    if cordoned is None or metadata_level(image) < CORDONED_DIRECTORIES:
        return []
    known = [item for item in broker.log_dirs if item in cordoned]
    if set(known) == set(broker.cordoned_log_dirs):
        return []
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=known
    )
    return [versioned(record)]


def raise_leader_epochs(
    image: MetadataImage, broker_id: int, log_epochs: Mapping[tuple[Uuid, int], int]
) -> list[ApiMessageAndVersion]:
    """Return records that make `broker_id` leader, in a new epoch, of its partitions and of leaderless ones with it in
    the ISR.

    `log_epochs` are the newest leader epochs in the broker's logs, by topic id and partition.
    """
    records = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            leaderless = partition.leader == NO_LEADER and broker_id in partition.isr
            if partition.leader != broker_id and not leaderless:
                continue
            log_epoch = log_epochs.get((topic.topic_id, index), -1)
            if log_epoch <= partition.leader_epoch:
                change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=broker_id)
                records.append(versioned(change))
            else:
                # A change record raises the epoch by one; a larger step needs a complete partition record.
                ahead = partition._replace(
                    leader=broker_id,
                    leader_epoch=log_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
                records.append(versioned(partition_record(topic.topic_id, index, ahead)))
    return records
