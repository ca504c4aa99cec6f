"""What the coordinators' topics hold: groups with their offsets, transactional ids with their states.

Counted by the keys of records, with the newest value of each, as a load replays them: values of groups are not read, so
those of kinds that are not built (share and streams groups) are counted too.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.common.errors import KafkaError
from ottla.coordinator.transaction.records import TransactionRecord, TransactionRecordSerde
from ottla.coordinator.transaction.state import OPEN, PREPARED, TransactionState
from ottla.record.batch import BatchView, Record
from ottla.record.control import ControlRecordType, control_record_type

_HEAD = Struct(">hh")
"""The kind of a key, and the length of the group id that comes first in each."""
_OFFSET_KINDS = (0, 1)
_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Kinds of the record that a group of each type has, as in Apache Kafka 4.4."""


class StoredGroups(NamedTuple):
    """The groups of `__consumer_offsets`."""

    types: dict[str, int]
    """How many there are of each type; one that only has offsets is a classic one."""
    offsets: int
    pending_offsets: int
    """Which a transaction that is open would commit."""
    unreadable: int = 0
    """Batches that can't be read: a start skips them, and logs each."""


class StoredTransactions(NamedTuple):
    """The transactional ids of `__transaction_state`."""

    ids: int
    open: tuple[str, ...]
    """Those whose transaction was not ended, or whose end was decided and not carried out."""
    unreadable: int = 0
    """Records and batches that can't be read: a start skips them, and logs each."""


def read_groups(batches: Iterable[BatchView]) -> StoredGroups:
    """`batches` of all partitions, each partition's in order. Raises KafkaError."""
    counting = _Groups()
    for batch in batches:
        try:
            records = list(batch.records())
        except KafkaError:
            counting.unreadable += 1
        else:
            counting.replay(batch, records)
    return counting.result()


class _Groups:
    """The keys that are alive."""

    def __init__(self) -> None:
        self._offsets: set[bytes] = set()
        self._groups: dict[bytes, str] = {}
        self._pending: dict[int, list[tuple[bytes, bool]]] = {}
        self.unreadable = 0

    def replay(self, batch: BatchView, records: Iterable[Record]) -> None:
        if batch.is_control:
            for record in records:
                pending = self._pending.pop(batch.producer_id, [])
                if control_record_type(record) is ControlRecordType.COMMIT:
                    for key, lives in pending:
                        self._apply(key, lives)
            return
        for record in records:
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
        return StoredGroups(types, len(self._offsets), pending, self.unreadable)


def read_transactions(batches: Iterable[BatchView]) -> StoredTransactions:
    """The same of `__transaction_state`. Raises KafkaError."""
    states: dict[str, TransactionState] = {}
    unreadable = 0
    for batch in batches:
        try:
            records = () if batch.is_control else tuple(batch.records())
        except KafkaError:
            unreadable += 1
            continue
        for record in records:
            try:
                found = _decode(bytes(record.key or b""), record.value)
            except KafkaError:
                unreadable += 1
                continue
            if found is None:
                continue
            name, metadata, is_readable = found
            unreadable += not is_readable
            if metadata is not None:
                states[name] = metadata.state
            elif is_readable or states.get(name) not in PREPARED:
                states.pop(name, None)
    open_ids = tuple(sorted(each for each, state in states.items() if state in OPEN))
    return StoredTransactions(len(states), open_ids, unreadable)


def _decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """As a load does. Raises KafkaError where the key can't be read either."""
    serde = TransactionRecordSerde(lambda: 0)
    try:
        return serde.decode(key, value)
    except KafkaError:
        return serde.without_value(key)
