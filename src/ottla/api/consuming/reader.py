"""`RecordReader`: fetches messages from the library and makes records of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Generic

from ottla.api.consuming.buffer import FetchedRecords
from ottla.api.consuming.commits import ConsumerCommits
from ottla.api.consuming.library import LibraryConsumer
from ottla.api.consuming.membership import ConsumerMembership
from ottla.api.consuming.positions import ConsumerPositions
from ottla.api.errors import UndecodableRecord, library_error
from ottla.api.interceptors import ConsumerInterceptor, logged, require
from ottla.api.messages import Record, records_of
from ottla.api.records import RK, RV, Deserializer, deserialize
from ottla.common.errors import RETRIABLE_ERRORS, KafkaError

MAX_RECORDS_PER_CALL = 1_000_000
"""Maximum number of records per library call."""


class RecordReader(Generic[RK, RV]):
    """See the module."""

    def __init__(
        self,
        library: LibraryConsumer,
        buffer: FetchedRecords[RK, RV],
        positions: ConsumerPositions,
        commits: ConsumerCommits,
        membership: ConsumerMembership,
        deserializers: tuple[Deserializer[RK] | None, Deserializer[RV] | None],
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._library = library
        self._buffer = buffer
        self._positions = positions
        self._commits = commits
        self._membership = membership
        self._deserializers = deserializers
        self._interceptors = interceptors
        self._max_poll_records = min(library.settings.own["max.poll.records"], MAX_RECORDS_PER_CALL)
        self._pending: KafkaError | None = None
        """Error to raise after the records before it."""

    def fill(self, wait_s: float) -> bool:
        """Fetch the next records if none are buffered; returned ones count as processed. Returns True if there are
        some."""
        buffer = self._buffer
        if buffer.next < len(buffer.batch):
            if buffer.must_stay:
                self._stay()
            return buffer.next < len(buffer.batch)
        if buffer.batch and self._commits.is_automatic:
            self._commits.note_done()
        buffer.clear()
        if self._pending is not None:
            failure, self._pending = self._pending, None
            raise failure
        self._membership.refresh_filter()
        limit = self._max_poll_records
        messages = self._consume(limit, 0)
        if not messages:
            self._commits.store_done()
            if wait_s > 0:  # with a larger limit the library waits for that many records
                messages = self._consume(1, wait_s)
            if messages and limit > 1:
                messages += self._library.consumer.consume(limit - 1, 0)
        if messages:
            buffer.batch = self._records(messages)
        return bool(buffer.batch)

    def _consume(self, limit: int, wait_s: float) -> list[Any]:
        self._positions.reassigned = False
        messages: list[Any] = self._library.consumer.consume(limit, wait_s)
        self._buffer.asked_at = time.monotonic()
        return messages

    def _stay(self) -> None:
        """Keep the group membership alive during a long batch, and pass on its progress."""
        if self._commits.is_automatic:
            self._commits.store(self._buffer.next)
        self._buffer.drop_returned()
        self._buffer.asked_at = time.monotonic()
        if self._pending is None and (messages := self._consume(1, 0)):
            self._buffer.batch += self._records(messages)

    def _records(self, messages: list[Any]) -> list[Record[RK, RV]]:
        records: list[Record[RK, RV]] = records_of(messages)
        if self._positions.reassigned or len(records) < len(messages):
            messages = [each for each in messages if self._accept(each)]
            records = records_of(messages)
        if sought := self._positions.sought:
            for each in messages:
                sought.pop((each.topic(), each.partition()), None)
        if self._deserializers != (None, None):
            del records[self._deserialize(messages) :]
        for interceptor in self._interceptors:
            with logged(interceptor, "on_consume"):
                records = require(interceptor.on_consume(records), list)
        return records

    def _deserialize(self, messages: list[Any]) -> int:
        """Deserialize until the first failure, which is raised when these are processed; returns their number."""
        for number, message in enumerate(messages):
            try:
                deserialize(message, *self._deserializers)
            except Exception as error:
                self._pending = UndecodableRecord(message.topic(), message.partition(), message.offset(), error)
                self._positions.rewind_to(messages[number:])
                return number
        return len(messages)

    def _accept(self, message: Any) -> bool:
        """True for a record to return; an error is stored for the next call, after the records before it."""
        error = message.error()
        if error is None:  # its partition may have been revoked during this batch
            return (message.topic(), message.partition()) in self._positions.owned
        failure = library_error(error, "" if message.topic() is None else f"{message.topic()}-{message.partition()}")
        if error.fatal() or not (error.retriable() or failure.code in RETRIABLE_ERRORS):
            self._pending = self._pending or failure
        return False
