"""Preconditions and records of the copy in a migration from ZooKeeper, as functions of image and tree (KIP-866).

The copy consists of batches of limited size. The last record marks the quorum as authoritative; no node acts on the
records before it. An incomplete copy leaves topics in PRE_MIGRATION, when no other topics are created. Those that the
tree no longer contains are removed (`without_others`), and everything else is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.common.config.feature_levels import (
    CONTROLLER_REGISTRATION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_LEVELS,
    METADATA_VERSION,
    MIGRATING_BROKERS,
)
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.controller.features import levels_in
from ottla.controller.migration_records import migration_state
from ottla.controller.replication import isr_without
from ottla.controller.result import SLICE, ControllerContext, ControllerResult
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, ZkMigrationState, metadata_level
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.zookeeper.reading import Cluster, Tree, read_cluster

COPIED_AT_ONCE = 2_000
"""Records of one batch: some 250 KB, which occupy the loop no longer than other slices."""

_OWN_LEVELS = frozenset({METADATA_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION})
"""Features with a level that the quorum sets from the beginning."""


class TreeSnapshot(NamedTuple):
    """Contents of a tree, and values derived from them."""

    cluster: Cluster
    image: MetadataImage
    """Without brokers: those register with the quorum themselves."""
    copied: Sequence[ApiMessageAndVersion]
    """Records that the quorum takes over."""
    replicas: frozenset[int]
    """Brokers in the assignments of topics."""
    metadata_level: int
    """Metadata level that ZooKeeper's brokers have finalized."""


def found_in(tree: Tree, id_of: Callable[[str], Uuid]) -> TreeSnapshot:
    """Parse a tree; a large one takes seconds. Raises ProtocolError for undecodable data."""
    cluster = read_cluster(tree, id_of)
    replicas: set[int] = set()
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in cluster.records:
        if isinstance(record.message, PartitionRecord):
            replicas.update(record.message.replicas)
        if not isinstance(record.message, RegisterBrokerRecord):
            delta.replay(record.message)
    return TreeSnapshot(
        cluster,
        delta.apply(EMPTY_IMAGE.offset, EMPTY_IMAGE.epoch)[0],
        [record for record in cluster.records if _is_copied(record)],
        frozenset(replicas),
        levels_in(cluster.records).get(METADATA_VERSION, 0),
    )


def _is_copied(record: ApiMessageAndVersion) -> bool:
    message = record.message
    if isinstance(message, FeatureLevelRecord):
        return message.name not in _OWN_LEVELS
    return not isinstance(message, RegisterBrokerRecord)


# -- before the claim --------------------------------------------------------------------------------------------------


def controllers_awaited(image: MetadataImage, voters: Iterable[int]) -> str | None:
    """Return the reason why the quorum is not ready, or None."""
    level = metadata_level(image)
    if level < MIGRATING_BROKERS:
        needed = METADATA_LEVELS[MIGRATING_BROKERS].name
        return f"metadata.version is {METADATA_LEVELS[level].name}: format the controllers with {needed} or later"
    if level >= CONTROLLER_REGISTRATION:
        missing = sorted(set(voters) - set(image.controllers))
        if missing:
            return f"controllers {missing} are not registered yet"
    unready = [node_id for node_id, each in image.controllers.items() if not each.zk_migration_ready]
    if unready:
        return f"controllers {unready} have not enabled zookeeper.metadata.migration.enable"
    return None


def brokers_awaited(image: MetadataImage, present: Collection[int]) -> str | None:
    """Return the brokers of `/brokers/ids` that are not registered with the quorum, in Apache Kafka's words, or
    None."""
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


def tree_awaited(image: MetadataImage, found: TreeSnapshot) -> str | None:
    """Return the reason why the quorum can't take over the tree yet, or None."""
    if found.metadata_level > metadata_level(image):
        names = [METADATA_LEVELS[each].name for each in (metadata_level(image), found.metadata_level)]
        problem = f"metadata.version is {names[0]}, and that of the brokers {names[1]}"
        return f"{problem}: raise it, or format the controllers again"
    missing = sorted(found.replicas - set(image.brokers))
    return f"Still waiting for ZK brokers {missing} found in metadata to register with KRaft." if missing else None


def controller_awaited(found: TreeSnapshot) -> str | None:
    """Return pending work of the brokers' controller, or None: no controller does it once the claim is taken."""
    if found.cluster.newcomers:
        newcomers = sorted(found.cluster.newcomers)
        return f"brokers {newcomers} have just registered, and ZooKeeper's controller has not processed them yet"
    if found.cluster.unnamed:
        return f"topics {found.cluster.unnamed} have no ids, and ZooKeeper's controller has not given them any yet"
    return None


# -- the copy ----------------------------------------------------------------------------------------------------------


def without_others(image: MetadataImage, tree: MetadataImage) -> ControllerResult[None]:
    """Remove, in slices, topics of an incomplete copy that the tree no longer contains."""
    _check_copying(image)
    others = list(islice((each for each in image.topics_by_id if each not in tree.topics_by_id), SLICE + 1))
    records = [versioned(RemoveTopicRecord(topic_id=topic_id)) for topic_id in others[:SLICE]]
    return ControllerResult(records, None, again=len(others) > SLICE)


def copied(image: MetadataImage, part: Iterable[ApiMessageAndVersion]) -> ControllerResult[None]:
    """Return the records of a part of the tree. Raises KafkaError INVALID_REQUEST if they conflict with the
    quorum's."""
    _check_copying(image)
    records = [record for record in part if not _is_there(image, record)]
    delta = MetadataDelta(image)
    try:
        for record in records:
            delta.replay(record.message)
    except InvariantError as error:
        text = f"the tree conflicts with the metadata of the quorum: {error}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text) from error
    return ControllerResult(records, None)


def copy_completed(
    image: MetadataImage, context: ControllerContext, newcomers: Collection[int]
) -> ControllerResult[None]:
    """Return the records after the last part, in slices; the last one marks the quorum as authoritative.

    Brokers that are not active leave leaderships and every ISR with another member. The same applies to brokers that
    registered with ZooKeeper after the claim, which may lack unflushed records.
    """
    _check_copying(image)
    in_sync = {each for topic in image.topics.values() for one in topic.partitions.values() for each in one.isr}
    for broker_id in sorted(in_sync):
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or broker_id in newcomers:
            records, _complete = isr_without(image, broker_id, context, SLICE)
            if records:
                return ControllerResult(records, None, again=True)
    return ControllerResult([migration_state(ZkMigrationState.MIGRATION)], None)


def _is_there(image: MetadataImage, record: ApiMessageAndVersion) -> bool:
    """Return whether the record creates a topic that an earlier copy created."""
    message = record.message
    return isinstance(message, TopicRecord) and bytes(message.topic_id) in image.topics_by_id


def _check_copying(image: MetadataImage) -> None:
    if image.zk_migration_state is not ZkMigrationState.PRE_MIGRATION:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the quorum is already authoritative for the metadata")
