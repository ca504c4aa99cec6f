"""Metadata records of the migration state (KIP-866)."""

from __future__ import annotations

from ottla.metadata.image import MetadataImage, ZkMigrationState
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.metadata_records import ZkMigrationStateRecord


def migration_records(image: MetadataImage, *, enabled: bool) -> list[ApiMessageAndVersion]:
    """Return the first records of a new active controller: a new quorum is in PRE_MIGRATION, a finished one leaves
    MIGRATION.

    `enabled`: `zookeeper.metadata.migration.enable`.
    """
    if enabled and not image.features:
        return [migration_state(ZkMigrationState.PRE_MIGRATION)]
    if not enabled and image.zk_migration_state is ZkMigrationState.MIGRATION:
        return [migration_state(ZkMigrationState.POST_MIGRATION)]
    return []


def migration_state(state: ZkMigrationState) -> ApiMessageAndVersion:
    """Return the record of a migration state."""
    return versioned(ZkMigrationStateRecord(zk_migration_state=state))
