"""A thin group consumer based on confluent-kafka, with the features that the command line needs.

Invariants: an offset is committed only after the caller has requested more records, so records that were not processed
are read again by the next owner (at least once). Commits are sent every COMMIT_INTERVAL_S, before partitions are
revoked, and at the end. With `ends`, the iteration stops once this member has reached the end of every partition that
it owns; records at and beyond an end are neither returned nor committed.

Left out: commits in transactions, manual commits, the API for programs (`ottla.api`). Not thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from ottla.client.librdkafka.consumer import TIMESTAMP_TYPES, ConsumedRecord
from ottla.client.librdkafka.message_text import Render
from ottla.client.librdkafka.rdkafka import (
    RECONNECT_BACKOFF_MAX_MS,
    LibraryOutage,
    headers_of,
    kafka_error,
    leave_group,
    library_client,
    require_group_id,
    require_text,
)
from ottla.client.wire.connection import library_servers
from ottla.client.wire.outage import Notify
from ottla.client.wire.time_limit import require_seconds
from ottla.common.kafka.topic_partition import TopicPartition

BATCH_RECORDS = 500
BATCH_WAIT_S = 0.1
FULL_QUEUE_BACKOFF_MS = 10
"""The library's default pause of a second, whenever its queue is full, more than halves the speed of a long read."""
COMMIT_INTERVAL_S = 1.0
LEAVE_LIMIT_S = 30.0
"""Apache Kafka's default timeout for closing a consumer."""
INTERRUPTED_LEAVE_S = 5.0


