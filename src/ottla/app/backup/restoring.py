"""Restore of a backup into empty data directories.

Invariants:
- Nothing that exists is changed: a target is missing or empty.
- Each file is compared with size and checksum of the manifest.
- `meta.properties`, and `cluster.json` for `--brokers`, are written last. Without them a start refuses the directory.

All replicas of a partition, and all metadata logs, get the same content: nothing that one node acknowledged can be
missing on another. Votes and the former leader of the quorum are removed; the epoch stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ottla.app.backup.files import READ_FLAGS, CopiedFile, SourceChanged, copy_file, digest
from ottla.app.backup.manifest import MANIFEST, PARTITIONS, CopiedDirectory, Manifest
from ottla.app.local_cluster import LocalCluster, parse_plan, write_plan
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import ZERO_UUID, uuid_to_string
from ottla.common.platform.disk import Disk, FileLock
from ottla.metadata.log import NO_NODE
from ottla.quorum.election_file import decode_fields, encode_fields
from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE
from ottla.storage.files import names
from ottla.storage.files.checkpoints import (
    NO_GAPS_ABOVE,
    CheckpointCorruption,
    LastIncarnation,
    format_offsets,
    format_running,
    parse_offsets,
)
from ottla.storage.files.directories import make_durably
from ottla.storage.files.log_dir_ids import remember
from ottla.storage.files.meta_properties import write_meta_properties

OnProgress = Callable[[str], None]


class Target(NamedTuple):
    """Data directories to fill, in the order of the manifest."""

    paths: tuple[str, ...]
    plan: LocalCluster | None


def plan_target(disk: Disk, manifest: Manifest, paths: Sequence[str]) -> Target:
    """The directories for the backup; `paths` are those of the settings. Raises OperatorError if one is in use."""
    if manifest.plan is not None:
        if len(paths) != 1:
            raise OperatorError("the backup is of a cluster, which has one directory: specify it with --data-dir")
        _refuse_used(disk, paths)
        plan = parse_plan(paths[0], manifest.plan.encode())
        if len(plan.brokers) != len(manifest.directories):
            raise OperatorError(f"{MANIFEST} has other directories than brokers: use another backup")
        return Target(tuple(plan.directory(broker) for broker in plan.brokers), plan)
    if len(paths) != len(manifest.directories):
        raise OperatorError(
            f"the backup has {len(manifest.directories)} data directories, and the settings have {len(paths)}: specify "
            "as many with log.dirs in --config"
        )
    _refuse_used(disk, paths)
    return Target(tuple(paths), None)


def _refuse_used(disk: Disk, paths: Collection[str]) -> None:
    for path in paths:
        if os.path.lexists(path) and (not disk.is_dir(path) or disk.listdir(path)):
            raise OperatorError(f"{path} exists and is not empty: restore into a new directory with --data-dir")


class Restore:
    """One restore of `backup` to a target."""

    def __init__(self, disk: Disk, backup: str, manifest: Manifest, target: Target, on_progress: OnProgress) -> None:
        self._disk = disk
        self._backup = backup
        self._manifest = manifest
        self._target = target
        self._on_progress = on_progress

    def run(self, cluster_id: str) -> None:
        """Fill the directories and give them their identity. Raises OperatorError, OSError."""
        locks: list[FileLock] = []
        plan = self._target.plan
        try:
            for path in dict.fromkeys((*([plan.data_dir] if plan is not None else []), *self._target.paths)):
                make_durably(self._disk, path)
                locks.append(self._disk.lock(os.path.join(path, names.LOCK_FILE)))
            # First: a start refuses a directory with them that has no identity.
            self._write_checkpoints()
            for number, partition in enumerate(self._manifest.partitions, 1):
                source = os.path.join(self._backup, PARTITIONS, partition.name)
                self._copy(source, partition.files, partition.directories, partition.name)
                self._on_progress(f"{number} of {len(self._manifest.partitions)} partitions")
            with_metadata = [number for number, each in enumerate(self._manifest.directories) if each.has_metadata]
            self._copy(os.path.join(self._backup, DIRECTORY), self._manifest.metadata, with_metadata, DIRECTORY)
            self._write_identity(cluster_id)
        except BlockingIOError as error:
            raise OperatorError(f"{self._target.paths[0]} is in use: choose another directory") from error
        finally:
            for lock in locks:
                lock.release()

    def _copy(self, source: str, files: Sequence[CopiedFile], directories: Collection[int], name: str) -> None:
        """Copy the files of a log to the directories. Raises OperatorError, OSError."""
        targets = [os.path.join(self._target.paths[number], name) for number in directories]
        for target in targets:
            self._disk.makedirs(target)
        for file in files:
            if file.name == QUORUM_STATE:
                self._write_election_state(self._content(source, file), targets)
                continue
            path = os.path.join(source, file.name)
            descriptor = _open(path)
            try:
                _verify(descriptor, path, file)
                for target in targets:
                    copy_file(descriptor, os.path.join(target, file.name), file.size)
            except SourceChanged as error:
                raise _damaged(path) from error
            finally:
                os.close(descriptor)
        for target in targets:
            self._disk.fsync_dir(target)

    def _content(self, source: str, file: CopiedFile) -> bytes:
        path = os.path.join(source, file.name)
        descriptor = _open(path)
        try:
            _verify(descriptor, path, file)
            return os.pread(descriptor, file.size, 0)
        finally:
            os.close(descriptor)

    def _write_election_state(self, data: bytes, targets: Collection[str]) -> None:
        """Write `quorum-state` without leader and vote: another node may have had the copied one."""
        fields = decode_fields(data) | {"leaderId": NO_NODE, "votedId": NO_NODE}
        if "votedDirectoryId" in fields:
            fields["votedDirectoryId"] = uuid_to_string(ZERO_UUID)
        for target in targets:
            self._disk.write_atomic(os.path.join(target, QUORUM_STATE), encode_fields(fields))

    def _write_checkpoints(self) -> None:
        source = os.path.join(self._backup, PARTITIONS)
        present: list[set[str]] = [set() for _ in self._target.paths]
        for partition in self._manifest.partitions:
            for number in partition.directories:
                present[number].add(partition.name)
        for file in self._manifest.checkpoints:
            path = os.path.join(source, file.name)
            try:
                offsets = parse_offsets(self._content(source, file), path)
            except CheckpointCorruption as error:
                raise _damaged(path) from error
            for directory, held in zip(self._target.paths, present, strict=True):
                own = {
                    key: offset
                    for key, offset in offsets.items()
                    if key == NO_GAPS_ABOVE or names.partition_dir(*key) in held
                }
                self._disk.write_atomic(os.path.join(directory, file.name), format_offsets(own))

    def _write_identity(self, cluster_id: str) -> None:
        directories = self._manifest.directories
        for path, each in zip(self._target.paths, directories, strict=True):
            self._write_running(path, each)
            if each.siblings:
                remember(self._disk, path, each.siblings)
        for path, each in zip(self._target.paths, directories, strict=True):
            write_meta_properties(self._disk, path, each.meta._replace(cluster_id=cluster_id))
        if self._target.plan is not None:
            write_plan(self._disk, self._target.plan._replace(cluster_id=cluster_id))

    def _write_running(self, path: str, directory: CopiedDirectory) -> None:
        """Note that the registered incarnation lost nothing, as after the end of its process alone.

        Otherwise the controller would remove all replicas from the ISR.
        """
        if directory.broker_epoch >= 0:
            data = format_running(LastIncarnation(directory.broker_epoch), self._disk.boot_id())
            self._disk.write_atomic(os.path.join(path, names.RUNNING_FILE), data)


def _open(path: str) -> int:
    try:
        return os.open(path, READ_FLAGS)
    except FileNotFoundError as error:
        raise _damaged(path) from error


def _verify(descriptor: int, path: str, file: CopiedFile) -> None:
    if os.fstat(descriptor).st_size != file.size or digest(descriptor, file.size, path) != file.sha256:
        raise _damaged(path)


def _damaged(path: str) -> OperatorError:
    return OperatorError(
        f"{path} differs from size or checksum in {MANIFEST}: remove the directories restored so far, and use another "
        "backup"
    )
