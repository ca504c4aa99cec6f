"""Check that the batches of all replicas of a partition are identical bytes, up to the lowest high watermark.

Each replica of a compacted log is cleaned separately: an offset that several of them have contains the same record, and
a reader of any gets the same latest value of each key. The leader epochs of a replica match those of its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from ottla.record.batch import BatchView, iter_batches
from ottla.record.transactions import AbortedAt, TransactionFilter
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from simulation.checkers import Violation

READ_BYTES = 1 << 20


def compare_replicas(topic: str, index: int, replicas: Sequence[tuple[str, ReplicaManager]]) -> None:
    """Raises Violation with the first offset, or the first key, at which two replicas differ."""
    partitions = [(host, manager.find(topic, index)) for host, manager in replicas]
    start = max(partition.log.log_start_offset for _, partition in partitions)
    end = min(partition.high_watermark for _, partition in partitions)
    reference_host, reference = partitions[0]
    compacted = reference.log.config.compacted
    expected = _batches(reference, start, end)
    for host, partition in partitions[1:]:
        found = _batches(partition, start, end)
        names = f"between {reference_host} and {host}"
        if compacted:
            _compare_compacted(f"{topic}-{index}", names, expected, found)
            continue
        for offset in sorted(expected.keys() | found.keys()):
            if _bytes(expected, offset) != _bytes(found, offset):
                raise Violation(f"{topic}-{index}@{offset} differs {names}")


def compare_epochs(topic: str, index: int, replicas: Iterable[tuple[int, Partition]]) -> None:
    """Raises Violation if two replicas have different leader epochs for offsets below both high watermarks.

    At any time, for replicas without lost committed records, each with its node's id. Not for compacted logs: the start
    of an epoch depends on the batches that the cleaner had left when the replica fetched them.
    """
    partitions = [
        (node_id, each, each.log.epochs.entries()) for node_id, each in replicas if not each.log.config.compacted
    ]
    for (node_id, one, entries), (other_id, other, other_entries) in combinations(partitions, 2):
        if entries == other_entries:
            continue
        start = max(one.log.log_start_offset, other.log.log_start_offset)
        end = min(one.high_watermark, other.high_watermark)
        known, others = _epochs(entries, start, end), _epochs(other_entries, start, end)
        if known != others:
            raise Violation(
                f"nodes {node_id} and {other_id} disagree on the leader epochs of {topic}-{index} from {start} to "
                f"{end}: {known}, {others}"
            )


def _epochs(entries: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """(leader epoch, first offset) of those with offsets from `start` to `end`, which is exclusive."""
    ends = [*(offset for _, offset in entries[1:]), end]
    return [
        (epoch, max(offset, start))
        for (epoch, offset), next_offset in zip(entries, ends, strict=False)
        if offset < end and next_offset > start
    ]


_Batches = dict[int, tuple[BatchView, bool]]
"""By base offset, and whether the batch is visible to read_committed."""


def _bytes(batches: _Batches, offset: int) -> bytes | None:
    found = batches.get(offset)
    return None if found is None else found[0].to_bytes()


def _batches(partition: Partition, start: int, end: int) -> _Batches:
    """Batches below `end`."""
    batches: _Batches = {}
    offset = start
    while offset < end:
        log = partition.log
        result = log.read(offset, READ_BYTES, max_offset=end, min_one_batch=True)
        data = b"" if result.records is None else result.records.read_all()
        transactions = TransactionFilter(AbortedAt(*each) for each in log.aborted.within(offset, result, end))
        if result.records is not None:
            result.records.release()
        if not data:
            raise Violation(f"{partition} has nothing at {offset}, below its high watermark")
        for batch in iter_batches(data):
            known = log.epochs.epoch_for_offset(max(batch.base_offset, start))
            if known != batch.partition_leader_epoch:
                raise Violation(
                    f"{partition} knows leader epoch {known} at {batch.base_offset}, where its batch is of "
                    f"{batch.partition_leader_epoch}"
                )
            batches[batch.base_offset] = batch, transactions.passes(batch)
            offset = batch.next_offset
    return batches


_Record = tuple[bytes | None, bytes | None, int]


def _compare_compacted(name: str, between: str, expected: _Batches, found: _Batches) -> None:
    records, others = _committed(expected), _committed(found)
    for offset in sorted(records.keys() & others.keys()):
        if records[offset] != others[offset]:
            raise Violation(f"{name}@{offset} differs {between}")
    latest, other = _latest(records), _latest(others)
    for key in sorted(latest.keys() | other.keys()):
        if latest.get(key) != other.get(key):
            raise Violation(f"the latest of {key!r} in {name} differs {between}: {latest.get(key)}, {other.get(key)}")


def _committed(batches: _Batches) -> dict[int, _Record]:
    """Key, value and timestamp at each offset."""
    return {
        record.offset: (record.key, record.value, record.timestamp)
        for batch, is_seen in batches.values()
        if is_seen
        for record in batch.records()
    }


def _latest(records: dict[int, _Record]) -> dict[bytes, tuple[int, bytes]]:
    """Offset and value of each key without a final deletion."""
    latest: dict[bytes, tuple[int, bytes]] = {}
    for offset in sorted(records):
        key, value, _ = records[offset]
        if key is None:
            continue
        latest.pop(key, None)
        if value is not None:
            latest[key] = offset, value
    return latest
