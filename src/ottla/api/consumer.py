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

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic

from ottla.api.errors import ClientClosed, UndecodableRecord, library_error
from ottla.api.forks import ended_in_children
from ottla.api.interceptors import ConsumerInterceptor, logged, require
from ottla.api.messages import Record, records_of
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config, read_settings
from ottla.api.topic_filter import TopicFilter
from ottla.client.librdkafka.rdkafka import leave_group, require_text
from ottla.client.wire.model import Position
from ottla.client.wire.time_limit import require_seconds
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Topics = str | TopicFilter | re.Pattern[str] | Iterable[str]
RebalanceHook = Callable[["Consumer[Any, Any]", list[Position]], object]
CommitHook = Callable[[Mapping[Position, int], KafkaError | None], object]

POLL_S = 0.1
"""Timeout of library calls, which cannot be interrupted: short, so that Ctrl-C and `stop` are handled."""
LEAVE_LIMIT_S = 30.0
INTERRUPTED_LEAVE_S = 5.0
SEEK_LIMIT_S = 5.0
SEEK_PAUSE_S = 0.01
STORE_S = 0.1
"""Longest delay until processed offsets are passed to the library, between consecutive batches."""
STAY_S = 1.0
"""Longest time of returning fetched records without a library call: otherwise the member is removed from the group
(`max.poll.interval.ms`)."""
MOST_AT_ONCE = 1_000_000
"""Maximum number of records per library call."""
REFRESH_MS = 300_000
"""Interval in which a filter looks for new topics (`metadata.max.age.ms`)."""
NO_GROUP = "ottla-without-a-group"
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
        import confluent_kafka

        settings = read_settings(bootstrap_servers, config, _DEFAULTS)
        library = settings.library
        self._in_group = bool(library.setdefault("group.id", ""))
        if not self._in_group:
            library |= {"group.id": NO_GROUP, "enable.auto.commit": False}
        self.group_id = str(library["group.id"])
        self._library = confluent_kafka
        self._settings = settings
        self._auto_commit = str(library.get("enable.auto.commit", "true")).lower() == "true"
        self._cooperative = library.get("group.protocol") == "consumer" or "cooperative" in str(
            library.get("partition.assignment.strategy", "")
        )
        self._max_poll_records = min(settings.own["max.poll.records"], MOST_AT_ONCE)
        self._refresh_s = settings.number("metadata.max.age.ms", REFRESH_MS) / 1000
        self._deserializers = (key_deserializer, value_deserializer)
        self._hooks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._on_commit_hook = on_commit
        self._interceptors = tuple(interceptors)
        self._filter: TopicFilter | None = None
        self._filtered: list[str] = []
        self._refresh_at = 0.0
        self._owned: set[Position] = set()
        self._reassigned = False
        self._subscribed = False
        self._assigning: dict[Position, int] | None = None
        self._batch: list[Record[RK, RV]] = []
        self._current = self._next = 0
        """Current batch: records being processed, and records not yet returned."""
        self._held: dict[Position, list[Record[RK, RV]]] = {}
        """Records of paused partitions that the library has already returned."""
        self._sought: dict[Position, int] = {}
        """Partitions without a returned record since their last seek."""
        self._done: dict[Position, int] = {}
        """Next offsets after processed records that were not passed to the library yet."""
        self._stored_at = self._asked_at = 0.0
        """Time of the last offset storage, and of the last fetch from the library."""
        self._pending: KafkaError | None = None
        self._stopped = False
        self._leaving = self._closed = self._in_hook = False
        require_text(library.values())
        try:
            self._consumer = confluent_kafka.Consumer({**library, "on_commit": self._on_commit})
        except confluent_kafka.KafkaException as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, library_error(error.args[0]).message) from error
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
            self._leave(self._current, INTERRUPTED_LEAVE_S)

    # Subscription

    def subscribe(self, topics: Topics) -> None:
        """Subscribe to these topics, instead of the previous ones. Raises KafkaError INVALID_GROUP_ID."""
        self._require_open()
        self._require_group("subscribing")
        if isinstance(topics, re.Pattern):
            topics = TopicFilter(topics)
        if isinstance(topics, TopicFilter):
            self._filter, self._filtered, self._refresh_at = topics, [], 0.0
            self._refresh_filter()
            return
        self._filter = None
        self._subscribe([topics] if isinstance(topics, str) else list(topics))

    def _subscribe(self, names: list[str]) -> None:
        require_text(names)
        for name in names:
            if name.startswith("^"):  # a regular expression for the library
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{name!r} is not a topic: subscribe to a TopicFilter instead",
                )
        self._subscribed = bool(names)
        if not names:
            self._consumer.unsubscribe()
            return
        with self._asking(f"subscribing to {', '.join(map(repr, names))}"):
            self._consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _refresh_filter(self) -> None:
        if self._filter is None or time.monotonic() < self._refresh_at:
            return
        try:
            metadata = self._consumer.list_topics(timeout=self._settings.seconds("default.api.timeout.ms"))
        except self._library.KafkaException as error:
            raise library_error(error.args[0], "the topics of the cluster") from error
        self._refresh_at = time.monotonic() + self._refresh_s
        found = self._filter.chosen(metadata.topics)
        if found != self._filtered:
            self._filtered = found
            self._subscribe(found)

    def assign(self, positions: Mapping[Position, int | None] | Iterable[Position]) -> None:
        """Read these partitions without group assignment, from offsets, or (None) from the group's committed offsets.

        Without a group, `auto.offset.reset` applies to None.
        """
        self._require_open()
        starts = dict(positions) if isinstance(positions, Mapping) else dict.fromkeys(positions)
        self._store_done()
        self._forget_all()
        self._owned = set(starts)
        self._subscribed = False
        self._consumer.assign([self._start(key, offset) for key, offset in starts.items()])

    def _start(self, key: Position, offset: int | None) -> Any:
        if offset is None:
            if self._in_group:
                offset = self._library.OFFSET_STORED
            elif self._resets_to_beginning:
                offset = self._library.OFFSET_BEGINNING
            else:
                offset = self._library.OFFSET_END
        return self._library.TopicPartition(*key, offset)

    @property
    def _resets_to_beginning(self) -> bool:
        return self._settings.library["auto.offset.reset"] in ("earliest", "smallest", "beginning")

    @property
    def assignment(self) -> frozenset[Position]:
        """The assigned partitions."""
        return frozenset(self._owned)

    # Reading

    def __iter__(self) -> Iterator[Record[RK, RV]]:
        """Iterate over records until `stop` or `close`; the next read returns the remaining ones."""
        self._require_open()
        while not self._stopped:
            if not self.is_ready and not self.fill(POLL_S):
                continue
            self._current = self._next
            self._next += 1
            yield self._batch[self._current]
            if self._closed:
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
        while not self._stopped and not self._closed:
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
        return len(self._batch) - self._next

    @property
    def is_ready(self) -> bool:
        """True if fetched records can be returned without a library call."""
        return self._next < len(self._batch) and time.monotonic() - self._asked_at < STAY_S

    def take(self, count: int | None) -> list[Record[RK, RV]]:
        """Return at most `count` fetched records, or all; the previously returned ones count as processed."""
        self._current = self._next
        self._next = len(self._batch) if count is None else min(len(self._batch), self._next + count)
        return self._batch[self._current : self._next]

    def fill(self, wait_s: float) -> bool:
        """Fetch the next records if none are buffered; returned ones count as processed. Returns True if there are
        some."""
        if self._closed:
            raise ClientClosed("consumer")
        if self._next < len(self._batch):
            if time.monotonic() - self._asked_at >= STAY_S:
                self._stay()
            return self._next < len(self._batch)
        if self._batch and self._auto_commit:
            self._note_done()
        self._batch, self._current, self._next = [], 0, 0
        if self._pending is not None:
            failure, self._pending = self._pending, None
            raise failure
        if self._filter is not None:
            self._refresh_filter()
        limit = self._max_poll_records
        messages = self._consume(limit, 0)
        if not messages:
            self._store_done()
            if wait_s > 0:  # with a larger limit the library waits for that many records
                messages = self._consume(1, wait_s)
            if messages and limit > 1:
                messages += self._consumer.consume(limit - 1, 0)
        if messages:
            self._batch = self._records(messages)
        return bool(self._batch)

    def _consume(self, limit: int, wait_s: float) -> list[Any]:
        self._reassigned = False
        messages: list[Any] = self._consumer.consume(limit, wait_s)
        self._asked_at = time.monotonic()
        return messages

    def _stay(self) -> None:
        """Keep the group membership alive during a long batch, and pass on its progress."""
        if self._auto_commit:
            self._store(self._next)
        del self._batch[: self._next]
        self._current = self._next = 0
        self._asked_at = time.monotonic()
        if self._pending is None and (messages := self._consume(1, 0)):
            self._batch += self._records(messages)

    def _records(self, messages: list[Any]) -> list[Record[RK, RV]]:
        records: list[Record[RK, RV]] = records_of(messages)
        if self._reassigned or len(records) < len(messages):
            messages = [each for each in messages if self._accept(each)]
            records = records_of(messages)
        if self._sought:
            for each in messages:
                self._sought.pop((each.topic(), each.partition()), None)
        if self._deserializers != (None, None):
            del records[self._deserialize(messages) :]
        for interceptor in self._interceptors:
            with logged(interceptor, "on_consume"):
                records = require(interceptor.on_consume(records), list)
        return records

    def _deserialize(self, messages: list[Any]) -> int:
        """Deserialize until the first failure, which is raised when these are processed; returns their number."""
        of_key, of_value = self._deserializers
        for number, message in enumerate(messages):
            try:
                if of_key is not None and (key := message.key()) is not None:
                    message.set_key(of_key(key))
                if of_value is not None and (value := message.value()) is not None:
                    message.set_value(of_value(value))
            except Exception as error:
                self._pending = UndecodableRecord(message.topic(), message.partition(), message.offset(), error)
                self._rewind_to(messages[number:])
                return number
        return len(messages)

    def _rewind_to(self, messages: list[Any]) -> None:
        """Fetch these records again, which were not returned."""
        for message in reversed(messages):
            self._sought[message.topic(), message.partition()] = message.offset()
        for key in {(message.topic(), message.partition()) for message in messages}:
            self._seek(key, self._sought[key])

    def _accept(self, message: Any) -> bool:
        """True for a record to return; an error is stored for the next call, after the records before it."""
        error = message.error()
        if error is None:  # its partition may have been revoked during this batch
            return (message.topic(), message.partition()) in self._owned
        failure = library_error(error, "" if message.topic() is None else f"{message.topic()}-{message.partition()}")
        if error.fatal() or not (error.retriable() or failure.code in RETRIABLE_ERRORS):
            self._pending = self._pending or failure
        return False

    # Positions

    def positions(self) -> dict[Position, int]:
        """The next offset of each partition, after all returned records; unknown ones are omitted."""
        self._require_open()
        return {(each.topic, each.partition): each.offset for each in self._resume_points(self._next)}

    def _resume_points(self, start: int) -> list[Any]:
        """The same for the library, with the records of the batch from `start` counted as not returned."""
        kind = self._library.TopicPartition
        asked = [kind(*key) for key in self._owned]
        found = self._consumer.position(asked) if asked else ()
        moved = dict(self._sought)
        for key, records in self._held.items():
            moved[key] = records[0].offset
        for record in reversed(self._batch[start:]):
            moved[record.topic, record.partition] = record.offset
        if moved:
            for each in found:
                each.offset = moved.get((each.topic, each.partition), each.offset)
        return [kind(each.topic, each.partition, each.offset) for each in found if each.offset >= 0]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at that offset; in `on_assign`, start there. Raises KafkaError for an unassigned partition."""
        self._require_open()
        key = (topic, partition)
        if self._assigning is not None:
            self._assigning[key] = offset
            self._sought[key] = offset
            return
        if key not in self._owned:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"partition {topic}-{partition} is not assigned")
        self._drop([key])
        self._sought[key] = offset
        self._seek(key, offset)

    def _seek(self, key: Position, offset: int) -> None:
        """Seek; retried, since a newly assigned partition cannot be moved for a moment."""
        deadline = time.monotonic() + SEEK_LIMIT_S
        while True:
            try:
                self._consumer.seek(self._library.TopicPartition(*key, offset))
            except self._library.KafkaException as error:
                reason = error.args[0]
                if reason.code() != self._library.KafkaError._STATE or time.monotonic() > deadline:
                    raise library_error(reason, f"seek in {key[0]}-{key[1]}") from error
                time.sleep(SEEK_PAUSE_S)
            else:
                return

    def seek_to_time(self, timestamp_ms: int, partitions: Iterable[Position] | None = None) -> None:
        """Continue at the first record at or after a time, or at the end; without partitions, in all.

        Raises KafkaError.
        """
        for key, offset in self.offsets_for_times(dict.fromkeys(self._wanted(partitions), timestamp_ms)).items():
            self.seek(*key, self._bound(key, self._library.OFFSET_END) if offset is None else offset)

    def seek_to_beginning(self, partitions: Iterable[Position] | None = None) -> None:
        """Continue at the first record of these partitions, or of all."""
        for key in self._wanted(partitions):
            self.seek(*key, self._bound(key, self._library.OFFSET_BEGINNING))

    def seek_to_end(self, partitions: Iterable[Position] | None = None) -> None:
        """Continue at the end of these partitions, or of all."""
        for key in self._wanted(partitions):
            self.seek(*key, self._bound(key, self._library.OFFSET_END))

    def seek_to_committed(self) -> None:
        """Continue at the committed offsets, after an aborted transaction; without one, by `auto.offset.reset`."""
        committed = self.committed(self._owned)
        reset = self._library.OFFSET_BEGINNING if self._resets_to_beginning else self._library.OFFSET_END
        for key in sorted(self._owned):
            offset = committed.get(key)
            self.seek(*key, self._bound(key, reset) if offset is None else offset)

    def _wanted(self, partitions: Iterable[Position] | None) -> list[Position]:
        self._require_open()
        if partitions is not None:
            return list(partitions)
        return sorted(self._owned if self._assigning is None else self._assigning)

    def _bound(self, key: Position, which: int) -> int:
        """The first offset (`OFFSET_BEGINNING`), or the end offset (`OFFSET_END`).

        Not with librdkafka's query for both, which waits forever if the response is lost (its issue 4878).
        """
        found = self.offsets_for_times({key: which})[key]
        if found is None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{key[0]}-{key[1]} returned no offset")
        return found

    def offsets_for_times(self, timestamps_ms: Mapping[Position, int]) -> dict[Position, int | None]:
        """The first offset with a timestamp at or after the given one, for each partition; None if there is none."""
        asked = [self._library.TopicPartition(*key, timestamp) for key, timestamp in timestamps_ms.items()]
        with self._asking("offsets for times"):
            found = self._consumer.offsets_for_times(asked, self._settings.seconds("default.api.timeout.ms"))
        _raise_first(found, "offset for a time")
        return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    def committed(self, partitions: Iterable[Position]) -> dict[Position, int]:
        """The committed offsets of the group; partitions without an offset are omitted."""
        self._require_group("committed offsets")
        asked = [self._library.TopicPartition(*key) for key in partitions]
        with self._asking(f"offsets of group {self.group_id!r}"):
            found = self._consumer.committed(asked, self._settings.seconds("default.api.timeout.ms"))
        _raise_first(found, f"offset of group {self.group_id!r}")
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def pause(self, partitions: Iterable[Position]) -> None:
        """Return no more records of these partitions, which stay assigned, until `resume`."""
        self._require_open()
        keys = list(partitions)
        self._consumer.pause([self._library.TopicPartition(*key) for key in keys])
        for key in keys:
            records = [each for each in self._batch[self._next :] if (each.topic, each.partition) == key]
            if records:
                self._held.setdefault(key, []).extend(records)
        self._take_out(keys)

    def resume(self, partitions: Iterable[Position]) -> None:
        """Continue with paused partitions at their position."""
        self._require_open()
        keys = list(partitions)
        held = [record for key in keys for record in self._held.pop(key, ())]
        self._batch[self._next : self._next] = held
        self._consumer.resume([self._library.TopicPartition(*key) for key in keys])

    # Commits

    def commit(self, offsets: Mapping[Position, int] | None = None, *, wait: bool = True) -> None:
        """Commit all returned records, or these next offsets. Without `wait`, `on_commit` receives the outcome.

        Raises KafkaError, such as ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID after a rebalance.
        """
        self._require_open()
        self._require_group("committing")
        if offsets is None:
            listed = self._resume_points(self._next)
        else:
            listed = [self._library.TopicPartition(*key, offset) for key, offset in offsets.items()]
        if not listed:
            return
        with self._asking(f"offsets of group {self.group_id!r}"):
            results = self._consumer.commit(offsets=listed, asynchronous=not wait)
        _raise_first(results or (), f"offset of group {self.group_id!r}")

    def _store(self, start: int) -> None:
        """Store processed offsets in the library, which commits them periodically."""
        if not self._auto_commit or not self._owned:
            return
        self._done.clear()
        self._store_offsets(self._resume_points(start))

    def _note_done(self) -> None:
        """Mark the batch as processed. For a contiguous batch of one partition this needs no library call."""
        first, last = self._batch[0], self._batch[-1]
        key = (last.topic, last.partition)
        is_run = last.offset - first.offset == len(self._batch) - 1 and key == (first.topic, first.partition)
        if not is_run or self._sought or self._held or self._interceptors:
            self._store(self._next)
        elif key in self._owned:
            self._done[key] = last.offset + 1
            now = time.monotonic()
            if now - self._stored_at >= STORE_S:
                self._stored_at = now
                self._store_done()

    def _store_done(self) -> None:
        if self._done:
            points = [self._library.TopicPartition(*key, offset) for key, offset in self._done.items()]
            self._done.clear()
            self._store_offsets(points)

    def _store_offsets(self, points: list[Any]) -> None:
        if points:
            with contextlib.suppress(self._library.KafkaException):  # revoked in the meantime
                self._consumer.store_offsets(offsets=points)

    def _on_commit(self, error: Any, results: list[Any]) -> None:
        if error is not None and error.code() == self._library.KafkaError._NO_OFFSET:
            return
        offsets = {(each.topic, each.partition): each.offset for each in results if each.offset >= 0}
        failed = error or next((each.error for each in results if each.error is not None), None)
        failure = None if failed is None else library_error(failed, f"offsets of group {self.group_id!r}")
        if failure is None:
            for interceptor in self._interceptors:
                with logged(interceptor, "on_commit"):
                    interceptor.on_commit(offsets)
        if self._on_commit_hook is not None:
            with self._hook():
                self._on_commit_hook(offsets, failure)
        elif failure is not None:
            logger.warning("%s", failure.message)

    def group_metadata(self) -> Any:
        """The metadata of this member for transactions (KIP-447)."""
        self._require_open()
        self._require_group("a transaction with offsets")
        return self._consumer.consumer_group_metadata()

    # Rebalances

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        keys = [(each.topic, each.partition) for each in partitions]
        self._assigning = dict.fromkeys(keys, self._library.OFFSET_INVALID)
        try:
            self._owned |= set(keys)
            self._reassigned = True
            self._call("assign", keys)
            for each in partitions:
                each.offset = self._assigning[each.topic, each.partition]
        finally:
            self._assigning = None
        (self._consumer.incremental_assign if self._cooperative else self._consumer.assign)(partitions)

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self._give_up("revoke", partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self._give_up("lost", partitions)

    def _give_up(self, hook: str, partitions: list[Any]) -> None:
        keys = [(each.topic, each.partition) for each in partitions]
        self._store_done()
        try:
            self._call(hook, keys)
        finally:
            self._drop(keys)
            self._owned -= set(keys)
            self._reassigned = True

    def _call(self, hook: str, keys: list[Position]) -> None:
        called = self._hooks[hook]
        if called is not None and not self._closed:
            with self._hook():
                called(self, sorted(keys))

    @contextlib.contextmanager
    def _hook(self) -> Iterator[None]:
        self._in_hook = True
        try:
            yield
        finally:
            self._in_hook = False

    def _drop(self, keys: list[Position]) -> None:
        """Drop fetched records of these partitions."""
        for key in keys:
            self._held.pop(key, None)
            self._sought.pop(key, None)
        self._take_out(keys)

    def _take_out(self, keys: list[Position]) -> None:
        rest = [each for each in self._batch[self._next :] if (each.topic, each.partition) not in keys]
        self._batch[self._next :] = rest

    def _forget_all(self) -> None:
        self._filter = None
        self._batch, self._current, self._next = [], 0, 0
        self._held.clear()
        self._sought.clear()

    # Close

    def close(self) -> None:
        """Commit processed records (`enable.auto.commit`) and leave the group; idempotent.

        If the cluster does not respond within LEAVE_LIMIT_S, the session of the member expires instead.
        """
        self._leave(self._next, LEAVE_LIMIT_S)

    def end_in_child(self) -> Any:
        """See `forks`."""
        self._closed = self._stopped = True
        return self._consumer

    def _leave(self, start: int, limit_s: float) -> None:
        if self._closed or self._leaving:  # a hook that runs during close may call close, too
            return
        if self._in_hook:  # the library cannot leave the group while it waits for a hook
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a hook can't close its consumer: call stop() instead")
        self._leaving = self._stopped = True
        try:
            if self._in_group and self._owned:
                self._call("revoke", list(self._owned))
            self._store(start)
        finally:
            self._go(limit_s)

    def _go(self, limit_s: float) -> None:
        self._closed = True
        close = self._consumer.close
        if self._subscribed:
            instance_id = self._settings.library.get("group.instance.id")
            close = partial(leave_group, self._consumer, instance_id=instance_id)
        leaving = threading.Thread(target=self._end, args=(close,), name="leaving-the-group", daemon=True)
        leaving.start()
        leaving.join(limit_s)

    def _end(self, close: Callable[[], object]) -> None:
        try:
            close()
        except Exception:  # of a hook during the last commit
            logger.exception("a hook of the consumer of group %r failed during close", self.group_id)

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosed("consumer")

    def _require_group(self, what: str) -> None:
        if not self._in_group:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"{what} needs the property group.id")

    @contextlib.contextmanager
    def _asking(self, subject: str) -> Iterator[None]:
        self._require_open()
        try:
            yield
        except self._library.KafkaException as error:
            raise library_error(error.args[0], subject) from error


def _raise_first(results: Iterable[Any], what: str) -> None:
    """Raise the first error of several partitions, if any."""
    for each in results:
        if each.error is not None:
            raise library_error(each.error, f"{what} in {each.topic}-{each.partition}")
