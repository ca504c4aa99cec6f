"""Epochs of a streaming query in topics exactly once: what a task writes and that it wrote it are one transaction.

Each task of a query has a transactional id of its own, made of the query's id and the task's number, and a group of
that name. With the rows of an epoch the transaction stores an offset of the group: the number of the epoch that comes
next, with a fingerprint of the rows. A task first takes its id, which fences whoever still writes under it (an attempt
that Spark gave up or started beside, a worker that outlived its driver) and ends what that left open; only then it
reads the offset, and passes over an epoch that is committed.

A worker keeps the producer with which it committed, for a later epoch of the task that has few rows. That has its id
already, unless another took it since: so it stores the offset first, before any row, and the coordinator refuses it
then; the task takes its id anew, as it would have at once. While nobody took it nobody can have committed either, so
that the offset need not be read.

**Invariants:** of all attempts at one task of one epoch, in all runs of the query, exactly one is committed, whoever
dies when; ids do not grow with epochs or restarts. What that needs: a task that is replayed has the rows that it had.
A task that was committed compares, and refuses others; so rows that moved from it to another task are noticed, but what
that other task wrote by then is not taken back. Nothing here makes an epoch visible as a whole: each task's part is
visible by itself.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.client.wire.model import CommittedOffset, Position
from ottla.common.errors import KafkaError, OperatorError
from ottla.pipeline.model.lru_pool import LruPool
from ottla.pipeline.sinks.topic import Fingerprint, RowWriter, TopicTarget, slices

logger = logging.getLogger(__name__)

FEW_BYTES = 4 << 20
"""So many are held before the first row is sent: where they are all, what is stored of them is known by then."""
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


class KeptProducer(NamedTuple):
    """One that has the id of a task, as long as nobody else took it."""

    producer: TransactionalProducer
    next_epoch: int
    """No later one was committed when the producer had the id last."""


_KEPT: LruPool[KeptProducer] = LruPool(4)
"""Of this worker: by target and task."""


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
    key = (next(slices(first.slice(0, 1), target.topic))[0][0], 0)
    name = (target.settings, task.transactional_id)
    kept = _KEPT.take(name)
    if kept is not None and kept.next_epoch <= task.epoch:
        head, is_whole = _head(rows)
        if is_whole and _has_id(kept.producer, task, {key: _progress(task, _fingerprint(head))}):
            return _committed(kept.producer, task, name, _send(kept.producer, target, head))
        rows = itertools.chain(head, filled)
    del kept  # with its connections
    return _write_anew(target, task, key, name, rows)


def _write_anew(
    target: TopicTarget, task: EpochTask, key: Position, name: Hashable, batches: Iterable[pa.RecordBatch]
) -> int:
    """Take the id, look what was committed, write the rest."""
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
    """The first batches, and whether they are all."""
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


def _has_id(producer: TransactionalProducer, task: EpochTask, progress: Mapping[Position, CommittedOffset]) -> bool:
    """Begin the transaction of an epoch by what is stored of it; false where the producer can't, for any reason: a new
    one can, or tells why not, and ends what this one may have begun."""
    try:
        producer.send_offsets(task.transactional_id, progress)
    except KafkaError as error:
        logger.debug("the producer kept for %s is of no use any more: %s", task.transactional_id, error)
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
            "that it had when it failed, or begin anew with another checkpoint"
        )
