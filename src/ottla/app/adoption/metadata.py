"""Metadata log of a stopped node, read from its files: image, voters, and unknown records.

Invariant: nothing is written. The newest snapshot and the batches after it are read, committed or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.app.adoption.partitions import TruncationPoint, inspect_partition, stored_batches
from ottla.common.errors import InvariantError, KafkaError, OperatorError, ProtocolError
from ottla.common.platform.disk import Disk
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import decode_record
from ottla.quorum.control import read_voters
from ottla.quorum.election_file import decode_configured_voters, decode_election_state
from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE, list_snapshots
from ottla.quorum.opening import MetadataTransactions
from ottla.quorum.raft_types import Voter
from ottla.record.batch import BatchView, iter_batches
from ottla.record.control import ControlRecordType, control_record_type
from ottla.record.errors import CorruptBatch
from ottla.record.varint import read_unsigned_varint

_OTHERS = {21: "the state of a ZooKeeper migration", 28: "removal of eligible leader replicas"}


class StoredMetadata(NamedTuple):
    """The metadata in a directory."""

    image: MetadataImage
    voters: tuple[Voter, ...]
    """Voters from records in the log; empty for a static quorum."""
    configured_voters: tuple[int, ...]
    """Node ids of the configured voters at the time when `quorum-state` was written."""
    leader_epoch: int
    unreadable: Mapping[str, int]
    """Record types or versions that this version does not know."""
    cut: TruncationPoint | None

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """Node ids of all known voters."""
        return tuple(voter.voter_id for voter in self.voters) or self.configured_voters


def read_metadata(disk: Disk, data_dir: str) -> StoredMetadata:
    """Return the metadata of a data directory. Raises OperatorError if the log is damaged or inconsistent; OSError."""
    path = f"{data_dir}/{DIRECTORY}"
    try:
        return _read(disk, data_dir, path)
    except (ProtocolError, KafkaError, InvariantError, ValueError) as error:
        raise OperatorError(
            f"the metadata log in {path} can't be used: {error}; start the version that wrote it, or restore the "
            "directory from a copy"
        ) from error


def _read(disk: Disk, data_dir: str, path: str) -> StoredMetadata:
    snapshots = list_snapshots(disk, path)
    start = snapshots[-1].end_offset if snapshots else 0
    replay = _Replay()
    if snapshots:
        for batch in _snapshot_batches(disk, f"{path}/{snapshots[-1].file_name}"):
            replay.batch(batch)
        replay.end_offset, replay.epoch = snapshots[-1]
    for batch in stored_batches(disk, path, start):
        replay.batch(batch)
        replay.end_offset, replay.epoch = batch.next_offset, batch.partition_leader_epoch
    replay.transactions.refuse_undone(path)
    image, _ = replay.delta.apply(replay.end_offset - 1, replay.epoch)
    cut = inspect_partition(disk, data_dir, DIRECTORY, recovery_point=start, gaps_end=0, everything=False).cut
    epoch = replay.epoch
    configured: tuple[int, ...] = ()
    if disk.exists(f"{path}/{QUORUM_STATE}"):
        state = disk.read_bytes(f"{path}/{QUORUM_STATE}")
        epoch = max(epoch, decode_election_state(state).leader_epoch)
        configured = decode_configured_voters(state)
    return StoredMetadata(image, replay.voters, configured, epoch, replay.unreadable, cut)


def _snapshot_batches(disk: Disk, path: str) -> Iterator[BatchView]:
    """The batches of a complete snapshot. Raises ProtocolError, CorruptBatch, OSError."""
    batch = None
    for batch in iter_batches(disk.read_bytes(path)):
        if not batch.crc_matches():
            raise CorruptBatch(f"{path} is damaged", batch.position)
        yield batch
    footer = [] if batch is None or not batch.is_control else [control_record_type(each) for each in batch.records()]
    if ControlRecordType.SNAPSHOT_FOOTER not in footer:
        raise ProtocolError(f"{path} has no footer")


class _Replay:
    """Replays the decodable records of a snapshot and of the log after it."""

    def __init__(self) -> None:
        self.delta = MetadataDelta(EMPTY_IMAGE)
        self.transactions = MetadataTransactions()
        self.voters: tuple[Voter, ...] = ()
        self.end_offset = 0
        self.epoch = 0
        self.unreadable: Counter[str] = Counter()

    def batch(self, batch: BatchView) -> None:
        """Replay a batch. Raises KafkaError, ProtocolError, InvariantError."""
        for record in batch.records():
            if not batch.is_control:
                self._metadata(bytes(record.value or b""))
            elif control_record_type(record) is ControlRecordType.KRAFT_VOTERS:
                self.voters = read_voters(record)

    def _metadata(self, value: bytes) -> None:
        _, position = read_unsigned_varint(value, 0, len(value))
        kind, _ = read_unsigned_varint(value, position, len(value))
        try:
            message = decode_record(value).message
        except ProtocolError as error:
            self.unreadable[_OTHERS.get(kind) or str(error)] += 1
            return
        self.transactions.note([message])
        self.delta.replay(message)
