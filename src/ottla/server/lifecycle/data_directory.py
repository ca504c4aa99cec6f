"""Whether a node may begin, or go on, in the data directory that it was given.

A directory that is not mounted, was copied in part or belongs to somebody else looks like a new one. Invariant: a start
that would hide data, or take part in a quorum as if it had forgotten nothing, is refused and leaves all as it was.

Left out: whether `meta.properties` fits (`storage.files.meta_properties`), the directories of a cluster on one machine
(`app.local_cluster`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_zookeeper import MIGRATION, ZOOKEEPER_CONNECT
from ottla.common.errors import OperatorError
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
    """For a node of a cluster: the only controller that is named may make up one; any other can't know its id.

    `controllers` are this node's listeners of the controller, as advertised. Raises OperatorError, also where a
    formatted directory lost its metadata log, and OSError.
    """
    directory = config.metadata_log_dir
    if disk.exists(f"{directory}/{META_PROPERTIES}"):
        _refuse_lost_metadata(disk, directory)
        return
    for other in config.log_dirs:
        if disk.exists(f"{other}/{META_PROPERTIES}"):
            raise unformatted_metadata_directory(directory, other)
    if config.names_other_controllers:
        raise OperatorError(
            f"the data directory {directory} is not formatted; mount its disk, format it with the cluster's id by "
            "`ottla format`, or remove controller.quorum.bootstrap.servers for a single node"
        )
    from ottla.quorum.format import format_directory  # here, as everything that only a node of a cluster needs

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
    """A voter that forgot its votes and its log could elect a leader without what is committed.

    Formatting makes the directory of the metadata log, and a clean stop leaves a segment in it.
    """
    metadata = f"{directory}/{METADATA_DIR}"
    if disk.exists(metadata):
        began = any(name.endswith(LOG_SUFFIX) for name in disk.listdir(metadata))
        if began or not disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
            return
    raise OperatorError(
        f"the metadata log {metadata} is gone, though the data directory is formatted: restore it from a copy, or set "
        "log.dirs (--data-dir) to an empty directory and format that with `ottla format --no-initial-controllers`"
    )


def version_of_migrated(disk: Disk, config: BrokerConfig) -> int:
    """The version of `meta.properties` with which a node of a quorum starts: 0 for a broker that came from ZooKeeper.

    Raises OperatorError where that has followed no quorum yet, so that nothing here says what its partitions are.
    """
    directory = config.metadata_log_dir
    if not is_of_zookeeper(disk, directory):
        return QUORUM
    if config.is_controller:
        raise OperatorError(
            f"the data directory {directory} is that of a broker on ZooKeeper, and controllers of a quorum have "
            "directories of their own: set process.roles=broker, or set log.dirs (--data-dir) to another directory"
        )
    if not disk.exists(f"{directory}/{METADATA_DIR}"):
        raise _not_migrated(directory)
    return ZOOKEEPER


def settle_migrated(logs: LogManager, config: BrokerConfig, image: MetadataImage) -> None:
    """For a broker that came from ZooKeeper: `image` is what the quorum says, and nothing here was changed by it yet.

    Once the migration is final, so is this broker's. Raises OperatorError where the quorum has not taken over.
    """
    directory = config.metadata_log_dir
    if not image.zk_migration_complete:
        raise _not_migrated(directory)
    if image.zk_migration_state is ZkMigrationState.POST_MIGRATION:
        logger.info("the migration from ZooKeeper is final: %s becomes that of a node with a quorum", directory)
        logs.become_quorums()


def refuse_final(image: MetadataImage) -> None:
    """Raise OperatorError for a broker that takes part in a migration from ZooKeeper which is over."""
    if image.zk_migration_state is ZkMigrationState.POST_MIGRATION:
        raise migration_is_final()


def migration_is_final() -> OperatorError:
    """What a broker that takes part in the migration is told when that is over."""
    return OperatorError(
        f"the migration of this cluster from ZooKeeper is final, and {MIGRATION} is set: remove that and "
        f"{ZOOKEEPER_CONNECT}, and set process.roles=broker"
    )


def _not_migrated(directory: str) -> OperatorError:
    return OperatorError(
        f"the data directory {directory} is that of a broker on ZooKeeper whose cluster no quorum has taken over yet: "
        f"start it with {ZOOKEEPER_CONNECT} and {MIGRATION} first, or set log.dirs (--data-dir) to another directory"
    )


def forget_quorum(disk: Disk, config: BrokerConfig) -> None:
    """For a broker that is on ZooKeeper alone: what a quorum had told it goes, so that another one may do so anew.

    Raises OSError.
    """
    for directory in config.log_dirs:
        path = f"{directory}/{METADATA_DIR}"
        try:
            is_there = disk.exists(path)
        except OSError:
            continue  # who opens the logs of this directory says that its disk failed; those of others go on
        if is_there:
            logger.warning("this broker is on ZooKeeper alone: the copy of a quorum's metadata log in %s goes", path)
            disk.rmtree(path)


def refuse_partitions(disk: Disk, config: BrokerConfig) -> None:
    """Raise OperatorError for partitions beside a metadata log that knows nothing, which would take them for strays.

    Raises OSError.
    """
    its_place = config.metadata_log_dir
    others = [each for each in config.log_dirs if each != its_place and disk.exists(f"{each}/{METADATA_DIR}")]
    for directory in config.log_dirs:
        found = partition_directories(disk, directory)
        if found and others:
            raise OperatorError(
                f"the metadata log of the partitions in {directory} ({shown(found)}) lies in {others[0]}, and that in "
                f"{its_place} knows of nothing: name {others[0]} first in log.dirs, or by metadata.log.dir"
            )
        if found:
            its = "its metadata log" if directory == its_place else f"in {its_place}"
            raise OperatorError(
                f"the data directory {directory} holds partitions ({shown(found)}), and {its} {METADATA_DIR} "
                "knows of nothing: restore that from a copy, or set log.dirs (--data-dir) to another directory"
            )
