"""Copy rows into a topic exactly once, in one process: what `ottla pipeline push` and `replay` do.

The rows of each transaction and the positions behind them are committed together, the positions as offsets of a group
that has the push's name. A push that was killed at any point and is run again goes on behind the last transaction; one
that runs still is fenced by the next one under the same id.

**Invariants:** a push under an id is one source only (its identity is stored with the positions); a row is committed
once, whoever dies when; a push that ended adds nothing when it is run again, as long as the group's offsets are kept
(`offsets.retention.minutes`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ottla.client.model import CommittedOffset, Position
from ottla.client.transactional_producer import TransactionalProducer
from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.topic import RowWriter, TopicTarget
from ottla.pipeline.sources.rows import RowSource

TRANSACTION_ROWS = 50_000
TRANSACTION_S = 5.0
"""A transaction ends with the batch that reaches either."""
ABORT_S = 5.0
PUSH_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")

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

    Raises OperatorError when the id was another source's, ProducerFenced when the same push was begun elsewhere, and
    KafkaError.
    """
    started = time.monotonic()
    group = group_name(push_id)
    producer = target.transactional_producer(group)
    done = _positions(target, source, push_id)
    resumed = bool(done)
    try:
        _copy(producer, target, source, group, done, observe)
    except BaseException:
        producer.end(ABORT_S)
        raise
    return PushSummary(
        push_id,
        target.topic or "",
        producer.committed_count,
        producer.transaction_count,
        time.monotonic() - started,
        resumed,
    )


def _copy(
    producer: TransactionalProducer,
    target: TopicTarget,
    source: RowSource,
    group: str,
    done: Mapping[Position, int],
    observe: Observe | None,
) -> None:
    writer = RowWriter(producer, target.topic)
    pending: dict[Position, int] = {}

    def commit() -> None:
        if producer.open_count:  # positions without rows are passed again
            offsets = {key: CommittedOffset(offset, -1, source.identity) for key, offset in pending.items()}
            producer.send_offsets(group, offsets)
            producer.commit()
            if observe is not None:
                observe(pending, producer.committed_count)

    begun = time.monotonic()
    for batch, positions in source.batches(done):
        if producer.open_count == 0:
            begun = time.monotonic()
        writer.write(batch)
        pending |= positions
        if producer.open_count >= TRANSACTION_ROWS or time.monotonic() - begun >= TRANSACTION_S:
            commit()
    commit()


def _positions(target: TopicTarget, source: RowSource, push_id: str) -> dict[Position, int]:
    committed = target.committed_offsets(group_name(push_id))
    if any(each.metadata != source.identity for each in committed.values()):
        raise OperatorError(
            f"the push {push_id!r} was begun with other rows than these, or in another form; undo that to go on with "
            "it, or begin another under a new id"
        )
    return {key: each.offset for key, each in committed.items()}
