"""State of a partition's idempotent and transactional producers, and its snapshots in Kafka's `.snapshot` files.

Invariants:
- State is that of a snapshot and the batches from its offset to `map_end_offset`. The log is the only source: a rebuild
  gives the same state, except for expired producers and transactions decided before the snapshot's end.
- The last five batches of each producer are remembered, as many as a client has in flight. A batch with the sequences
  of one of them is a duplicate and is answered with its offsets. Any other out-of-order batch is rejected.
- A producer without state may start at any sequence, since retention may have deleted its records. If its epoch rises
  with each transaction, each one starts at 0. That includes one after a marker, which leaves an entry without batches.
- A transaction begins only with proof of its verification (`verification`). It ends with a marker whose producer epoch
  and coordinator epoch are not older than the known ones.

Snapshot file (`%020d.snapshot`, named by the offset it reaches): int16 version 1, uint32 CRC-32C of the rest,
int32 count, then for each producer int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction (-1: none).

Requests to the coordinator are in `server`, the index of aborted transactions is in `transaction_index`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.disk import Buffer
from ottla.record.batch import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    NO_SEQUENCE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla.record.checksum import crc32c
from ottla.record.control import read_end_transaction_marker
from ottla.storage.files.log_config import MAX_INT
from ottla.storage.log.verification import VerificationGuard, Verifications
from ottla.storage.segment.transactions import CompletedTransaction, Transactions

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_EPOCH_BUMP = 2
"""Level of `transaction.version`."""
MAX_PRODUCER_EPOCH = 2**15 - 1
LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""Time that a coordinator has to end a timed-out transaction."""
_REMEMBERED_BATCHES = 5
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")

RememberedBatch = tuple[int, int, int, int]
"""(first sequence, last sequence, last offset, max timestamp) of a batch."""

_NO_BATCH: RememberedBatch = (NO_SEQUENCE, NO_SEQUENCE, -1, -1)


class SnapshotCorruption(Exception):
    """A producer snapshot is not in its format or fails its CRC."""


def _old_epoch(producer_id: int, producer_epoch: int, current: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {producer_epoch}, {current} is current"
    )


