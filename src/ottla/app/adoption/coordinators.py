"""Contents of the coordinators' topics: groups with offsets, and transactional ids with states.

Records are counted by key, with the newest value of each, as in a coordinator's load. Group values are not decoded, so
types that Ottla does not implement (share and streams groups) are counted too.
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
"""Group type of a record key; each key starts with the group id."""
_OFFSET_KINDS = (0, 1)
_GROUP_KINDS = {2: "classic", 3: "consumer", 11: "share", 17: "streams"}
"""Record types that exist once per group, by group type (Apache Kafka 4.4)."""


class StoredGroups(NamedTuple):
    """The groups of `__consumer_offsets`."""

    types: dict[str, int]
    """Number of groups by type; a group with offsets only is classic."""
    offsets: int
    pending_offsets: int
    """Offsets that an open transaction would commit."""
    unreadable: int = 0
    """Batches that cannot be decoded: a start skips and logs them."""


class StoredTransactions(NamedTuple):
    """The transactional ids of `__transaction_state`."""

    ids: int
    open: tuple[str, ...]
    """Transactional ids with an open transaction, or with a decided outcome that is not complete."""
    unreadable: int = 0
    """Records and batches that cannot be decoded: a start skips and logs them."""


def read_groups(batches: Iterable[BatchView]) -> StoredGroups:
    """Groups from the batches of all partitions, ordered within each partition. Raises KafkaError."""
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
    """Live keys, by group."""

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
    """Transactional ids of `__transaction_state`, likewise. Raises KafkaError."""
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
    """Decode a record as a coordinator does. Raises KafkaError if the key is malformed, too."""
    serde = TransactionRecordSerde(lambda: 0)
    try:
        return serde.decode(key, value)
    except KafkaError:
        return serde.without_value(key)
