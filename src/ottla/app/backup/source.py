"""Directories of a node or of a local cluster, and their newest metadata.

Invariant: all brokers and voters of the cluster are in the directories. A copy of some nodes of a cluster lacks votes
and records that the others acknowledged, and must never rejoin them.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ottla.app.adoption.metadata import StoredMetadata, read_metadata
from ottla.app.backup.files import SourceChanged
from ottla.app.local_cluster import PLAN_FILE, LocalCluster, parse_plan
from ottla.app.settings import read_settings
from ottla.common.errors import OperatorError
from ottla.common.platform.disk import Disk
from ottla.quorum.metadata_log import CATCHING_UP_FILE, DIRECTORY
from ottla.storage.files.directories import shown
from ottla.storage.files.meta_properties import MetaProperties, is_of_zookeeper, read_meta_properties


class NodeDirectory(NamedTuple):
    """One data directory."""

    path: str
    meta: MetaProperties


class Source(NamedTuple):
    """All data directories of a node or cluster."""

    directories: tuple[NodeDirectory, ...]
    metadata_paths: tuple[str, ...]
    """Data directories with a metadata log."""
    plan: LocalCluster | None
    """The plan of `--brokers`, which has one directory a broker."""


def node_directories(config: str | None, data_dir: str | None) -> list[str]:
    """The data directories of a node's settings, that of the metadata log first. Raises OperatorError."""
    settings = read_settings(config, {}, data_dir)
    paths = [settings.get("metadata.log.dir", ""), *settings["log.dirs"].split(",")]
    return list(dict.fromkeys(filter(None, paths)))


def find_source(disk: Disk, config: str | None, data_dir: str | None) -> Source:
    """The directories to copy. Raises OperatorError for one that is not formatted, and OSError."""
    paths = node_directories(config, data_dir)
    plan_path = os.path.join(paths[0], PLAN_FILE)
    if len(paths) == 1 and disk.exists(plan_path):
        plan = parse_plan(paths[0], disk.read_bytes(plan_path))
        directories = tuple(_directory(disk, plan.directory(broker)) for broker in plan.brokers)
        return Source(directories, tuple(each.path for each in directories), plan)
    directories = tuple(_directory(disk, path) for path in paths)
    return Source(directories, (directories[0].path,), None)


def _directory(disk: Disk, path: str) -> NodeDirectory:
    if is_of_zookeeper(disk, path):
        raise OperatorError(
            f"{path} belongs to a broker on ZooKeeper, which stores the metadata: copy its topics with `ottla mirror`"
        )
    meta = read_meta_properties(disk, path)
    if meta is None:
        raise OperatorError(
            f"{path} is not the data directory of a node: specify it with --data-dir, or several with --config"
        )
    return NodeDirectory(path, meta)


def newest_metadata(disk: Disk, source: Source) -> tuple[str, StoredMetadata]:
    """The data directory with the longest metadata log, and its content.

    Every committed record is in the log of a majority, so the one with the highest epoch and offset has all of them.
    Raises OperatorError, SourceChanged.
    """
    found: list[tuple[str, StoredMetadata]] = []
    for path in source.metadata_paths:
        log = f"{path}/{DIRECTORY}"
        if not disk.exists(log) or disk.exists(f"{log}/{CATCHING_UP_FILE}"):
            continue
        try:
            found.append((path, read_metadata(disk, path)))
        except FileNotFoundError as error:
            raise SourceChanged from error
    if not found:
        paths = shown(source.metadata_paths)
        raise OperatorError(f"no complete metadata log is in {paths}: start the cluster until it has caught up")
    path, metadata = max(found, key=lambda each: (each[1].image.epoch, each[1].image.offset))
    refuse_part_of_cluster(source, metadata)
    return path, metadata


def refuse_part_of_cluster(source: Source, metadata: StoredMetadata) -> None:
    """Raise OperatorError if another node has a vote, a registration or a replica."""
    here = {directory.meta.node_id for directory in source.directories}
    nodes = {*metadata.voter_ids, *metadata.image.brokers}
    for topic in metadata.image.topics.values():
        for partition in topic.partitions.values():
            nodes.update(partition.replicas)
    others = sorted(nodes - here)
    if others:
        raise OperatorError(
            f"{source.directories[0].path} is a part of a cluster that also has the nodes "
            f"{shown([str(node) for node in others])}, and a copy of a part must never be started: copy the topics "
            "with `ottla mirror`, or, if a node no longer exists, run `ottla cluster decommission ID --unregister`"
        )