class GroupConsumer:
    """A group member that reads some topics; a context manager that leaves the group.

    A partition without a committed offset starts at its start or end, by `from_beginning`. `properties` are those of
    librdkafka (such as `group.protocol=consumer`), and override the defaults.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topics: Sequence[str],
        *,
        from_beginning: bool = False,
        ends: Mapping[TopicPartition, int] | None = None,
        client_id: str = "ottla",
        isolation: str = "read_committed",
        properties: Mapping[str, str] | None = None,
        notify: Notify | None = None,
    ) -> None:
        """`notify` gets a message when the cluster becomes unreachable and when it is back.

        Raises KafkaError INVALID_CONFIG for a property that librdkafka rejects, INVALID_GROUP_ID for an empty id.
        """
        import confluent_kafka

        self._library = confluent_kafka
        settings: dict[str, Any] = {
            "bootstrap.servers": library_servers(bootstrap_servers),
            "client.id": client_id,
            "group.id": group_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "isolation.level": isolation,
            "fetch.queue.backoff.ms": FULL_QUEUE_BACKOFF_MS,
            "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
            "log_level": 0,
            **(properties or {}),
        }
        require_group_id(settings["group.id"])
        require_text(topics)
        self._instance_id = settings.get("group.instance.id")
        self._outage = LibraryOutage(notify)
        self._ends = dict(ends) if ends is not None else None
        self._owned: set[TopicPartition] = set()
        self._finished: set[TopicPartition] = set()
        self._uncommitted: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._consumer = library_client(confluent_kafka.Consumer, {**settings, "error_cb": self._outage.on_error})
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def __enter__(self) -> GroupConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit and leave the group. If the cluster does not respond in time, the session of the member expires, and
        uncommitted records are read again."""
        leaving = threading.Thread(target=self._leave, name="leaving-the-group", daemon=True)
        leaving.start()
        leaving.join(LEAVE_LIMIT_S if kind is None else INTERRUPTED_LEAVE_S)

    def _leave(self) -> None:
        self._commit(wait=True)
        # Waits for every pending response; the call has no timeout.
        leave_group(self._consumer, instance_id=self._instance_id)

    def batches(
        self, *, max_records: int | None = None, idle_timeout_s: float | None = None
    ) -> Iterator[list[ConsumedRecord]]:
        """Records in lists, as they arrive; ends after `max_records`, at the `ends`, or after the idle timeout.

        Raises KafkaError for errors of a partition or the coordinator from which the library does not recover.
        """
        for messages in self._read(max_records, idle_timeout_s):
            yield [record_of(message) for message in messages]

    def rendered(
        self, render: Render, *, max_records: int | None = None, idle_timeout_s: float | None = None
    ) -> Iterator[bytes]:
        """The text of the same records by `message_text.make_renderer`, without objects for records.

        Raises as `batches`.
        """
        return map(render, self._read(max_records, idle_timeout_s))

    def _read(self, max_records: int | None, idle_timeout_s: float | None) -> Iterator[list[Any]]:
        """Messages with records, in lists; their offsets are committed after the request for the next list."""
        require_seconds(idle_timeout_s)
        remaining = max_records
        last_arrival = time.monotonic()
        while (remaining is None or remaining > 0) and not self._done():
            count = BATCH_RECORDS if remaining is None else min(BATCH_RECORDS, remaining)
            wait_s = BATCH_WAIT_S if idle_timeout_s is None else min(BATCH_WAIT_S, idle_timeout_s)
            messages = self._consumer.consume(count, wait_s)
            self._outage.look(self._consumer)
            messages, next_offsets = self._accepted(messages)
            now = time.monotonic()
            if messages:
                last_arrival = now
                if remaining is not None:
                    remaining -= len(messages)
                yield messages
                self._uncommitted.update(next_offsets)
            elif idle_timeout_s is not None and now - last_arrival >= idle_timeout_s:
                return
            if now - self._committed_at >= COMMIT_INTERVAL_S:
                self._commit(wait=False)

    def _done(self) -> bool:
        return self._ends is not None and bool(self._owned) and self._owned <= self._finished

    def _accepted(self, messages: list[Any]) -> tuple[list[Any], dict[TopicPartition, int]]:
        """Return the messages with records to return, and the next offset of each of their partitions."""
        if all(message.error() is None for message in messages):
            next_offsets = _next_offsets(messages)
            if all(self._is_before_end(key, offset) for key, offset in next_offsets.items()):
                return messages, next_offsets
        messages = [message for message in messages if self._accepts(message)]
        return messages, _next_offsets(messages)

    def _is_before_end(self, key: TopicPartition, position: int) -> bool:
        """Return whether this member owns the partition and has not reached its end."""
        end = self._end(key)
        return key in self._owned and (end is None or position < end)

    def _accepts(self, message: Any) -> bool:
        """Return whether a message is a record to return: not an end-of-partition event, and not beyond the end."""
        key = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == self._library.KafkaError._PARTITION_EOF:
                self._finish_at(key, message.offset())
            elif error.fatal() or not error.retriable():
                raise kafka_error(error, "" if key[0] is None else f"partition {key[0]}-{key[1]}")
            return False
        if key not in self._owned:  # its partition was revoked during this batch
            return False
        end = self._end(key)
        self._finish_at(key, message.offset() + 1)
        return end is None or message.offset() < end

    def _end(self, key: TopicPartition) -> int | None:
        """The end of a partition; a partition that was created later has no records before its end."""
        return None if self._ends is None else self._ends.get(key, 0)

    def _finish_at(self, key: TopicPartition, position: int) -> None:
        end = self._end(key)
        if end is not None and position >= end and key not in self._finished:
            self._finished.add(key)
            self._consumer.pause([self._library.TopicPartition(*key)])

    def _commit(self, *, wait: bool) -> None:
        """Commit processed offsets. A rejection is not an error: the new owner of the partition reads the records
        again.

        Nothing is sent to an unreachable cluster: the library would wait for it, also when it closes.
        """
        self._committed_at = time.monotonic()
        if not self._uncommitted or self._outage.lasts:
            return
        offsets = [self._library.TopicPartition(*key, offset) for key, offset in self._uncommitted.items()]
        self._uncommitted.clear()
        try:
            self._consumer.commit(offsets=offsets, asynchronous=not wait)
        except self._library.KafkaException:
            return

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        keys = {(each.topic, each.partition) for each in partitions}
        self._owned |= keys
        self._finished -= keys

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self._commit(wait=True)
        self._forget(partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: list[Any]) -> None:
        for each in partitions:
            self._owned.discard((each.topic, each.partition))
            self._uncommitted.pop((each.topic, each.partition), None)


def _next_offsets(messages: list[Any]) -> dict[TopicPartition, int]:
    """Return the offset behind the last message of each partition."""
    last = {(message.topic(), message.partition()): message.offset() for message in messages}
    return {key: offset + 1 for key, offset in last.items()}


def record_of(message: Any) -> ConsumedRecord:
    """The record of a message without an error."""
    kind, timestamp = message.timestamp()
    return ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp if kind in TIMESTAMP_TYPES else None,
        TIMESTAMP_TYPES.get(kind),
        message.key(),
        message.value(),
        headers_of(message),
    )
