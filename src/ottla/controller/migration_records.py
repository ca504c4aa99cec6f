"""What says in the metadata log how far a migration from ZooKeeper has come (KIP-866)."""

from __future__ import annotations

from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import ZkMigrationStateRecord


def migration_records(image: MetadataImage, *, enabled: bool) -> list[ApiMessageAndVersion]:
    """What an active controller writes first: a new quorum waits for ZooKeeper's brokers, an old one has done with it.

    `enabled`: `zookeeper.metadata.migration.enable`.
    """
    if enabled and not image.features:
        return [migration_state(ZkMigrationState.PRE_MIGRATION)]
    if not enabled and image.zk_migration_state is ZkMigrationState.MIGRATION:
        return [migration_state(ZkMigrationState.POST_MIGRATION)]
    return []


def migration_state(state: ZkMigrationState) -> ApiMessageAndVersion:
    """The record of that state."""
    return versioned(ZkMigrationStateRecord(zk_migration_state=state))
