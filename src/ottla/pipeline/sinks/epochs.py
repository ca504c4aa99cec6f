"""Exactly-once epochs of a streaming query in topics: one transaction has the rows of a task and its progress.

Each task of a query has a transactional id of its own, made of the query's id and the task's number, and a group of
that name. With the rows of an epoch the transaction stores an offset of the group: the number of the next epoch, with a
fingerprint of the rows. A task first initializes its id. That fences every other producer of the id (an attempt that
Spark gave up or started beside this one, a worker that outlived its driver) and ends their open transaction. Only then
the task reads the offset, and skips an epoch that is committed.

A worker reuses the producer of its last commit for a later epoch of the task that has few rows. That producer has the
id already, unless another one was initialized since. So it stores the offset first, before any row: the coordinator
refuses it if it was fenced, and the task then initializes its id as usual. While the producer is not fenced no other
producer can have committed, so the offset need not be read.

**Invariants:** of all attempts at one task of one epoch, in all runs of the query, exactly one is committed, regardless
of crashes; ids do not grow with epochs or restarts. Requirement: a replayed task has the same rows as before.
A committed task compares fingerprints, and refuses other rows. So rows that moved from it to another task are noticed,
but the rows that the other task wrote by then stay. An epoch does not become visible as a whole: each task's part
becomes visible on its own.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.client.wire.model import CommittedOffset
from ottla.common.errors import KafkaError, OperatorError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.model.lru_pool import LruPool
from ottla.pipeline.sinks.topic import Fingerprint, RowWriter, TopicTarget, slices

logger = logging.getLogger(__name__)

FEW_BYTES = 4 << 20
"""Rows up to this size are buffered before the first is sent: if they are all, their fingerprint is known by then."""
ABORT_S = 5.0
"""Maximum seconds for a failed task to abort its transaction; otherwise the next attempt aborts it."""


@dataclass(frozen=True, slots=True)
class EpochTask:
    """One task of one epoch (micro-batch) of a query, as Spark numbers them."""

    query_id: str
    epoch: int
    task: int

    @property
    def transactional_id(self) -> str:
        """Also the name of the group that stores its progress."""
        return f"ottla-sink-{self.query_id}-{self.task}"


class KeptProducer(NamedTuple):
    """A producer that has the id of a task, until another one fences it."""

    producer: TransactionalProducer
    next_epoch: int
    """No later epoch was committed when the producer last had the id."""


_KEPT: LruPool[KeptProducer] = LruPool(4)
"""Pool of this worker, by target and task."""


def write_epoch(target: TopicTarget, task: EpochTask, batches: Iterable[pa.RecordBatch]) -> int:
    """Write the rows of a task in an epoch, unless an earlier attempt did; returns the rows written.

    Takes all batches in any case. Raises OperatorError when that attempt had other rows, ProducerFenced when another
    attempt is running, KafkaError.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0
    rows = itertools.chain([first], filled)
    key = (next(slices(first.slice(0, 1), target.topic))[0][0], 0)
    name = (target.settings, task.transactional_id)
    kept = _KEPT.take(name)
    if kept is not None and kept.next_epoch <= task.epoch:
        head, is_whole = _head(rows)
        if is_whole and _has_id(kept.producer, task, {key: _progress(task, _fingerprint(head))}):
            return _committed(kept.producer, task, name, _send(kept.producer, target, head))
        rows = itertools.chain(head, filled)
    del kept  # with its connections
    return _write_with_new_producer(target, task, key, name, rows)


def _write_with_new_producer(
    target: TopicTarget, task: EpochTask, key: TopicPartition, name: Hashable, batches: Iterable[pa.RecordBatch]
) -> int:
    """Initialize the id, read the committed offset, and write the epoch unless it is committed."""
    producer = target.transactional_producer(task.transactional_id)
    committed = target.committed_offsets(task.transactional_id).get(key)
    if committed is not None and committed.offset > task.epoch:
        _compare(committed, task, batches)
        return 0
    fingerprint = Fingerprint()
    rows = _send(producer, target, _fingerprinted(batches, fingerprint))
    producer.send_offsets(task.transactional_id, {key: _progress(task, fingerprint)})
    return _committed(producer, task, name, rows)


def _head(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """The first batches, and True if they are all."""
    head: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        head.append(batch)
        size += batch.nbytes
        if size > FEW_BYTES:
            return head, False
    return head, True


def _progress(task: EpochTask, fingerprint: Fingerprint) -> CommittedOffset:
    return CommittedOffset(task.epoch + 1, -1, str(fingerprint))


def _has_id(
    producer: TransactionalProducer, task: EpochTask, progress: Mapping[TopicPartition, CommittedOffset]
) -> bool:
    """Start the transaction of an epoch by storing its progress; False if the producer can't, for any reason: then a
    new producer either can, or reports the reason, and ends a transaction that this one may have started."""
    try:
        producer.send_offsets(task.transactional_id, progress)
    except KafkaError as error:
        logger.debug("the pooled producer of %s is not usable any more: %s", task.transactional_id, error)
        return False
    return True


def _send(producer: TransactionalProducer, target: TopicTarget, batches: Iterable[pa.RecordBatch]) -> int:
    writer = RowWriter(producer, target.topic)
    try:
        for batch in batches:
            writer.write(batch)
    except BaseException:
        producer.end(ABORT_S)
        raise
    return writer.rows


def _committed(producer: TransactionalProducer, task: EpochTask, name: Hashable, rows: int) -> int:
    """Commit, and keep the producer for the next epoch of the task."""
    producer.commit()
    producer.sent_count = 0
    _KEPT.keep(name, KeptProducer(producer, task.epoch + 1))
    return rows


def _fingerprinted(batches: Iterable[pa.RecordBatch], fingerprint: Fingerprint) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fingerprint.add(batch)
        yield batch


def _fingerprint(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    fingerprint = Fingerprint()
    for _ in _fingerprinted(batches, fingerprint):
        pass
    return fingerprint


def _compare(committed: CommittedOffset, task: EpochTask, batches: Iterable[pa.RecordBatch]) -> None:
    fingerprint = _fingerprint(batches)
    if committed.offset == task.epoch + 1 and committed.metadata != str(fingerprint):
        raise OperatorError(
            f"epoch {task.epoch} of query {task.query_id} can't be replayed exactly once: task {task.task} committed "
            f"{committed.metadata}, and has {fingerprint} now; give the query the input and the number of partitions "
            "that it had when it failed, or restart it with another checkpoint"
        )
