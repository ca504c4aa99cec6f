"""Copy of rows into a topic exactly once, in one process, for `ottla pipeline push` and `replay`.

The rows of each transaction and their positions are committed together, the positions as offsets of a group with the
push's name. A push that was killed at any point and is run again resumes after the last transaction. A push that is
still running is fenced by the next one under the same id, and so is a producer that the library lost when its broker
was unreachable.

**Invariants:** a push under an id has one source only (its identity is stored with the positions); a row is committed
once, regardless of crashes; a push that ended adds nothing when it is run again, as long as the group's offsets are
retained (`offsets.retention.minutes`) and the topic is the same: its id is stored as well, and a recreated topic gets
every row.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.transaction_calls import ProducerHung
from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.client.wire.model import CommittedOffset
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.sinks.topic import LIBRARYS_END, RowWriter, TopicTarget
from ottla.pipeline.sources.rows import RowSource
from ottla.pipeline.sources.text_rows import UnreadableRows

TRANSACTION_ROWS = 50_000
TRANSACTION_S = 5.0
"""A transaction ends with the batch that reaches either limit."""
ABORT_S = 5.0
PUSH_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ID_MARK = "@"
"""Separator between the identity of a source and the id of a topic."""

Observe = Callable[[Mapping[TopicPartition, int], int], None]
"""Receives the committed positions and the number of rows, after each transaction."""


@dataclass(frozen=True, slots=True)
class PushSummary:
    """Result of one run. `resumed`: an earlier run under the same id had committed something."""

    push_id: str
    topic: str
    rows: int
    transactions: int
    seconds: float
    resumed: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def group_name(push_id: str) -> str:
    """The group with the positions of a push; also its transactional id. Raises OperatorError for an invalid id."""
    if not PUSH_ID.fullmatch(push_id):
        raise OperatorError(f"the id {push_id!r} must be 1 to 100 letters, digits, '.', '_' or '-'")
    return f"ottla-push-{push_id}"


def push(target: TopicTarget, source: RowSource, push_id: str, observe: Observe | None = None) -> PushSummary:
    """Copy the rows of `source` after the positions that are committed under `push_id`.

    Raises OperatorError when the id belongs to another source, when the topic is recreated meanwhile, and when the
    source can't be read (with the number of committed rows); ProducerFenced when the same push was started elsewhere,
    TopicNotFound and KafkaError.
    """
    started = time.monotonic()
    rows = transactions = 0
    was_begun: bool | None = None
    with _outage_reported(), target.open_cluster() as cluster:
        while True:
            producer = target.transactional_producer(group_name(push_id))
            progress = _Progress(cluster, target, push_id, source.identity, _topic_id(cluster, target))
            done = _positions(progress)
            was_begun = bool(done) if was_begun is None else was_begun
            try:
                _copy(producer, source, progress, done, _behind(observe, rows))
                is_done = True
            except UnreadableRows as error:
                producer.end(ABORT_S)
                raise OperatorError(f"{error}; {_committed_text(target, sum(done.values()))}") from error
            except ProducerHung:  # it is lost, and can't be closed: the next one fences it
                is_done = False
            except BaseException:
                producer.end(ABORT_S)
                raise
            rows += producer.committed_count
            transactions += producer.transaction_count
            if is_done:
                seconds = time.monotonic() - started
                return PushSummary(push_id, target.topic or "", rows, transactions, seconds, was_begun)


@contextmanager
def _outage_reported() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.REQUEST_TIMED_OUT:
            raise
        raise OperatorError(
            f"{error.message}; run the same command again when the cluster is reachable: it resumes after the "
            "last commit"
        ) from error


def _committed_text(target: TopicTarget, rows: int) -> str:
    if rows == 0:
        return f"nothing of it is in topic {target.topic!r}"
    return (
        f"the first {rows:,} rows are in topic {target.topic!r} and stay there: push the others as a separate file, "
        "since a corrected file is another source"
    )


def _behind(observe: Observe | None, rows: int) -> Observe | None:
    """Adds the rows of an earlier producer to the observed count."""
    return None if observe is None else lambda positions, count: observe(positions, rows + count)


def _topic_id(cluster: Cluster, target: TopicTarget) -> str:
    return uuid_to_string(cluster.topics.get(target.topic or "").topic_id)


def progress_in(
    topic_id: str, committed: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of a push that are in the topic of that id, with the source's identity as metadata.

    Positions of an earlier topic of the same name are ignored: its rows are gone.
    """
    found = {}
    for key, offset in committed.items():
        identity, _, of_topic = offset.metadata.rstrip(LIBRARYS_END).partition(_ID_MARK)
        if of_topic == topic_id:
            found[key] = offset._replace(metadata=identity)
    return found


@dataclass(frozen=True, slots=True)
class _Progress:
    """Source whose positions are committed with the rows, and the topic that contains the rows."""

    cluster: Cluster
    target: TopicTarget
    push_id: str
    identity: str
    topic_id: str

    def commit(self, producer: TransactionalProducer, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the rows sent so far, with the source's positions.

        Raises OperatorError, with nothing committed, for a recreated topic; TopicNotFound, KafkaError.
        """
        metadata = f"{self.identity}{_ID_MARK}{self.topic_id}"
        offsets = {key: CommittedOffset(offset, -1, metadata) for key, offset in positions.items()}
        producer.send_offsets(group_name(self.push_id), offsets)
        if _topic_id(self.cluster, self.target) != self.topic_id:
            raise OperatorError(
                f"topic {self.target.topic!r} was deleted and created again during the push, and nothing was "
                "committed in the new one: run the same command again, which starts from the first row"
            )
        producer.commit()


def _copy(
    producer: TransactionalProducer,
    source: RowSource,
    progress: _Progress,
    done: dict[TopicPartition, int],
    observe: Observe | None,
) -> None:
    """Each commit updates `done`."""
    writer = RowWriter(producer, progress.target.topic)
    pending: dict[TopicPartition, int] = {}

    def commit() -> None:
        if producer.open_count:  # positions without rows are not committed, and read again
            progress.commit(producer, pending)
            done.update(pending)
            if observe is not None:
                observe(pending, producer.committed_count)

    begun = time.monotonic()
    for batch, positions in source.batches(dict(done)):
        if producer.open_count == 0:
            begun = time.monotonic()
        writer.write(batch)
        pending |= positions
        if producer.open_count >= TRANSACTION_ROWS or time.monotonic() - begun >= TRANSACTION_S:
            commit()
    commit()


def _positions(progress: _Progress) -> dict[TopicPartition, int]:
    found = progress.target.committed_offsets(group_name(progress.push_id))
    if any(_ID_MARK not in each.metadata for each in found.values()):
        group = group_name(progress.push_id)
        raise OperatorError(
            f"the offsets of group {group!r} were set by another program, so the rows in topic "
            f"{progress.target.topic!r} are unknown: push under a new id, or delete the group (ottla group "
            f"delete {group}) to push all rows again"
        )
    committed = progress_in(progress.topic_id, found)
    if any(each.metadata != progress.identity for each in committed.values()):
        raise OperatorError(
            f"the push {progress.push_id!r} was started with other rows, or in another form; revert that change to "
            "resume it, or start another push under a new id"
        )
    return {key: each.offset for key, each in committed.items()}
