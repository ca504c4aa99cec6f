"""`ConsumerCommits`: offsets of processed records, which the library or the caller commits."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.api.consuming.buffer import FetchedRecords
from ottla.api.consuming.hooks import ConsumerHooks
from ottla.api.consuming.library import LibraryConsumer, raise_first
from ottla.api.consuming.positions import ConsumerPositions
from ottla.api.errors import library_error
from ottla.api.interceptors import ConsumerInterceptor, logged
from ottla.common.kafka.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

STORE_S = 0.1
"""Longest delay until processed offsets are passed to the library, between consecutive batches."""


class ConsumerCommits:
    """See the module. `is_automatic`: processed offsets are passed to the library (`enable.auto.commit`)."""

    def __init__(
        self,
        library: LibraryConsumer,
        buffer: FetchedRecords[Any, Any],
        positions: ConsumerPositions,
        hooks: ConsumerHooks,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        properties = library.settings.library
        self.is_automatic = str(properties.get("enable.auto.commit", "true")).lower() == "true"
        self._library = library
        self._buffer = buffer
        self._positions = positions
        self._hooks = hooks
        self._interceptors = interceptors
        self._done: dict[TopicPartition, int] = {}
        """Next offsets after processed records that were not passed to the library yet."""
        self._stored_at = 0.0
        library.on_commit = self._on_commit

    def commit(self, offsets: Mapping[TopicPartition, int] | None, *, wait: bool) -> None:
        """Commit all returned records, or these next offsets. Raises KafkaError."""
        if offsets is None:
            listed = self._positions.resume_points(self._buffer.next)
        else:
            listed = [self._library.kafka.TopicPartition(*key, offset) for key, offset in offsets.items()]
        if not listed:
            return
        with self._library.asking(f"offsets of group {self._library.group_id!r}"):
            results = self._library.consumer.commit(offsets=listed, asynchronous=not wait)
        raise_first(results or (), f"offset of group {self._library.group_id!r}")

    def store(self, start: int) -> None:
        """Store processed offsets in the library, which commits them periodically: those before `start` of the
        batch."""
        if not self.is_automatic or not self._positions.owned:
            return
        self._done.clear()
        self._store_offsets(self._positions.resume_points(start))

    def note_done(self) -> None:
        """Mark the batch as processed. For a contiguous batch of one partition this needs no library call."""
        batch = self._buffer.batch
        first, last = batch[0], batch[-1]
        key = (last.topic, last.partition)
        is_run = last.offset - first.offset == len(batch) - 1 and key == (first.topic, first.partition)
        if not is_run or self._positions.sought or self._buffer.held or self._interceptors:
            self.store(self._buffer.next)
        elif key in self._positions.owned:
            self._done[key] = last.offset + 1
            now = time.monotonic()
            if now - self._stored_at >= STORE_S:
                self._stored_at = now
                self.store_done()

    def store_done(self) -> None:
        """Store the offsets of batches that were marked as processed."""
        if self._done:
            points = [self._library.kafka.TopicPartition(*key, offset) for key, offset in self._done.items()]
            self._done.clear()
            self._store_offsets(points)

    def _store_offsets(self, points: list[Any]) -> None:
        if points:
            with contextlib.suppress(self._library.kafka.KafkaException):  # revoked in the meantime
                self._library.consumer.store_offsets(offsets=points)

    def _on_commit(self, error: Any, results: list[Any]) -> None:
        if error is not None and error.code() == self._library.kafka.KafkaError._NO_OFFSET:
            return
        offsets = {(each.topic, each.partition): each.offset for each in results if each.offset >= 0}
        failed = error or next((each.error for each in results if each.error is not None), None)
        failure = None if failed is None else library_error(failed, f"offsets of group {self._library.group_id!r}")
        if failure is None:
            for interceptor in self._interceptors:
                with logged(interceptor, "on_commit"):
                    interceptor.on_commit(offsets)
        if self._hooks.on_commit is not None:
            with self._hooks.running():
                self._hooks.on_commit(offsets, failure)
        elif failure is not None:
            logger.warning("%s", failure.message)