def _expected_transactional(producer_id: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open in this partition")


class ProducerEntry:
    """State of one producer id."""

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
    """Return the sequence of a batch's last record; sequences wrap from 2^31 - 1 to 0."""
    return (base_sequence + last_offset_delta) & MAX_INT


class ProducerState:
    """Producers of one partition."""

    __slots__ = (
        "_entries",
        "map_end_offset",
        "snapshot_offsets",
        "transactions",
        "verification_enabled",
        "verifications",
    )

    def __init__(self, map_end_offset: int) -> None:
        """`map_end_offset` is the start of the state to be loaded or replayed."""
        self._entries: dict[int, ProducerEntry] = {}
        self.transactions = Transactions()
        """Changed here only."""
        self.verifications = Verifications()
        self.verification_enabled = True
        """Whether transactions begin only with a verification guard."""
        self.map_end_offset = map_end_offset
        self.snapshot_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> dict[int, ProducerEntry]:
        """Producer id -> entry, for DescribeProducers and tests; read-only."""
        return self._entries

    # -- appending ---------------------------------------------------------------------------------------------------

    def check(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        transactional: int,
        guard: VerificationGuard | None,
    ) -> RememberedBatch | None:
        """Check a client's batch before its append; returns the remembered batch of a duplicate, else None.

        `transactional` is the attribute bit; `guard` is the proof for a batch that begins a transaction. Raises
        KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self._entries.get(producer_id)
        expected = 0
        if entry is not None and producer_epoch == entry.producer_epoch and entry.batches:
            _, newest, _, _ = entry.batches[-1]
            expected = (newest + 1) & MAX_INT
            if base_sequence != expected:
                last_sequence = last_sequence_of(base_sequence, last_offset_delta)
                for batch in entry.batches:
                    first, last, _, _ = batch
                    if first == base_sequence and last == last_sequence:
                        return batch
        if transactional:
            self._check_begun(entry, producer_id, producer_epoch, guard)
        if self.verifications.guards:
            self._check_verified_sequence(entry, producer_id, base_sequence)
        if entry is None:
            return None
        if producer_epoch == entry.producer_epoch:
            if base_sequence != expected:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} sent sequence {base_sequence}, {expected} is next",
                )
        elif producer_epoch < entry.producer_epoch:
            raise _old_epoch(producer_id, producer_epoch, entry.producer_epoch)
        elif base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts epoch {producer_epoch} at sequence {base_sequence}, not at 0",
            )
        if entry.current_txn_first_offset >= 0 and not transactional:
            raise _expected_transactional(producer_id)
        return None

    def check_without_sequence(
        self, producer_id: int, producer_epoch: int, transactional: int, guard: VerificationGuard | None
    ) -> None:
        """Check a batch that a coordinator writes for a producer, without sequences. Raises as `check`."""
        entry = self._entries.get(producer_id)
        if transactional:
            self._check_begun(entry, producer_id, producer_epoch, guard)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch:
            raise _old_epoch(producer_id, producer_epoch, entry.producer_epoch)
        if entry.current_txn_first_offset >= 0 and not transactional:
            raise _expected_transactional(producer_id)

    def _check_begun(
        self, entry: ProducerEntry | None, producer_id: int, producer_epoch: int, guard: VerificationGuard | None
    ) -> None:
        """Raise unless the transaction is open in this epoch, or was verified with its coordinator."""
        if entry is not None:
            if entry.current_txn_first_offset >= 0 and entry.producer_epoch == producer_epoch:
                return
            if producer_epoch < entry.producer_epoch:
                raise _old_epoch(producer_id, producer_epoch, entry.producer_epoch)
        if self.verification_enabled and (guard is None or self.verifications.get(producer_id) is not guard):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def _check_verified_sequence(self, entry: ProducerEntry | None, producer_id: int, base_sequence: int) -> None:
        """Raise if a batch would overtake the first one that waits for the running verification."""
        guard = self.verifications.get(producer_id)
        if guard is None:
            return
        if guard.supports_epoch_bump and base_sequence != 0 and (entry is None or not entry.batches):
            # Each transaction of this producer begins at sequence 0, so this batch can't be its first one.
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins a transaction at sequence {base_sequence}, not at 0",
            )
        if base_sequence > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {base_sequence} before {guard.lowest_sequence}",
            )

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Check a marker before its append.

        Below transaction version 2 it may have the epoch of the transaction that it ends; from version 2 on (KIP-1228)
        it has a later one. Then an equal epoch is a repeated marker: accepted if no transaction is open, and at the
        maximum epoch, which has no successor. Raises KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        current = entry.producer_epoch
        if producer_epoch < current:
            raise _old_epoch(producer_id, producer_epoch, current)
        if (
            producer_epoch == current
            and transaction_version >= FIRST_VERSION_WITH_EPOCH_BUMP
            and entry.current_txn_first_offset >= 0
            and producer_epoch != MAX_PRODUCER_EPOCH
        ):
            raise _old_epoch(producer_id, producer_epoch, current)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of producer {producer_id} is of coordinator epoch {coordinator_epoch}, "
                f"{entry.coordinator_epoch} is current",
            )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Return the guard for a batch that begins a transaction; None if the transaction is already open.

        Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        entry = self._entries.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                raise _old_epoch(producer_id, producer_epoch, entry.producer_epoch)
            if entry.current_txn_first_offset >= 0 and producer_epoch == entry.producer_epoch:
                return None
        return self.verifications.begin(
            producer_id, producer_epoch, base_sequence, now_ms, supports_epoch_bump=supports_epoch_bump
        )

    def _entry_of(self, producer_id: int, producer_epoch: int) -> ProducerEntry:
        """Return the entry to which a batch is added; another epoch, even an older one, begins without batches."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_epoch)
        elif producer_epoch != entry.producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches = []
        return entry

    def update(self, header: BatchHeader, base_offset: int, max_timestamp: int) -> None:
        """Apply a batch of a producer at `base_offset` in the log, without checks.

        `max_timestamp` is that of the log, which a leader may have set after reading the header. `end_transaction`
        applies control batches.
        """
        producer_id, producer_epoch, base_sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        last_delta = header[LAST_OFFSET_DELTA]
        entry = self._entries.get(producer_id)
        if entry is None or producer_epoch != entry.producer_epoch:
            entry = self._entry_of(producer_id, producer_epoch)
        entry.last_timestamp = max_timestamp
        if base_sequence == NO_SEQUENCE:  # of a coordinator
            last_sequence = NO_SEQUENCE
            base_sequence = (NO_SEQUENCE - last_delta) & MAX_INT
        else:
            last_sequence = last_sequence_of(base_sequence, last_delta)
        batches = entry.batches
        batches.append((base_sequence, last_sequence, base_offset + last_delta, max_timestamp))
        if len(batches) > _REMEMBERED_BATCHES:
            del batches[0]
        if header[ATTRIBUTES] & TRANSACTIONAL_MASK:
            if entry.current_txn_first_offset < 0:
                entry.current_txn_first_offset = base_offset
                self.transactions.begin(producer_id, base_offset)
            self.verifications.end(producer_id, producer_epoch, marker=False)

    def end_transaction(self, header: BatchHeader, base_offset: int, batch: Buffer) -> CompletedTransaction | None:
        """Apply the marker in `batch`, at `base_offset` in the log; returns the transaction if it aborted one.

        An unreadable marker ends nothing, here and on every other replica.
        """
        try:
            marker = read_end_transaction_marker(batch)
        except KafkaError as error:
            logger.warning(
                "ignoring the unreadable control batch at offset %d: %s", base_offset, error, extra=RATE_LIMITED
            )
            return None
        if marker is None:
            # Compacted, as all records of its transaction are gone. The batch is kept for the epoch of its producer,
            # which fences older ones. (Apache Kafka ignores it at a start without snapshots.)
            self._entry_of(header[PRODUCER_ID], header[PRODUCER_EPOCH]).last_timestamp = header[MAX_TIMESTAMP]
            return None
        return self.apply_marker(
            header[PRODUCER_ID],
            header[PRODUCER_EPOCH],
            marker.coordinator_epoch,
            base_offset,
            header[MAX_TIMESTAMP],
            committed=marker.committed,
        )

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp: int,
        *,
        committed: bool,
    ) -> CompletedTransaction | None:
        """Apply the known content of a marker at `offset`; returns the transaction if it aborted one."""
        entry = self._entry_of(producer_id, producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = -1
        self.verifications.end(producer_id, producer_epoch, marker=True)
        completed = self.transactions.end(producer_id, offset)
        return None if committed else completed

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Return whether the oldest open transaction is past the time its coordinator should have ended it
        (KIP-664).
        """
        producer_id = self.transactions.oldest_producer()
        if producer_id is None:
            return False
        last_timestamp = self._entries[producer_id].last_timestamp
        return 0 < last_timestamp < now_ms - max_timeout_ms - LATE_TRANSACTION_BUFFER_MS

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers without a write for `expiration_ms` and without an open transaction; returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        self.verifications.remove_expired(now_ms, expiration_ms)
        return len(expired)

    def clear(self, map_end_offset: int) -> None:
        """Remove all producers; batches are replayed from `map_end_offset`."""
        self._entries.clear()
        self.transactions.replace(())
        self.map_end_offset = map_end_offset

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the bytes of a snapshot of the present state."""
        out = bytearray(_SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, 0, len(self._entries)))
        for producer_id, entry in self._entries.items():
            first, last, last_offset, _ = entry.batches[-1] if entry.batches else _NO_BATCH
            out += _ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                last,
                last_offset,
                (last - first) & MAX_INT,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
        _SNAPSHOT_HEADER.pack_into(out, 0, _SNAPSHOT_VERSION, crc32c(memoryview(out)[_CRC_END:]), len(self._entries))
        return bytes(out)

    def load(self, data: bytes, offset: int, now_ms: int, expiration_ms: int) -> None:
        """Load a snapshot that reaches `offset`; expired producers are dropped.

        Raises SnapshotCorruption with the state unchanged.
        """
        entries = decode_snapshot(data)
        self._entries = {
            producer_id: entry
            for producer_id, entry in entries.items()
            if entry.current_txn_first_offset >= 0 or now_ms - entry.last_timestamp < expiration_ms
        }
        self.transactions.replace(
            (producer_id, entry.current_txn_first_offset)
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset >= 0
        )
        self.map_end_offset = offset


def open_transactions(producers: Mapping[int, ProducerEntry]) -> dict[int, int]:
    """Producer id -> first offset of open transactions."""
    return {
        producer_id: entry.current_txn_first_offset
        for producer_id, entry in producers.items()
        if entry.current_txn_first_offset >= 0
    }


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """Parse the producers in a snapshot file; raises SnapshotCorruption."""
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
