"""What the coordinators' topics hold: groups with their offsets, transactional ids with their states.

Counted by the keys of records, with the newest value of each, as a load replays them: values of groups are not read, so
those of kinds that are not built (share and streams groups) are counted too.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.coordinator.transaction.records import decode_record
from ottla.coordinator.transaction.state import TransactionState
from ottla.record.batch import BatchView
from ottla.record.control import ControlRecordType, control_record_type

_HEAD = Struct(">hh")
"""The kind of a key, and the length of the group id that comes first in each."""
_OFFSET_KINDS = (0, 1)
_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Kinds of the record that a group of each type has, as in Apache Kafka 4.4."""
_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class StoredGroups(NamedTuple):
    """The groups of `__consumer_offsets`."""

    types: dict[str, int]
    """How many there are of each type; one that only has offsets is a classic one."""
    offsets: int
    pending_offsets: int
    """Which a transaction that is open would commit."""


class StoredTransactions(NamedTuple):
    """The transactional ids of `__transaction_state`."""

    ids: int
    open: tuple[str, ...]
    """Those whose transaction was not ended, or whose end was decided and not carried out."""


def read_groups(batches: Iterable[BatchView]) -> StoredGroups:
    """`batches` of all partitions, each partition's in order. Raises KafkaError."""
    counting = _Groups()
    for batch in batches:
        counting.replay(batch)
    return counting.result()


class _Groups:
    """The keys that are alive."""

    def __init__(self) -> None:
        self._offsets: set[bytes] = set()
        self._groups: dict[bytes, str] = {}
        self._pending: dict[int, list[tuple[bytes, bool]]] = {}

    def replay(self, batch: BatchView) -> None:
        if batch.is_control:
            for record in batch.records():
                records = self._pending.pop(batch.producer_id, [])
                if control_record_type(record) is ControlRecordType.COMMIT:
                    for key, lives in records:
                        self._apply(key, lives)
            return
        for record in batch.records():
            key, lives = bytes(record.key or b""), record.value is not None
            if batch.is_transactional:
                self._pending.setdefault(batch.producer_id, []).append((key, lives))
            else:
                self._apply(key, lives)

    def _apply(self, key: bytes, lives: bool) -> None:
        if len(key) < _HEAD.size:
            return
        kind, length = _HEAD.unpack_from(key)
        group = key[_HEAD.size : _HEAD.size + length]
        if kind in _OFFSET_KINDS:
            (self._offsets.add if lives else self._offsets.discard)(key[2:])
        elif kind in _GROUP_KINDS and lives:
            self._groups[group] = _GROUP_KINDS[kind]
        elif kind in _GROUP_KINDS and self._groups.get(group) == _GROUP_KINDS[kind]:
            del self._groups[group]

    def result(self) -> StoredGroups:
        with_offsets = {key[2 : 2 + int.from_bytes(key[:2])]: "classic" for key in self._offsets}
        types = dict.fromkeys(_GROUP_KINDS.values(), 0)
        for kind in (with_offsets | self._groups).values():
            types[kind] += 1
        pending = sum(len(records) for records in self._pending.values())
        return StoredGroups(types, len(self._offsets), pending)


def read_transactions(batches: Iterable[BatchView]) -> StoredTransactions:
    """The same of `__transaction_state`. Raises KafkaError."""
    states: dict[str, TransactionState] = {}
    for batch in batches:
        if batch.is_control:
            continue
        for record in batch.records():
            found = decode_record(bytes(record.key or b""), None if record.value is None else bytes(record.value))
            if found is None:
                continue
            if found.metadata is None:
                states.pop(found.transactional_id, None)
            else:
                states[found.transactional_id] = found.metadata.state
    return StoredTransactions(len(states), tuple(sorted(each for each, state in states.items() if state in _OPEN)))
