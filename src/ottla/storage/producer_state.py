"""What a partition knows about its idempotent and transactional producers, and Kafka's `.snapshot` files of it.

Invariants:
- State is exactly what a snapshot and the batches from its offset to `map_end_offset` say; the log is the only source,
  so a rebuild gives the same (but for producers that expired).
- Of each producer the last five batches are known, which is how many requests the client keeps in flight: a batch that
  equals one of them is a duplicate and is answered with its offsets, anything else out of order is refused.
- A producer without state may start at any sequence (its records may be gone by retention).

Snapshot file (`%020d.snapshot`, named by the offset it reaches): int16 version 1, uint32 CRC-32C of what follows,
int32 count, then for each producer int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction (-1: none).

Left out: the index of aborted transactions (`.txnindex`), and verifying transactions with their coordinator.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL_MASK,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    NO_SEQUENCE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla.record.checksum import crc32c
from ottla.storage.log_config import MAX_INT

_REMEMBERED_BATCHES = 5
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")

RememberedBatch = tuple[int, int, int, int]
"""(first sequence, last sequence, last offset, max timestamp) of a batch."""


class SnapshotCorruption(Exception):
    """A producer snapshot is not in its format or fails its CRC."""


class ProducerEntry:
    """The state of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "last_timestamp", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches: list[RememberedBatch] = []
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.current_txn_first_offset = -1

    @property
    def last_sequence(self) -> int:
        if not self.batches:
            return NO_SEQUENCE
        _, last_sequence, _, _ = self.batches[-1]
        return last_sequence


def last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """The sequence of a batch's last record; sequences wrap from 2^31 - 1 to 0."""
    return (base_sequence + last_offset_delta) & MAX_INT


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_entries", "map_end_offset", "open_transactions", "snapshot_offsets")

    def __init__(self, map_end_offset: int) -> None:
        """`map_end_offset` is where the state that will be loaded or replayed starts to count."""
        self._entries: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, int] = {}
        """Their first offsets by producer id; changed here only."""
        self.map_end_offset = map_end_offset
        self.snapshot_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> dict[int, ProducerEntry]:
        """Producer id -> entry, for DescribeProducers and tests; not to be changed."""
        return self._entries

    # -- appending ---------------------------------------------------------------------------------------------------

    def check(
        self, producer_id: int, producer_epoch: int, base_sequence: int, last_offset_delta: int
    ) -> RememberedBatch | None:
        """Check a client's batch before it is appended; the remembered batch when it is a duplicate, else None.

        Raises KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        last_sequence = last_sequence_of(base_sequence, last_offset_delta)
        if producer_epoch == entry.producer_epoch:
            batches = entry.batches
            if not batches:
                return None
            _, newest, _, _ = batches[-1]
            expected = (newest + 1) & MAX_INT
            if base_sequence == expected:
                return None
            for batch in batches:
                first, last, _, _ = batch
                if first == base_sequence and last == last_sequence:
                    return batch
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {base_sequence}, {expected} is next",
            )
        if producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {producer_epoch}, {entry.producer_epoch} is current",
            )
        if base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts epoch {producer_epoch} at sequence {base_sequence}, not at 0",
            )
        return None

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Take up a batch of a producer that is in the log at `base_offset`; nothing is checked here."""
        producer_id, producer_epoch, base_sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        attributes, last_delta, max_timestamp = header[ATTRIBUTES], header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_epoch)
        elif producer_epoch != entry.producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches = []
        entry.last_timestamp = max_timestamp
        if attributes & CONTROL_MASK:
            # A marker ends the transaction; it has no sequence.
            entry.current_txn_first_offset = -1
            self.open_transactions.pop(producer_id, None)
            return
        if base_sequence != NO_SEQUENCE:
            batches = entry.batches
            batches.append(
                (base_sequence, last_sequence_of(base_sequence, last_delta), base_offset + last_delta, max_timestamp)
            )
            if len(batches) > _REMEMBERED_BATCHES:
                del batches[0]
        if attributes & TRANSACTIONAL_MASK and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = base_offset
            self.open_transactions[producer_id] = base_offset

    def note_coordinator_epoch(self, producer_id: int, coordinator_epoch: int) -> None:
        """A transaction marker came from a coordinator of that epoch."""
        entry = self._entries.get(producer_id)
        if entry is not None and coordinator_epoch > entry.coordinator_epoch:
            entry.coordinator_epoch = coordinator_epoch

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for `expiration_ms` and have no open transaction; how many."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self, map_end_offset: int) -> None:
        """Forget all producers; what follows is replayed from `map_end_offset`."""
        self._entries.clear()
        self.open_transactions.clear()
        self.map_end_offset = map_end_offset

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The bytes of a snapshot of the present state."""
        out = bytearray(_SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, 0, len(self._entries)))
        for producer_id, entry in self._entries.items():
            first, last, last_offset, timestamp = (
                entry.batches[-1] if entry.batches else (NO_SEQUENCE, NO_SEQUENCE, -1, entry.last_timestamp)
            )
            out += _ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                last,
                last_offset,
                (last - first) & MAX_INT if entry.batches else 0,
                max(timestamp, entry.last_timestamp),
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        _SNAPSHOT_HEADER.pack_into(out, 0, _SNAPSHOT_VERSION, crc32c(memoryview(out)[_CRC_END:]), len(self._entries))
        return bytes(out)

    def load(self, data: bytes, offset: int, now_ms: int, expiration_ms: int) -> None:
        """Replace the state by a snapshot that reaches `offset`; expired producers are left out.

        Raises SnapshotCorruption with the state unchanged.
        """
        entries = decode_snapshot(data)
        self._entries = {
            producer_id: entry
            for producer_id, entry in entries.items()
            if entry.current_txn_first_offset >= 0 or now_ms - entry.last_timestamp < expiration_ms
        }
        self.open_transactions = {
            producer_id: entry.current_txn_first_offset
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset >= 0
        }
        self.map_end_offset = offset


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """The producers in a snapshot file; raises SnapshotCorruption."""
    try:
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(data, 0)
    except struct_error as error:
        raise SnapshotCorruption("the snapshot is cut short") from error
    if version != _SNAPSHOT_VERSION:
        raise SnapshotCorruption(f"snapshot version {version} is unknown")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise SnapshotCorruption("the snapshot's CRC does not match")
    if count < 0 or len(data) - _SNAPSHOT_HEADER.size != count * _ENTRY.size:
        raise SnapshotCorruption(f"{count} entries contradict {len(data)} bytes")
    entries: dict[int, ProducerEntry] = {}
    for number in range(count):
        producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = (
            _ENTRY.unpack_from(data, _SNAPSHOT_HEADER.size + number * _ENTRY.size)
        )
        entry = ProducerEntry(epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.current_txn_first_offset = first_offset
        if last_offset >= 0:
            entry.batches.append(((sequence - delta) & MAX_INT, sequence, last_offset, timestamp))
        entries[producer_id] = entry
    return entries
