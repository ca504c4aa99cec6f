"""ListTransactions and DescribeTransactions (KIP-664, KIP-994, KIP-1152).

A coordinator may have a million ids, so they are filtered in steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.common.errors import ErrorCode
from ottla.common.kafka.patterns import compile_pattern
from ottla.coordinator.transaction.metadata import TransactionMetadata
from ottla.coordinator.transaction.state import STATES_BY_LABEL
from ottla.protocol.messages.describe_transactions import TopicData
from ottla.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ottla.protocol.messages.list_transactions import ListedTransaction, ListTransactionsRequest

EXAMINED_PER_STEP = 500
"""Ids filtered in one step: up to eight milliseconds for the worst pattern, a fraction of one without."""


class TransactionFilter:
    """Filters of ListTransactions. An empty filter matches everything."""

    __slots__ = ("_duration_ms", "_matches", "_now_ms", "_producer_ids", "_states", "unknown_states")

    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
        labels = request.state_filters
        self.unknown_states = [label for label in dict.fromkeys(labels) if label not in STATES_BY_LABEL]
        """Unknown state names, in the order of the request."""
        self._states = frozenset(STATES_BY_LABEL[label] for label in labels if label in STATES_BY_LABEL)
        if not labels:
            self._states = frozenset(STATES_BY_LABEL.values())
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms
        pattern = request.transactional_id_pattern
        self._matches = compile_pattern(pattern, "Transaction ID pattern") if pattern else None

    def select(self, transactions: Iterable[tuple[str, TransactionMetadata | None]]) -> list[ListedTransaction]:
        """Return the matching ids; metadata None is a deleted id."""
        listed = []
        for transactional_id, metadata in transactions:
            if metadata is None or metadata.state not in self._states:
                continue
            if self._producer_ids and metadata.producer_id not in self._producer_ids:
                continue
            # The start of an id without transactions is -1, so it counts as long ago: as in Apache Kafka.
            if 0 <= self._duration_ms >= self._now_ms - metadata.start_ms:
                continue
            if self._matches is not None and not self._matches(transactional_id.encode()):
                continue
            listed.append(
                ListedTransaction(
                    transactional_id=transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.label,
                )
            )
        return listed


def steps(transactional_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    """Split the ids into pieces of EXAMINED_PER_STEP."""
    for start in range(0, len(transactional_ids), EXAMINED_PER_STEP):
        yield transactional_ids[start : start + EXAMINED_PER_STEP]


def describe(transactional_id: str, metadata: TransactionMetadata | None) -> DescribedTransaction:
    """Return the description; TRANSACTIONAL_ID_NOT_FOUND for an unknown id."""
    if metadata is None:
        return DescribedTransaction(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, TopicData] = {}
    for topic, index in sorted(metadata.partitions):
        topics.setdefault(topic, TopicData(topic=topic)).partitions.append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=metadata.state.label,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=list(topics.values()),
    )
