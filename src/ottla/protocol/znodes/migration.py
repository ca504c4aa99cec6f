"""Progress of a quorum in writing ZooKeeper's tree during a migration (KIP-866)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.znodes.fields import MAX_INT64, NONE, Fields, encode


class MigrationProgress(NamedTuple):
    """Contents of `/migration`: the writing controller, and the metadata offset up to which the tree is complete."""

    controller_id: int
    controller_epoch: int
    """Epoch of the quorum."""
    metadata_offset: int = NONE
    metadata_epoch: int = NONE


def encode_migration(progress: MigrationProgress) -> bytes:
    """Encode version 0."""
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
