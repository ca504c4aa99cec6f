"""The image of a snapshot, built while its records are read.

Invariant: an image is returned only after the whole snapshot was read and checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import ApiMessageAndVersion
from ottla.quorum.raft_types import Voter
from ottla.quorum.snapshot_file import SnapshotBatches, SnapshotId, replay_snapshot


class LoadedSnapshot(NamedTuple):
    """The content of a snapshot."""

    image: MetadataImage
    voters: tuple[Voter, ...]


def load_snapshot(snapshot: SnapshotId, batches: SnapshotBatches) -> LoadedSnapshot:
    """Load a snapshot; raises as `replay_snapshot`, and InvariantError for a record that does not fit."""
    delta = MetadataDelta(EMPTY_IMAGE)
    voters = replay_snapshot(batches, lambda record: delta.replay(record.message))
    return LoadedSnapshot(_image(snapshot, delta), voters)


def image_of(snapshot: SnapshotId, records: Iterable[ApiMessageAndVersion]) -> MetadataImage:
    """The image of a snapshot with these records."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record.message)
    return _image(snapshot, delta)


def _image(snapshot: SnapshotId, delta: MetadataDelta) -> MetadataImage:
    return delta.apply(snapshot.end_offset - 1, snapshot.epoch, spent=True)[0]
