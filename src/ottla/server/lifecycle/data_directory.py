"""Safety checks of a node's data directory before the start.

A directory that is not mounted, incompletely copied or owned by another node looks like a new one. Invariant: a start
that would hide data, or join a quorum with lost state, is refused without changes.

Not here: the check of `meta.properties` (`storage.files.meta_properties`), and the directories of a cluster on one
machine (`app.local_cluster`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_zookeeper import MIGRATION, ZOOKEEPER_CONNECT
from ottla.common.errors import DataDirectoryError, OperatorError
from ottla.common.kafka.ids import uuid_from_string
from ottla.common.platform.clock import Clock, Rng
from ottla.common.platform.disk import Disk
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.quorum.raft_types import ReplicaKey, Voter
from ottla.storage.directory.log_manager import LogManager
from ottla.storage.files.directories import partition_directories, shown, unformatted_metadata_directory
from ottla.storage.files.meta_properties import QUORUM, ZOOKEEPER, is_of_zookeeper, random_id
from ottla.storage.files.names import CLEAN_SHUTDOWN_FILE, LOG_SUFFIX, META_PROPERTIES, METADATA_DIR

logger = logging.getLogger(__name__)


def format_or_refuse(disk: Disk, clock: Clock, rng: Rng, config: BrokerConfig, controllers: Sequence[Endpoint]) -> None:
    """Format a new node's directory: only a sole named controller may create a cluster id; other nodes can't know it.

    `controllers` are this node's listeners of the controller, as advertised. Raises OperatorError, also for a
    formatted directory without its metadata log, and OSError.
    """
    directory = config.metadata_log_dir
    if disk.exists(f"{directory}/{META_PROPERTIES}"):
        _refuse_lost_metadata(disk, directory)
        return
    for other in config.log_dirs:
        if disk.exists(f"{other}/{META_PROPERTIES}"):
            raise unformatted_metadata_directory(directory, other)
    if config.names_other_controllers:
        raise DataDirectoryError(
            f"the data directory {directory} is not formatted; mount its disk, format it with the cluster's id by "
            "`ottla format`, or remove controller.quorum.bootstrap.servers for a single node"
        )
    from ottla.quorum.format import format_directory  # imported here, like everything that only a cluster's node needs

    directory_id = random_id(rng)
    own = Voter.at(ReplicaKey(config.node_id, uuid_from_string(directory_id)), controllers)
    format_directory(
        disk,
        clock,
        rng,
        directory,
        node_id=config.node_id,
        cluster_id=random_id(rng),
        directory_id=directory_id,
        voters=() if config.configured_voters else (own,),
    )


def _refuse_lost_metadata(disk: Disk, directory: str) -> None:
    """Refuse a missing metadata log: a voter without it could elect a leader that lacks committed records.

    Formatting creates the directory of the metadata log, and a clean stop leaves a segment in it.
    """
    metadata = f"{directory}/{METADATA_DIR}"
    if disk.exists(metadata):
        began = any(name.endswith(LOG_SUFFIX) for name in disk.listdir(metadata))
        if began or not disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
            return
    raise DataDirectoryError(
        f"the metadata log {metadata} is missing, but the data directory is formatted: restore it from a copy, or set "
        "log.dirs (--data-dir) to an empty directory and format that with `ottla format --no-initial-controllers`"
    )


def version_of_migrated(disk: Disk, config: BrokerConfig) -> int:
    """The version of `meta.properties` with which a quorum's node starts: 0 for a broker that came from ZooKeeper.

    Raises OperatorError if that broker has not followed a quorum yet, so that its partitions are unknown here.
    """
    directory = config.metadata_log_dir
    if not is_of_zookeeper(disk, directory):
        return QUORUM
    if config.is_controller:
        raise DataDirectoryError(
            f"the data directory {directory} belongs to a broker on ZooKeeper, and controllers need their own "
            "directories: set process.roles=broker, or set log.dirs (--data-dir) to another directory"
        )
    if not disk.exists(f"{directory}/{METADATA_DIR}"):
        raise _not_migrated(directory)
    return ZOOKEEPER


def settle_migrated(logs: LogManager, config: BrokerConfig, image: MetadataImage) -> None:
    """Check a broker that came from ZooKeeper: `image` is the quorum's metadata, not applied here yet.

    If the migration is final, finalizes this broker's, too. Raises OperatorError if the quorum has not taken over.
    """
    directory = config.metadata_log_dir
    if not image.zk_migration_complete:
        raise _not_migrated(directory)
    if image.zk_migration_state is ZkMigrationState.POST_MIGRATION:
        logger.info("the migration from ZooKeeper is final: %s is converted to a quorum node's directory", directory)
        logs.become_quorums()


def refuse_final(image: MetadataImage) -> None:
    """Raise OperatorError for a broker configured for a migration from ZooKeeper that is final."""
    if image.zk_migration_state is ZkMigrationState.POST_MIGRATION:
        raise migration_is_final()


def migration_is_final() -> OperatorError:
    """The error for a broker configured for a final migration."""
    return DataDirectoryError(
        f"the migration of this cluster from ZooKeeper is final, but {MIGRATION} is set: remove that and "
        f"{ZOOKEEPER_CONNECT}, and set process.roles=broker"
    )


def _not_migrated(directory: str) -> OperatorError:
    return DataDirectoryError(
        f"the data directory {directory} belongs to a broker on ZooKeeper, and no quorum has taken over its cluster: "
        f"start it with {ZOOKEEPER_CONNECT} and {MIGRATION} first, or set log.dirs (--data-dir) to another directory"
    )


def forget_quorum(disk: Disk, config: BrokerConfig) -> None:
    """Remove a quorum's metadata log from a broker that is only on ZooKeeper, so that a later migration starts clean.

    Raises OSError.
    """
    for directory in config.log_dirs:
        path = f"{directory}/{METADATA_DIR}"
        try:
            is_there = disk.exists(path)
        except OSError:
            continue  # opening the logs of this directory reports the failed disk; other directories are processed
        if is_there:
            logger.warning(
                "removing the metadata log %s of a reverted migration: this broker uses only ZooKeeper", path
            )
            disk.rmtree(path)


def refuse_partitions(disk: Disk, config: BrokerConfig) -> None:
    """Raise OperatorError for partitions beside an empty metadata log, which would treat them as stray.

    Raises OSError.
    """
    its_place = config.metadata_log_dir
    others = [each for each in config.log_dirs if each != its_place and disk.exists(f"{each}/{METADATA_DIR}")]
    for directory in config.log_dirs:
        found = partition_directories(disk, directory)
        if found and others:
            raise DataDirectoryError(
                f"the partitions in {directory} ({shown(found)}) belong to the metadata log in {others[0]}, but that "
                f"in {its_place} is empty: name {others[0]} first in log.dirs, or by metadata.log.dir"
            )
        if found:
            its = "its metadata log" if directory == its_place else f"in {its_place}"
            raise DataDirectoryError(
                f"the data directory {directory} contains partitions ({shown(found)}), but {its} {METADATA_DIR} "
                "is empty: restore it from a copy, or set log.dirs (--data-dir) to another directory"
            )
