"""Contents of data directories and obstacles to their adoption: pure functions over a disk.

Invariants: nothing is written, renamed, removed or created, except the lock that the caller holds. Obstacles are
conditions under which a start fails or would lose data; everything else is permitted.

Left out: the values of groups (the coordinator reads them at the start); segments that a recovery does not read, unless
`everything` is set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.app.adoption.coordinators import StoredGroups, StoredTransactions, read_groups, read_transactions
from ottla.app.adoption.metadata import StoredMetadata, read_metadata
from ottla.app.adoption.partitions import StoredPartition, TruncationPoint, inspect_partition, stored_batches
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.topic_configs import TOPIC_CONFIGS
from ottla.common.errors import KafkaError, OperatorError, ProtocolError
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.metadata.image import ConfigResource, MetadataImage, PartitionImage, TopicImage
from ottla.quorum.opening import refuse_unknown_levels
from ottla.record.batch import BatchView
from ottla.storage.files import names
from ottla.storage.files.checkpoints import NO_GAPS_ABOVE, CheckpointCorruption, read_offsets
from ottla.storage.files.directories import partition_directories, shown
from ottla.storage.files.log_config import MAX_LONG
from ottla.storage.files.meta_properties import MetaProperties, read_meta_properties


class StoredDirectory(NamedTuple):
    """One of `log.dirs`."""

    path: str
    meta: MetaProperties
    clean_stop: bool


@dataclass(slots=True)
class Inspection:
    """The contents of the directories of a node."""

    directories: tuple[StoredDirectory, ...]
    """The directory with the metadata log is first."""
    metadata: StoredMetadata
    partitions: list[StoredPartition] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """Partition directories without a replica on this node in the metadata: a start renames them to `-stray`."""
    set_aside: list[str] = field(default_factory=list)
    """Directories with a suffix for removal, move or stray."""
    unknown_settings: list[str] = field(default_factory=list)
    """`topic: name` of configs that this version does not have."""
    groups: StoredGroups | None = None
    transactions: StoredTransactions | None = None
    cuts: list[TruncationPoint] = field(default_factory=list)
    """Torn ends that a start truncates."""
    obstacles: list[str] = field(default_factory=list)
    """Error messages; a directory with any of them must not be started."""

    @property
    def meta(self) -> MetaProperties:
        """`meta.properties` of the node; only directory ids differ."""
        return self.directories[0].meta

    @property
    def clean_stop(self) -> bool:
        """True if all directories have a clean-shutdown marker."""
        return all(directory.clean_stop for directory in self.directories)

    @property
    def metadata_path(self) -> str:
        return f"{self.directories[0].path}/{names.METADATA_DIR}"

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def is_member(self) -> bool:
        """True if the cluster has other nodes."""
        others = {*self.metadata.voter_ids, *self.image.brokers} - {self.meta.node_id}
        return bool(others)


def inspect(disk: Disk, paths: Sequence[str], *, everything: bool = False) -> Inspection:
    """Inspect the data directories of a stopped node; `everything` checks all batches, not only those of a recovery.

    Raises OperatorError for a directory that is not a data directory or has unreadable metadata, and OSError.
    """
    directories = _directories(disk, paths)
    found = Inspection(directories, read_metadata(disk, directories[0].path))
    _judge_metadata(found)
    expected = dict(_replicas(found))
    for directory in directories:
        _look_at_partitions(disk, found, directory, expected, everything)
    _judge_partitions(found, expected)
    _look_at_coordinators(disk, found)
    return found


def _directories(disk: Disk, paths: Sequence[str]) -> tuple[StoredDirectory, ...]:
    """The directories of one node, with that of the metadata log first. Raises OperatorError."""
    found = [_directory(disk, path) for path in paths]
    first = found[0]
    for other in found[1:]:
        if (other.meta.cluster_id, other.meta.node_id) != (first.meta.cluster_id, first.meta.node_id):
            raise OperatorError(
                f"{first.path} and {other.path} belong to different nodes (cluster.id or node.id in "
                f"{names.META_PROPERTIES}): check one node at a time"
            )
    if len({directory.meta.directory_id for directory in found}) < len(found):
        raise OperatorError(f"two of {shown(paths)} have the same directory.id: one is a copy of the other")
    with_metadata = [directory for directory in found if disk.is_dir(f"{directory.path}/{names.METADATA_DIR}")]
    if len(with_metadata) != 1:
        raise OperatorError(
            f"{len(with_metadata)} of {shown(paths)} have a metadata log {names.METADATA_DIR}, and a node has one: "
            "give all directories of log.dirs and metadata.log.dir"
        )
    return (*with_metadata, *(directory for directory in found if directory not in with_metadata))


def _directory(disk: Disk, path: str) -> StoredDirectory:
    meta = read_meta_properties(disk, path)
    if meta is None:
        raise OperatorError(
            f"{path} is not a KRaft data directory: it has no {names.META_PROPERTIES}; give those of log.dirs"
        )
    return StoredDirectory(path, meta, disk.exists(f"{path}/{names.CLEAN_SHUTDOWN_FILE}"))


def _judge_metadata(found: Inspection) -> None:
    path, image, node_id = found.metadata_path, found.image, found.meta.node_id
    try:
        refuse_unknown_levels(path, image)
    except OperatorError as error:
        found.obstacles.append(str(error))
    unreadable = [f"{what} ({count})" for what, count in found.metadata.unreadable.items()]
    if unreadable:
        found.obstacles.append(
            f"the metadata log in {path} contains records that this version can't decode: "
            f"{shown(unreadable)}; start the version that wrote it, which can remove them"
        )
    if not image.features:
        found.obstacles.append(f"the metadata log in {path} was formatted and never started: there is nothing to adopt")
    _note_cut(found, found.metadata.cut)
    broker = image.brokers.get(node_id)
    if broker is not None and len(broker.log_dirs) > len(found.directories):
        found.obstacles.append(
            f"node {node_id} keeps its data in {len(broker.log_dirs)} directories, and {len(found.directories)} of "
            "them were given: give all directories of log.dirs"
        )
    remote = [topic for topic in image.topics if image.topic_configs(topic).get("remote.storage.enable") == "true"]
    if remote:
        found.obstacles.append(
            f"tiered storage contains a part of {shown(remote)} that this version can't read: disable it with "
            "remote.log.delete.on.disable once that part may be deleted"
        )
    found.unknown_settings = [
        f"{topic}: {name}" for topic in image.topics for name in image.topic_configs(topic) if name not in TOPIC_CONFIGS
    ]


def _look_at_partitions(
    disk: Disk,
    found: Inspection,
    directory: StoredDirectory,
    expected: Mapping[TopicPartition, TopicImage],
    everything: bool,
) -> None:
    path = directory.path
    points, points_whole = _offsets(disk, path, names.RECOVERY_POINT_CHECKPOINT)
    cleaned, _ = _offsets(disk, path, names.CLEANER_OFFSET_CHECKPOINT)
    trusted = directory.clean_stop and points_whole
    for name in partition_directories(disk, path):
        key = names.parse_partition_dir(name)
        if key is None:
            continue
        gaps_end = points.get(key, MAX_LONG) if NO_GAPS_ABOVE in points else MAX_LONG
        compacted = "compact" in found.image.topic_configs(key[0]).get("cleanup.policy", "")
        stored = inspect_partition(
            disk,
            path,
            name,
            recovery_point=None if trusted else max(points.get(key, 0), 0),
            gaps_end=gaps_end if compacted or key in cleaned else 0,
            everything=everything,
        )
        topic = expected.get(key)
        if topic is None or stored.topic_id not in (None, topic.topic_id):
            found.strays.append(name)
            continue
        found.partitions.append(stored)
        _note_cut(found, stored.cut)
    marks = (names.DELETE_DIR_SUFFIX, names.STRAY_DIR_SUFFIX, names.FUTURE_DIR_SUFFIX)
    found.set_aside += [name for name in disk.listdir(path) if name.endswith(marks) and disk.is_dir(f"{path}/{name}")]


def _judge_partitions(found: Inspection, expected: Mapping[TopicPartition, TopicImage]) -> None:
    counts = Counter((stored.topic, stored.partition) for stored in found.partitions)
    missing = [names.partition_dir(*key) for key in expected if key not in counts]
    paths = shown([directory.path for directory in found.directories])
    if missing and found.clean_stop:
        found.obstacles.append(
            f"the partitions {shown(missing)} of node {found.meta.node_id} are not in {paths}: mount or restore the "
            "directories that contain them: a start would not serve them, or recreate them empty"
        )
    double = [names.partition_dir(*key) for key, count in counts.items() if count > 1]
    if double:
        found.obstacles.append(f"{shown(double)} are in more than one of {paths}: keep the newer copy of each")


def _replicas(found: Inspection) -> Iterator[tuple[TopicPartition, TopicImage]]:
    for topic in found.image.topics.values():
        for index, partition in topic.partitions.items():
            if _has_replica(partition, found.meta.node_id):
                yield (topic.name, index), topic


def _has_replica(partition: PartitionImage, node_id: int) -> bool:
    """True for a replica that the node needs: one that is being added can be recreated."""
    return node_id in partition.replicas and node_id not in partition.adding_replicas


def _note_cut(found: Inspection, cut: TruncationPoint | None) -> None:
    if cut is None:
        return
    if cut.loses_batches:
        found.obstacles.append(
            f"{cut.path} is damaged at position {cut.position} ({cut.defect}), and a start would truncate the log "
            "there, to "
            f"offset {cut.end_offset}, and lose {cut.size_bytes} bytes: restore the partition from a copy"
        )
    else:
        found.cuts.append(cut)


def _offsets(disk: Disk, directory: str, name: str) -> tuple[dict[TopicPartition, int], bool]:
    """The offsets of a checkpoint, and whether it is intact; a start recovers all logs if it is damaged."""
    try:
        return read_offsets(disk, f"{directory}/{name}"), True
    except CheckpointCorruption:
        return {}, False


def _look_at_coordinators(disk: Disk, found: Inspection) -> None:
    try:
        found.groups = read_groups(_batches(disk, found, GROUP_METADATA_TOPIC))
        found.transactions = read_transactions(_batches(disk, found, TRANSACTION_STATE_TOPIC))
    except (KafkaError, ProtocolError) as error:
        found.obstacles.append(
            f"{GROUP_METADATA_TOPIC} or {TRANSACTION_STATE_TOPIC} of node {found.meta.node_id} contains data that "
            "can't be "
            f"read: {error}"
        )


def _batches(disk: Disk, found: Inspection, topic: str) -> Iterator[BatchView]:
    for stored in found.partitions:
        if stored.topic == topic:
            yield from stored_batches(disk, stored.path)


def settings_count(image: MetadataImage, kind: ConfigResourceType) -> int:
    """Number of configs of all resources of a type."""
    return sum(len(values) for resource, values in image.configs.items() if ConfigResource(*resource).type is kind)
