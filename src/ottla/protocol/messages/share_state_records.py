"""Keys and values of the records in `__share_group_state`, as `kafka-dump-log --share-group-state-decoder` reads them.

A key is the record type (16 bits) and the body in its version 0; a value is its version (16 bits) and the body, or null
for a tombstone. `ottla.coordinator.share.records` implements the framing.
"""

from __future__ import annotations

from ottla.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, array, f, message, struct


@struct
class StateBatch:
    first_offset: int = f(INT64, "0+")
    last_offset: int = f(INT64, "0+")
    delivery_state: int = f(INT8, "0+")
    delivery_count: int = f(INT16, "0+")


@message("0", api_key=0)
class ShareSnapshotKey:
    group_id: str = f(STRING, "0")
    topic_id: bytes = f(UUID, "0")
    partition: int = f(INT32, "0")


@message("0", flexible="0+", api_key=0)
class ShareSnapshotValue:
    snapshot_epoch: int = f(INT32, "0+")
    state_epoch: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")
    delivery_complete_count: int = f(INT32, "0+", tag=0, default=-1)
    create_timestamp: int = f(INT64, "0+")
    write_timestamp: int = f(INT64, "0+")
    state_batches: list[StateBatch] = f(array(StateBatch), "0+")


@message("0", api_key=1)
class ShareUpdateKey:
    group_id: str = f(STRING, "0")
    topic_id: bytes = f(UUID, "0")
    partition: int = f(INT32, "0")


@message("0", flexible="0+", api_key=1)
class ShareUpdateValue:
    snapshot_epoch: int = f(INT32, "0+")
    leader_epoch: int = f(INT32, "0+")
    start_offset: int = f(INT64, "0+")
    delivery_complete_count: int = f(INT32, "0+", tag=0, default=-1)
    state_batches: list[StateBatch] = f(array(StateBatch), "0+")
