"""Consistent copy of a running node or local cluster, without a request to a broker.

One replica of each partition is copied, that of the leader, since it has every acknowledged record. In order:

1. The newest metadata names the leaders.
2. The ends of all logs are measured: first transaction states, then committed offsets, then the other partitions.
   Committed offsets therefore never exceed the copied logs, and the coordinator knows each transaction with a marker in
   the copy. If a transaction state was written meanwhile, they are measured again: no transaction is split.
3. The logs are copied up to these ends, however long that takes.
4. Recovery points, high watermarks, log start offsets and producer snapshots follow the logs. Cleaned offsets are read
   before them: a cleaner that skipped records which it never cleaned would bring deleted keys back.
5. The metadata log is copied last, from the node with the longest one: its leader epochs and producer ids are not lower
   than those in the logs.

If a leader, a topic or a copied segment has changed, the next attempt copies the difference. Records that were
appended, and transactions that were decided, after the measurement are not in the copy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.app.adoption.metadata import StoredMetadata, read_metadata
from ottla.app.backup.files import CopiedFile, SourceChanged, described
from ottla.app.backup.manifest import PARTITIONS, CopiedDirectory, CopiedPartition, Manifest
from ottla.app.backup.partition_copy import PartitionCopy
from ottla.app.backup.source import NodeDirectory, Source, newest_metadata, refuse_part_of_cluster
from ottla.common.errors import OperatorError
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE, list_snapshots
from ottla.storage.files import names
from ottla.storage.files.checkpoints import NO_GAPS_ABOVE, CheckpointCorruption, format_offsets, read_offsets
from ottla.storage.files.log_dir_ids import remembered

ATTEMPTS = 20
ATTEMPT_PAUSE_S = 0.25
MEASUREMENTS = 500
MEASUREMENT_PAUSE_S = 0.005
_FIRST_MEASURED = (TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC)

Offsets = dict[TopicPartition, int]
OnProgress = Callable[[str], None]


class BackupResult(NamedTuple):
    """A complete copy."""

    manifest: Manifest
    metadata_offset: int
    shared_bytes: int
    """Bytes in blocks that the file system shares with the original."""


class BackupRun:
    """Copy of `source` to the empty directory `backup`."""

    def __init__(self, disk: Disk, source: Source, backup: str, on_progress: OnProgress) -> None:
        self._disk = disk
        self._source = source
        self._backup = backup
        self._on_progress = on_progress
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._split_transactions = False

    def run(self) -> BackupResult:
        """Copy everything but the manifest. Raises OperatorError, OSError."""
        for number in range(ATTEMPTS):
            try:
                image = self._attempt()
                break
            except SourceChanged:
                self._on_progress(f"files changed during the copy, attempt {number + 1} of {ATTEMPTS}")
                time.sleep(ATTEMPT_PAUSE_S)
        else:
            raise OperatorError(
                f"the files of {self._source.directories[0].path} changed in each of {ATTEMPTS} attempts: repeat the "
                "backup while no topic is created and no leader changes, and start a stopped node once before"
            )
        shared_bytes = sum(copy.shared_bytes for copy in self._copies.values())
        return BackupResult(self._manifest(image), image.offset, shared_bytes)

    def _attempt(self) -> MetadataImage:
        try:
            return self._copied_image()
        finally:
            for copy in self._copies.values():
                copy.close_files()

    def _copied_image(self) -> MetadataImage:
        _, before = newest_metadata(self._disk, self._source)
        # Not earlier: after a refusal of the source, the same backup directory may be used again.
        os.makedirs(os.path.join(self._backup, PARTITIONS), exist_ok=True)
        self._select(before)
        cleaned = self._offsets(names.CLEANER_OFFSET_CHECKPOINT)
        self._split_transactions = not self._measure()
        for key in self._compacted(before.image, cleaned):
            self._copies[key].open_files()
        for number, copy in enumerate(self._copies.values(), 1):
            copy.copy_log(self._disk)
            self._on_progress(f"{number} of {len(self._copies)} partitions")
        self._write_checkpoints(cleaned)
        for copy in self._copies.values():
            copy.copy_state(self._disk)
            if copy.topic_id(self._disk) not in (None, before.image.topics[copy.key[0]].topic_id):
                raise SourceChanged  # the leader has not replaced a deleted topic yet
        after = self._copy_metadata()
        if _leaders(before.image) != _leaders(after.image):
            raise SourceChanged
        for copy in self._copies.values():
            copy.check()
        return after.image

    # -- partitions --------------------------------------------------------------------------------------------------

    def _select(self, metadata: StoredMetadata) -> None:
        """Find the leader's replica of each partition. Raises SourceChanged."""
        copies = {}
        for key, partition in _partitions(metadata.image):
            name = names.partition_dir(*key)
            source = os.path.join(self._leader_directory(partition, name), name)
            copy = self._copies.get(key)
            if copy is None or copy.source != source:
                copy = PartitionCopy(key, source, os.path.join(self._backup, PARTITIONS, name))
            copy.cut = []
            copies[key] = copy
        for key in self._copies.keys() - copies.keys():
            self._disk.rmtree(self._copies[key].target)
        self._copies = copies

    def _leader_directory(self, partition: PartitionImage, name: str) -> str:
        """The data directory with the replica of the leader, or of an in-sync replica without a leader."""
        eligible = (partition.leader, *partition.isr, *partition.eligible_leader_replicas, *partition.last_known_elr)
        for node_id in eligible:
            for directory in self._source.directories:
                path = os.path.join(directory.path, name)
                if directory.meta.node_id == node_id and self._disk.is_dir(path):
                    return directory.path
            if node_id == partition.leader and node_id >= 0:
                raise SourceChanged  # it is being created, or moves to another directory
        raise SourceChanged

    def _compacted(self, image: MetadataImage, cleaned: list[Offsets]) -> list[TopicPartition]:
        """The partitions that a cleaner may rewrite during the copy."""
        topics = {name for name in image.topics if "compact" in image.topic_configs(name).get("cleanup.policy", "")}
        topics |= INTERNAL_TOPICS
        return [key for key in self._copies if key[0] in topics or any(key in each for each in cleaned)]

    def _measure(self) -> bool:
        """Measure all ends; returns whether no transaction was decided meanwhile. Raises SourceChanged."""
        ranks = {topic: rank for rank, topic in enumerate(_FIRST_MEASURED)}
        ordered = sorted(self._copies.values(), key=lambda copy: ranks.get(copy.key[0], len(ranks)))
        states = [copy for copy in ordered if copy.key[0] == TRANSACTION_STATE_TOPIC]
        for _ in range(MEASUREMENTS):
            for copy in ordered:
                copy.measure()
            if all(copy.is_at_end() for copy in states):
                return True
            time.sleep(MEASUREMENT_PAUSE_S)
        return False

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _offsets(self, name: str) -> list[Offsets]:
        """A checkpoint of each data directory; a damaged one counts as empty. Raises OSError."""
        found: list[Offsets] = []
        for directory in self._source.directories:
            try:
                found.append(read_offsets(self._disk, f"{directory.path}/{name}"))
            except CheckpointCorruption:
                found.append({})
        return found

    def _write_checkpoints(self, cleaned_before: list[Offsets]) -> None:
        """Write the checkpoints of all partitions; no offset exceeds the end of the copied log."""
        points = self._offsets(names.RECOVERY_POINT_CHECKPOINT)
        cleaned_after = self._offsets(names.CLEANER_OFFSET_CHECKPOINT)
        # A log that was first cleaned during the copy may have gaps, but is not clean.
        both = zip(cleaned_before, cleaned_after, strict=True)
        cleaned = [{key: before.get(key, 0) for key in after} for before, after in both]
        recovery_points = self._of_copies(points, default=0)
        if all(NO_GAPS_ABOVE in each for each in points):
            recovery_points[NO_GAPS_ABOVE] = 0
        contents: Mapping[str, Offsets] = {
            names.RECOVERY_POINT_CHECKPOINT: recovery_points,
            names.HIGH_WATERMARK_CHECKPOINT: self._of_copies(self._offsets(names.HIGH_WATERMARK_CHECKPOINT), default=0),
            names.LOG_START_OFFSET_CHECKPOINT: self._of_copies(self._offsets(names.LOG_START_OFFSET_CHECKPOINT)),
            names.CLEANER_OFFSET_CHECKPOINT: self._of_copies(cleaned),
        }
        for name, offsets in contents.items():
            self._disk.write_atomic(os.path.join(self._backup, PARTITIONS, name), format_offsets(offsets))

    def _of_copies(self, checkpoints: list[Offsets], default: int | None = None) -> Offsets:
        """The entries of the copied replicas."""
        by_path = {directory.path: each for directory, each in zip(self._source.directories, checkpoints, strict=True)}
        found: Offsets = {}
        for key, copy in self._copies.items():
            offset = by_path[os.path.dirname(copy.source)].get(key, default)
            if offset is not None:
                found[key] = min(offset, copy.end_offset)
        return found

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _copy_metadata(self) -> StoredMetadata:
        """Copy the longest metadata log; returns its content. Raises OperatorError, SourceChanged, OSError."""
        path, _ = newest_metadata(self._disk, self._source)
        source, target = f"{path}/{DIRECTORY}", os.path.join(self._backup, DIRECTORY)
        self._disk.rmtree(target)
        log = PartitionCopy((names.METADATA_TOPIC, 0), source, target)
        log.measure()
        log.copy_log(self._disk)
        log.copy_state(self._disk)
        try:
            kept = [snapshot.file_name for snapshot in list_snapshots(self._disk, source)]
            for name in (*kept, *([QUORUM_STATE] if self._disk.exists(f"{source}/{QUORUM_STATE}") else [])):
                self._disk.write_atomic(f"{target}/{name}", self._disk.read_bytes(f"{source}/{name}"))
        except FileNotFoundError as error:
            raise SourceChanged from error
        measured = log.cut
        log.check()
        if log.cut != measured:  # a newer snapshot covers the records that are gone
            raise SourceChanged
        copied = read_metadata(self._disk, self._backup)
        refuse_part_of_cluster(self._source, copied)
        return copied

    # -- result ------------------------------------------------------------------------------------------------------

    def _manifest(self, image: MetadataImage) -> Manifest:
        partitions = []
        for key, partition in _partitions(image):
            copy = self._copies[key]
            self._on_progress(f"checksums of {names.partition_dir(*key)}")
            partitions.append(
                CopiedPartition(
                    names.partition_dir(*key),
                    copy.end_offset,
                    self._places(copy, partition),
                    self._described(copy.target),
                )
            )
        checkpoints = os.path.join(self._backup, PARTITIONS)
        self._disk.fsync_dir(checkpoints)
        plan = self._source.plan
        return Manifest(
            directories=tuple(
                CopiedDirectory(
                    each.meta,
                    _broker_epoch(image, each),
                    each.path in self._source.metadata_paths,
                    tuple(sorted(remembered(self._disk, each.path))),
                )
                for each in self._source.directories
            ),
            plan=None if plan is None else plan.content().decode(),
            metadata=self._described(os.path.join(self._backup, DIRECTORY)),
            checkpoints=tuple(
                described(checkpoints, name)
                for name in self._disk.listdir(checkpoints)
                if not self._disk.is_dir(os.path.join(checkpoints, name))
            ),
            partitions=tuple(partitions),
            split_transactions=self._split_transactions,
        )

    def _described(self, directory: str) -> tuple[CopiedFile, ...]:
        """The files of a directory, with names that are durable."""
        self._disk.fsync_dir(directory)
        return tuple(described(directory, name) for name in self._disk.listdir(directory))

    def _places(self, copy: PartitionCopy, partition: PartitionImage) -> tuple[int, ...]:
        """The numbers of the data directories that have a replica. In a cluster each node has one directory."""
        directories = self._source.directories
        if self._source.plan is None:
            return tuple(number for number, each in enumerate(directories) if each.path == os.path.dirname(copy.source))
        return tuple(number for number, each in enumerate(directories) if each.meta.node_id in partition.replicas)


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            yield (topic.name, index), partition


def _leaders(image: MetadataImage) -> dict[TopicPartition, tuple[bytes, int, int]]:
    """Topic id, leader and leader epoch of each partition."""
    return {
        (topic.name, index): (topic.topic_id, partition.leader, partition.leader_epoch)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    }


def _broker_epoch(image: MetadataImage, directory: NodeDirectory) -> int:
    broker = image.brokers.get(directory.meta.node_id)
    return -1 if broker is None else broker.broker_epoch
