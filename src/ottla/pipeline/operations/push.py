"""Copy rows into a topic exactly once, in one process: what `ottla pipeline push` and `replay` do.

The rows of each transaction and the positions behind them are committed together, the positions as offsets of a group
that has the push's name. A push that was killed at any point and is run again goes on behind the last transaction; one
that runs still is fenced by the next one under the same id. So is a producer that the library lost when its broker was
away for a moment.

**Invariants:** a push under an id is one source only (its identity is stored with the positions); a row is committed
once, whoever dies when; a push that ended adds nothing when it is run again, as long as the group's offsets are kept
(`offsets.retention.minutes`) and the topic is the same: its id is stored as well, and one made again gets every row.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.transaction_calls import ProducerHung
from ottla.client.librdkafka.transactional_producer import TransactionalProducer
from ottla.client.wire.model import CommittedOffset, Position
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.sinks.topic import LIBRARYS_END, RowWriter, TopicTarget
from ottla.pipeline.sources.rows import RowSource
from ottla.pipeline.sources.text_rows import UnreadableRows

TRANSACTION_ROWS = 50_000
TRANSACTION_S = 5.0
"""A transaction ends with the batch that reaches either."""
ABORT_S = 5.0
PUSH_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ID_MARK = "@"
"""Between the identity of a source and the id of a topic."""

Observe = Callable[[Mapping[Position, int], int], None]
"""Is told the positions and the number of rows that are committed, after each transaction."""


@dataclass(frozen=True, slots=True)
class PushSummary:
    """What one run did. `resumed`: an earlier run under the same id had committed something."""

    push_id: str
    topic: str
    rows: int
    transactions: int
    seconds: float
    resumed: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def group_name(push_id: str) -> str:
    """The group with the positions of a push; also its transactional id. Raises OperatorError for a bad id."""
    if not PUSH_ID.fullmatch(push_id):
        raise OperatorError(f"the id {push_id!r} must be 1 to 100 letters, digits, '.', '_' or '-'")
    return f"ottla-push-{push_id}"


def push(target: TopicTarget, source: RowSource, push_id: str, observe: Observe | None = None) -> PushSummary:
    """Copy what `source` has behind the positions that are committed under `push_id`.

    Raises OperatorError when the id was another source's, when the topic is made again meanwhile, and when the source
    can't be read, with what is committed of it; ProducerFenced when the same push was begun elsewhere, TopicNotFound
    and KafkaError.
    """
    started = time.monotonic()
    rows = transactions = 0
    was_begun: bool | None = None
    with _outage_told(), target.open_cluster() as cluster:
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
                raise OperatorError(f"{error}; {_what_is_there(target, sum(done.values()))}") from error
            except ProducerHung:  # it is lost, and can't be ended: the next one fences it
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
def _outage_told() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.REQUEST_TIMED_OUT:
            raise
        raise OperatorError(
            f"{error.message}; when the cluster answers again, the same command goes on behind what is committed"
        ) from error


def _what_is_there(target: TopicTarget, rows: int) -> str:
    if rows == 0:
        return f"nothing of it is in topic {target.topic!r}"
    return (
        f"the first {rows:,} rows are in topic {target.topic!r} and stay there: push the others as a file of their "
        "own, since one that was mended is another source"
    )


def _behind(observe: Observe | None, rows: int) -> Observe | None:
    """Tells the rows of an earlier producer as well."""
    return None if observe is None else lambda positions, count: observe(positions, rows + count)


def _topic_id(cluster: Cluster, target: TopicTarget) -> str:
    return uuid_to_string(cluster.topic(target.topic or "").topic_id)


def progress_in(topic_id: str, committed: Mapping[Position, CommittedOffset]) -> dict[Position, CommittedOffset]:
    """Of the offsets of a push those in the topic of that id, with the source's identity as metadata.

    Positions of an earlier topic of the name say nothing: its rows are gone.
    """
    found = {}
    for key, offset in committed.items():
        identity, _, of_topic = offset.metadata.rstrip(LIBRARYS_END).partition(_ID_MARK)
        if of_topic == topic_id:
            found[key] = replace(offset, metadata=identity)
    return found


@dataclass(frozen=True, slots=True)
class _Progress:
    """Whose positions are committed with the rows, and in which topic these are."""

    cluster: Cluster
    target: TopicTarget
    push_id: str
    identity: str
    topic_id: str

    def commit(self, producer: TransactionalProducer, positions: Mapping[Position, int]) -> None:
        """Raises OperatorError, with nothing committed, for a topic that was made again, TopicNotFound, KafkaError."""
        metadata = f"{self.identity}{_ID_MARK}{self.topic_id}"
        offsets = {key: CommittedOffset(offset, -1, metadata) for key, offset in positions.items()}
        producer.send_offsets(group_name(self.push_id), offsets)
        if _topic_id(self.cluster, self.target) != self.topic_id:
            raise OperatorError(
                f"topic {self.target.topic!r} was deleted and made again while rows went into it, and nothing was "
                "committed in the new one: run the same command again, which begins anew"
            )
        producer.commit()


def _copy(
    producer: TransactionalProducer,
    source: RowSource,
    progress: _Progress,
    done: dict[Position, int],
    observe: Observe | None,
) -> None:
    """`done` is moved with each commit."""
    writer = RowWriter(producer, progress.target.topic)
    pending: dict[Position, int] = {}

    def commit() -> None:
        if producer.open_count:  # positions without rows are passed again
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


def _positions(progress: _Progress) -> dict[Position, int]:
    found = progress.target.committed_offsets(group_name(progress.push_id))
    if any(_ID_MARK not in each.metadata for each in found.values()):
        group = group_name(progress.push_id)
        raise OperatorError(
            f"the offsets of group {group!r} were set by another program, so which rows are in topic "
            f"{progress.target.topic!r} is unknown: push them under a new id, or delete the group (ottla group "
            f"delete {group}) to push all of them once more"
        )
    committed = progress_in(progress.topic_id, found)
    if any(each.metadata != progress.identity for each in committed.values()):
        raise OperatorError(
            f"the push {progress.push_id!r} was begun with other rows than these, or in another form; undo that to "
            "go on with it, or begin another under a new id"
        )
    return {key: each.offset for key, each in committed.items()}
