"""`Consumer`: reads topics as a member of a group, or assigned partitions.

    with Consumer("localhost:9092", {"group.id": "readers"}, topics="views") as consumer:
        for record in consumer:
            print(record.key, record.value)

Invariants: a record is processed when the caller requests more records, commits, or leaves the `with` block without an
exception. Only processed records are committed automatically (`enable.auto.commit`: each `auto.commit.interval.ms`,
when partitions are revoked, and at the end), so a record that caused an exception is read again: at least once.
`commit` includes all returned records. Fetched records that were not returned are never committed.

Built on confluent-kafka. Not thread-safe, except for `stop`: use a consumer per thread (`Streams`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic

from ottla.api.consuming.buffer import FetchedRecords
from ottla.api.consuming.commits import ConsumerCommits
from ottla.api.consuming.hooks import CommitHook, ConsumerHooks
from ottla.api.consuming.library import LibraryConsumer
from ottla.api.consuming.membership import REFRESH_MS, ConsumerMembership
from ottla.api.consuming.positions import ConsumerPositions
from ottla.api.consuming.reader import RecordReader
from ottla.api.forks import ended_in_children
from ottla.api.interceptors import ConsumerInterceptor
from ottla.api.messages import Record
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config, read_settings
from ottla.api.topic_filter import Topics
from ottla.client.wire.time_limit import require_seconds
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition

POLL_S = 0.1
"""Timeout of library calls, which cannot be interrupted: short, so that Ctrl-C and `stop` are handled."""
LEAVE_LIMIT_S = 30.0
INTERRUPTED_LEAVE_S = 5.0
_DEFAULTS = {
    "auto.offset.reset": "latest",
    "check.crcs": True,
    "enable.auto.offset.store": False,
    "fetch.queue.backoff.ms": 10,
    "isolation.level": "read_uncommitted",
}


class Consumer(Generic[RK, RV]):
    """See the module. A context manager that commits and leaves the group.

    `topics` are subscribed to: names, or a filter. Without deserializers, keys and values are bytes. Hooks are called
    within `poll` and the iteration, and may commit and seek; `on_lost` is for partitions that another member may
    already own. `on_commit` receives the outcome of asynchronous commits.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        config: Config | None = None,
        *,
        topics: Topics = (),
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
        on_assign: RebalanceHook | None = None,
        on_revoke: RebalanceHook | None = None,
        on_lost: RebalanceHook | None = None,
        on_commit: CommitHook | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        """Connects later. Raises KafkaError INVALID_CONFIG for an invalid property."""
        settings = read_settings(bootstrap_servers, config, _DEFAULTS)
        refresh_s = settings.number("metadata.max.age.ms", REFRESH_MS) / 1000
        self._library = LibraryConsumer(settings)
        self.group_id = self._library.group_id
        self._hooks = ConsumerHooks(self, {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}, on_commit)
        self._buffer: FetchedRecords[RK, RV] = FetchedRecords()
        self._positions = ConsumerPositions(self._library, self._buffer)
        interceptors = tuple(interceptors)
        self._commits = ConsumerCommits(self._library, self._buffer, self._positions, self._hooks, interceptors)
        self._membership = ConsumerMembership(self._library, self._positions, self._commits, self._hooks, refresh_s)
        self._reader = RecordReader(
            self._library,
            self._buffer,
            self._positions,
            self._commits,
            self._membership,
            (key_deserializer, value_deserializer),
            interceptors,
        )
        self._leaving = self._stopped = False
        ended_in_children(self)
        if topics != ():  # an empty name is invalid, and rejected as such
            self.subscribe(topics)

    def __enter__(self) -> Consumer[RK, RV]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._leave(self._buffer.current, INTERRUPTED_LEAVE_S)

    # Subscription

    def subscribe(self, topics: Topics) -> None:
        """Subscribe to these topics, instead of the previous ones. Raises KafkaError INVALID_GROUP_ID."""
        self._library.require_open()
        self._library.require_group("subscribing")
        self._membership.subscribe(topics)

    def assign(self, positions: Mapping[TopicPartition, int | None] | Iterable[TopicPartition]) -> None:
        """Read these partitions without group assignment, from offsets, or (None) from the group's committed offsets.

        Without a group, `auto.offset.reset` applies to None.
        """
        self._library.require_open()
        starts = dict(positions) if isinstance(positions, Mapping) else dict.fromkeys(positions)
        self._commits.store_done()
        self._membership.unsubscribe()
        self._positions.assign(starts)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._positions.owned)

    # Reading

    def __iter__(self) -> Iterator[Record[RK, RV]]:
        """Iterate over records until `stop` or `close`; the next read returns the remaining ones."""
        library, buffer = self._library, self._buffer
        library.require_open()
        while not self._stopped:
            if not buffer.is_ready and not self.fill(POLL_S):
                continue
            buffer.current = buffer.next
            buffer.next += 1
            yield buffer.batch[buffer.current]
            if library.closed:
                return

    def poll(self, timeout_s: float, *, max_records: int | None = None) -> list[Record[RK, RV]]:
        """The available records, at most `max.poll.records`; waits for the first one, empty after the timeout.

        Raises KafkaError for permanent errors of a partition or the coordinator, such as OFFSET_OUT_OF_RANGE with
        `auto.offset.reset=none`, TOPIC_AUTHORIZATION_FAILED, FENCED_INSTANCE_ID. Raises ValueError for a `timeout_s` of
        NaN.
        """
        require_seconds(timeout_s)
        deadline = time.monotonic() + timeout_s
        left_s = timeout_s
        while not self.fill(min(POLL_S, left_s)):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._stopped:
                return []
        return self.take(max_records)

    def batches(
        self, *, max_records: int | None = None, idle_timeout_s: float | None = None
    ) -> Iterator[list[Record[RK, RV]]]:
        """The results of `poll`, forever, or until no record arrives for `idle_timeout_s`; ends after `stop` and
        `close`."""
        require_seconds(idle_timeout_s)
        last = time.monotonic()
        while not self._stopped and not self._library.closed:
            records = self.poll(POLL_S, max_records=max_records)
            if records:
                yield records
                last = time.monotonic()
            elif idle_timeout_s is not None and time.monotonic() - last >= idle_timeout_s:
                return

    def stop(self) -> None:
        """End iterations after their current record; from any thread, and from a signal handler."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """True if iterations are to end."""
        return self._stopped

    @property
    def buffered(self) -> int:
        """Number of fetched records that were not returned."""
        return len(self._buffer.batch) - self._buffer.next

    @property
    def is_ready(self) -> bool:
        """True if fetched records can be returned without a library call."""
        return self._buffer.is_ready

    def take(self, count: int | None) -> list[Record[RK, RV]]:
        """Return at most `count` fetched records, or all; the previously returned ones count as processed."""
        return self._buffer.take(count)

    def fill(self, wait_s: float) -> bool:
        """Fetch the next records if none are buffered; returned ones count as processed. Returns True if there are
        some."""
        self._library.require_open()
        return self._reader.fill(wait_s)

    # Positions

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, after all returned records; unknown ones are omitted."""
        self._library.require_open()
        return self._positions.next_offsets()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at that offset; in `on_assign`, start there. Raises KafkaError for an unassigned partition."""
        self._library.require_open()
        self._positions.seek((topic, partition), offset)

    def seek_to_time(self, timestamp_ms: int, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the first record at or after a time, or at the end; without partitions, in all.

        Raises KafkaError.
        """
        self._library.require_open()
        found = self._library.offsets_for_times(dict.fromkeys(self._positions.wanted(partitions), timestamp_ms))
        self._positions.seek_all(found, self._library.kafka.OFFSET_END)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the first record of these partitions, or of all."""
        self._library.require_open()
        keys = self._positions.wanted(partitions)
        self._positions.seek_all(dict.fromkeys(keys), self._library.kafka.OFFSET_BEGINNING)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue at the end of these partitions, or of all."""
        self._library.require_open()
        keys = self._positions.wanted(partitions)
        self._positions.seek_all(dict.fromkeys(keys), self._library.kafka.OFFSET_END)

    def seek_to_committed(self) -> None:
        """Continue at the committed offsets, after an aborted transaction; without one, by `auto.offset.reset`."""
        owned = self._positions.owned
        committed = self._library.committed(owned)
        self._positions.seek_all({key: committed.get(key) for key in sorted(owned)}, self._library.reset_offset)

    def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with a timestamp at or after the given one, for each partition; None if there is none."""
        return self._library.offsets_for_times(timestamps_ms)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of the group; partitions without an offset are omitted."""
        return self._library.committed(partitions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these partitions, which stay assigned, until `resume`."""
        self._library.require_open()
        keys = list(partitions)
        self._library.consumer.pause(self._library.partitions(keys))
        self._buffer.hold(keys)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue with paused partitions at their position."""
        self._library.require_open()
        keys = list(partitions)
        self._buffer.release(keys)
        self._library.consumer.resume(self._library.partitions(keys))

    # Commits

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, wait: bool = True) -> None:
        """Commit all returned records, or these next offsets. Without `wait`, `on_commit` receives the outcome.

        Raises KafkaError, such as ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID after a rebalance.
        """
        self._library.require_open()
        self._library.require_group("committing")
        self._commits.commit(offsets, wait=wait)

    def group_metadata(self) -> Any:
        """The metadata of this member for transactions (KIP-447)."""
        self._library.require_open()
        self._library.require_group("a transaction with offsets")
        return self._library.consumer.consumer_group_metadata()

    # Close

    def close(self) -> None:
        """Commit processed records (`enable.auto.commit`) and leave the group; idempotent.

        If the cluster does not respond within LEAVE_LIMIT_S, the session of the member expires instead.
        """
        self._leave(self._buffer.next, LEAVE_LIMIT_S)

    def end_in_child(self) -> Any:
        """See `forks`."""
        self._library.closed = self._stopped = True
        return self._library.consumer

    def _leave(self, start: int, limit_s: float) -> None:
        if self._library.closed or self._leaving:  # a hook that runs during close may call close, too
            return
        if self._hooks.is_running:  # the library cannot leave the group while it waits for a hook
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a hook can't close its consumer: call stop() instead")
        self._leaving = self._stopped = True
        try:
            if self._library.in_group and self._positions.owned:
                self._hooks.call("revoke", list(self._positions.owned))
            self._commits.store(start)
        finally:
            self._library.close(limit_s, is_subscribed=self._membership.is_subscribed)


RebalanceHook = Callable[[Consumer[Any, Any], list[TopicPartition]], object]
