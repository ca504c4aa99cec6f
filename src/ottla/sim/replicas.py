"""The batches of all replicas of a partition are the same bytes, up to the lowest high watermark."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.record.batch import iter_batches
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.sim.checkers import Violation

READ_BYTES = 1 << 20


def compare_replicas(topic: str, index: int, replicas: Sequence[tuple[str, ReplicaManager]]) -> None:
    """Raises Violation that names the first offset at which two replicas differ."""
    partitions = [(host, manager.find(topic, index)) for host, manager in replicas]
    start = max(partition.log.log_start_offset for _, partition in partitions)
    end = min(partition.high_watermark for _, partition in partitions)
    reference_host, reference = partitions[0]
    expected = _batches(reference, start, end)
    for host, partition in partitions[1:]:
        found = _batches(partition, start, end)
        for offset in sorted(expected.keys() | found.keys()):
            if expected.get(offset) != found.get(offset):
                raise Violation(f"{topic}-{index}@{offset} differs between {reference_host} and {host}")


def _batches(partition: Partition, start: int, end: int) -> dict[int, bytes]:
    """The bytes of each batch below `end`, by base offset."""
    batches: dict[int, bytes] = {}
    offset = start
    while offset < end:
        result = partition.log.read(offset, READ_BYTES, max_offset=end, min_one_batch=True)
        data = b"" if result.records is None else result.records.read_all()
        if result.records is not None:
            result.records.release()
        if not data:
            raise Violation(f"{partition} has nothing at {offset}, below its high watermark")
        for batch in iter_batches(data):
            batches[batch.base_offset] = batch.to_bytes()
            offset = batch.next_offset
    return batches
