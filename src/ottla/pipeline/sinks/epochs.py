"""Epochs of a streaming query in topics exactly once: what a task writes and that it wrote it are one transaction.

Each task of a query has a transactional id of its own, made of the query's id and the task's number, and a group of
that name. With the rows of an epoch the transaction stores an offset of the group: the number of the epoch that comes
next, with a fingerprint of the rows. A task first takes its id, which fences whoever still writes under it (an attempt
that Spark gave up or started beside, a worker that outlived its driver) and ends what that left open; only then it
reads the offset, and passes over an epoch that is committed.

**Invariants:** of all attempts at one task of one epoch, in all runs of the query, exactly one is committed, whoever
dies when; ids do not grow with epochs or restarts. What that needs: a task that is replayed has the rows that it had.
A task that was committed compares, and refuses others; so rows that moved from it to another task are noticed, but what
that other task wrote by then is not taken back. Nothing here makes an epoch visible as a whole: each task's part is
visible by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ottla.client.model import CommittedOffset
from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.topic import Fingerprint, RowWriter, TopicTarget, slices

ABORT_S = 5.0
"""How long a task that failed may take to end its transaction; the next attempt ends it otherwise."""


@dataclass(frozen=True, slots=True)
class EpochTask:
    """One task of one epoch (micro-batch) of a query, as Spark numbers them."""

    query_id: str
    epoch: int
    task: int

    @property
    def transactional_id(self) -> str:
        """Also the name of the group that has its progress."""
        return f"ottla-sink-{self.query_id}-{self.task}"


def write_epoch(target: TopicTarget, task: EpochTask, batches: Iterable[pa.RecordBatch]) -> int:
    """Write what a task has for an epoch, unless an earlier attempt did; returns the rows written.

    Takes all batches in any case. Raises OperatorError when that attempt had other rows, ProducerFenced when another
    attempt goes on, KafkaError.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0
    rows = itertools.chain([first], filled)
    key = (next(slices(first, target.topic))[0][0], 0)
    producer = target.transactional_producer(task.transactional_id)
    committed = target.committed_offsets(task.transactional_id).get(key)
    if committed is not None and committed.offset > task.epoch:
        _compare(committed, task, rows)
        return 0
    fingerprint = Fingerprint()
    writer = RowWriter(producer, target.topic)
    try:
        for batch in _fingerprinted(rows, fingerprint):
            writer.write(batch)
    except BaseException:
        producer.end(ABORT_S)
        raise
    producer.send_offsets(task.transactional_id, {key: CommittedOffset(task.epoch + 1, -1, str(fingerprint))})
    producer.commit()
    return writer.rows


def _fingerprinted(batches: Iterable[pa.RecordBatch], fingerprint: Fingerprint) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fingerprint.add(batch)
        yield batch


def _compare(committed: CommittedOffset, task: EpochTask, batches: Iterable[pa.RecordBatch]) -> None:
    fingerprint = Fingerprint()
    for _ in _fingerprinted(batches, fingerprint):
        pass
    if committed.offset == task.epoch + 1 and committed.metadata != str(fingerprint):
        raise OperatorError(
            f"epoch {task.epoch} of query {task.query_id} can't be replayed exactly once: task {task.task} committed "
            f"{committed.metadata}, and has {fingerprint} now; give the query the input and the number of partitions "
            "that it had when it failed, or begin anew with another checkpoint"
        )
