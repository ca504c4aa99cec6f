"""How far a quorum has brought ZooKeeper's tree while a cluster migrates to it (KIP-866)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.znodes.fields import MAX_INT64, NONE, Fields, encode


class MigrationProgress(NamedTuple):
    """What lies in `/migration`: who writes, and up to which record of the metadata log the tree has everything."""

    controller_id: int
    controller_epoch: int
    """Of the quorum."""
    metadata_offset: int = NONE
    metadata_epoch: int = NONE


def encode_migration(progress: MigrationProgress) -> bytes:
    """Version 0."""
    return encode(
        {
            "version": 0,
            "kraft_controller_id": progress.controller_id,
            "kraft_controller_epoch": progress.controller_epoch,
            "kraft_metadata_offset": progress.metadata_offset,
            "kraft_metadata_epoch": progress.metadata_epoch,
        }
    )


def decode_migration(path: str, data: bytes) -> MigrationProgress:
    """Inverse of `encode_migration`; raises ProtocolError."""
    fields = Fields.parsed(path, data, range(1))
    return MigrationProgress(
        fields.number("kraft_controller_id", NONE),
        fields.number("kraft_controller_epoch", NONE),
        fields.number("kraft_metadata_offset", NONE, MAX_INT64),
        fields.number("kraft_metadata_epoch", NONE),
    )
