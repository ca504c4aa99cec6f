"""Fetcher of a legacy consumer: one thread that fetches from leaders while streams have room.

It discovers brokers in ZooKeeper, and again when the cluster becomes unreachable. `auto.offset.reset` applies to
missing offsets, offsets out of range, and topics that were deleted and created again. Transient errors are retried as
long as the partition is owned; the stream of the partition raises permanent ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.client.admin.cluster import Cluster
from ottla.client.legacy.streams import ChunkQueue, OwnedPartition
from ottla.client.librdkafka.consumer import ConsumedRecord, read_batches
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.failure import TopicNotFound, TopicReplaced
from ottla.client.wire.model import FetchResult
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError, OperatorError, ProtocolError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 1.0
REQUEST_TIMEOUT_S = 10.0

Failure = BrokerUnreachable | KafkaError | OperatorError | ProtocolError
FAILURES = (BrokerUnreachable, KafkaError, OperatorError, ProtocolError)


class Brokers:
    """A cluster client that discovers its brokers on first use; for one thread."""

    def __init__(self, find: Callable[[], str], client_id: str) -> None:
        """`find` returns addresses as bootstrap servers; raises KafkaError if there are none."""
        self._find = find
        self._client_id = client_id
        self._cluster: Cluster | None = None

    def cluster(self) -> Cluster:
        """The client. Raises KafkaError."""
        if self._cluster is None:
            self._cluster = Cluster(self._find(), client_id=self._client_id, timeout_s=REQUEST_TIMEOUT_S)
        return self._cluster

    def forget(self) -> None:
        """Close the connections; brokers are discovered again."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


class Fetcher:
    """See the module; only its thread may call `run`."""

    def __init__(self, shelf: ChunkQueue, brokers: Brokers, reset_to: int, max_bytes: int, max_wait_ms: int) -> None:
        """`reset_to` is the timestamp of `auto.offset.reset`: EARLIEST_TIMESTAMP or LATEST_TIMESTAMP."""
        self._shelf = shelf
        self._brokers = brokers
        self._reset_to = reset_to
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._topic_ids: dict[str, Uuid] = {}

    def run(self) -> None:
        """Fetch until the queue ends."""
        try:
            self._run()
        except BaseException as failure:
            self._shelf.fail(failure)
            raise
        finally:
            self._brokers.forget()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while (wanted := self._shelf.wanted()) is not None:
            failure: Failure | None
            try:
                failure = self._round(self._brokers.cluster(), wanted)
            except FAILURES as error:
                failure = error
                self._topic_ids.clear()
                self._brokers.forget()
            if failure is None:
                pause_s = FIRST_PAUSE_S
                continue
            logger.debug("no records from some partitions: %s", failure)
            self._shelf.rest(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _round(self, cluster: Cluster, wanted: list[OwnedPartition]) -> Failure | None:
        """One fetch for all partitions; returns the latest retriable failure."""
        failure: Failure | None = None
        asked: dict[TopicPartition, OwnedPartition] = {}
        offsets: dict[TopicPartition, int] = {}
        for owned in wanted:
            try:
                offset = self._begin(cluster, owned)
            except KafkaError as error:
                failure = self._refused(owned, owned.fetched, error) or failure
            else:
                asked[owned.key], offsets[owned.key] = owned, offset
        if not offsets:
            return failure
        answers = cluster.records.fetch_several(
            offsets, max_bytes=self._max_bytes, max_wait_ms=self._max_wait_ms, topic_ids=self._topic_ids
        )
        for key, answer in answers.items():
            if isinstance(answer, KafkaError):
                failure = self._refused(asked[key], offsets[key], answer) or failure
            elif answer.records:
                self._deliver(asked[key], offsets[key], answer)
        return failure

    def _begin(self, cluster: Cluster, owned: OwnedPartition) -> int:
        """The offset to fetch from."""
        topic = owned.key[0]
        if topic not in self._topic_ids:
            self._topic_ids[topic] = cluster.topics.get(topic).topic_id
        if owned.fetched is None:
            found = cluster.records.list_offsets({owned.key: self._reset_to})[owned.key].offset
            self._shelf.put(owned, (), found)
            return found
        return owned.fetched

    def _refused(self, owned: OwnedPartition, offset: int | None, error: KafkaError) -> KafkaError | None:
        """Handle a partition error: restart from the reset offset, pass it to the stream, or return it if it is
        transient."""
        if isinstance(error, TopicReplaced) or error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            logger.warning("resetting the offset of %s-%d by auto.offset.reset: %s", *owned.key, error)
            self._topic_ids.pop(owned.key[0], None)
            owned.fetched = None
        elif not isinstance(error, TopicNotFound) and error.code not in RETRIABLE_ERRORS:
            self._shelf.put(owned, (), offset, error)
            return None
        return error

    def _deliver(self, owned: OwnedPartition, offset: int, result: FetchResult) -> None:
        records: list[ConsumedRecord] = []
        following, failure = offset, None
        try:
            for position, seen in read_batches(owned.key, result, offset):
                records += seen
                following = position
        except KafkaError as error:
            failure = error
        self._shelf.put(owned, records, following, failure)
