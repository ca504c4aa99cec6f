"""What a migration from ZooKeeper waits for and what it copies, as functions of image and tree (KIP-866)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.feature_levels import (
    CONTROLLER_REGISTRATION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_LEVELS,
    METADATA_VERSION,
    MIGRATING_BROKERS,
)
from ottla.controller.features import levels_in
from ottla.controller.migration_records import migration_state
from ottla.controller.registration import SLICE
from ottla.controller.replication import isr_without
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, ZkMigrationState, metadata_level
from ottla.metadata.records import ApiMessageAndVersion
from ottla.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.zookeeper.reading import Cluster

MAX_COPIED_RECORDS = 200_000
"""Some 25 MB: the copy is one batch, so that no other controller meets half of it."""

_OWN_LEVELS = frozenset({METADATA_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION})
"""Features whose level is the quorum's from the beginning."""


def controllers_awaited(image: MetadataImage, voters: Iterable[int]) -> str | None:
    """Why the quorum is not ready; `voters` are those that the configuration names."""
    level = metadata_level(image)
    if level < MIGRATING_BROKERS:
        needed = METADATA_LEVELS[MIGRATING_BROKERS].name
        return f"metadata.version is {METADATA_LEVELS[level].name}: format the controllers with {needed} or later"
    if image.topics:
        return "the quorum has topics of its own: format the controllers anew"
    if level >= CONTROLLER_REGISTRATION:
        missing = sorted(set(voters) - set(image.controllers))
        if missing:
            return f"controllers {missing} are not registered yet"
    unready = [node_id for node_id, each in image.controllers.items() if not each.zk_migration_ready]
    if unready:
        return f"controllers {unready} have not enabled zookeeper.metadata.migration.enable"
    return None


def brokers_awaited(image: MetadataImage, present: Collection[int]) -> str | None:
    """Which brokers of `/brokers/ids` the quorum does not count on yet, in Apache Kafka's words."""
    if not image.brokers:
        return "No brokers are known to KRaft, waiting for brokers to register."
    if not present:
        return "No brokers are registered in ZK, waiting for brokers to register."
    missing = [
        broker_id
        for broker_id in sorted(present)
        if broker_id not in image.brokers
        or image.brokers[broker_id].fenced
        or not image.brokers[broker_id].is_migrating_zk_broker
    ]
    return f"Still waiting for ZK brokers {missing} to register with KRaft." if missing else None


def tree_awaited(image: MetadataImage, cluster: Cluster) -> str | None:
    """What a tree has that the quorum can't take over yet."""
    if len(cluster.records) > MAX_COPIED_RECORDS:
        return f"the tree has {len(cluster.records)} records, and at most {MAX_COPIED_RECORDS} can be copied"
    if cluster.newcomers:
        return f"brokers {sorted(cluster.newcomers)} have just come, and ZooKeeper's controller has not seen them"
    level = levels_in(cluster.records).get(METADATA_VERSION, 0)
    if level > metadata_level(image):
        names = [METADATA_LEVELS[each].name for each in (metadata_level(image), level)]
        return f"metadata.version is {names[0]}, and that of the brokers {names[1]}: raise it, or format anew"
    replicas: set[int] = set()
    for record in cluster.records:
        if isinstance(record.message, PartitionRecord):
            replicas.update(record.message.replicas)
    missing = sorted(replicas - set(image.brokers))
    return f"Still waiting for ZK brokers {missing} found in metadata to register with KRaft." if missing else None


def tree_image(cluster: Cluster) -> MetadataImage:
    """What the tree says, without brokers: those have registrations of their own in the quorum."""
    return _replayed(
        EMPTY_IMAGE, [record for record in cluster.records if not isinstance(record.message, RegisterBrokerRecord)]
    )


def copy_tree(image: MetadataImage, context: ControllerContext, cluster: Cluster) -> ControllerResult[None]:
    """The whole tree, as one batch whose last record says that the quorum keeps the cluster.

    A broker that is not counted on leads nothing and is in no ISR that has another member: one that is gone, and one
    that came to ZooKeeper when nobody was its controller any more, and may lack what was not flushed. Raises KafkaError
    INVALID_REQUEST where the quorum has something that does not go with the tree.
    """
    if image.topics or image.zk_migration_state is not ZkMigrationState.PRE_MIGRATION:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the quorum has topics of its own: format the controllers anew")
    try:
        return ControllerResult(_copied_records(image, context, cluster), None)
    except InvariantError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the tree does not go with what the quorum has: {error}"
        ) from error


def _copied_records(image: MetadataImage, context: ControllerContext, cluster: Cluster) -> list[ApiMessageAndVersion]:
    records = [record for record in cluster.records if _is_copied(record)]
    copied = _replayed(image, records)
    in_sync = {each for topic in copied.topics.values() for one in topic.partitions.values() for each in one.isr}
    for broker_id in sorted(in_sync):
        broker = image.brokers.get(broker_id)
        if broker is not None and broker.active and broker_id not in cluster.newcomers:
            continue
        complete = False
        while not complete:
            some, complete = isr_without(copied, broker_id, context, SLICE)
            copied = _replayed(copied, some)
            records += some
    return [*records, migration_state(ZkMigrationState.MIGRATION)]


def _is_copied(record: ApiMessageAndVersion) -> bool:
    message = record.message
    if isinstance(message, FeatureLevelRecord):
        return message.name not in _OWN_LEVELS
    return not isinstance(message, RegisterBrokerRecord)


def _replayed(image: MetadataImage, records: Sequence[ApiMessageAndVersion]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record.message)
    return delta.apply(image.offset, image.epoch)[0]
