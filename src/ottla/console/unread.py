"""Lag in time: the age of the oldest record that a group has not consumed.

It is the time of the console minus the timestamp of the first record at or after the committed offset. No request
returns the timestamp of an offset, so that record is fetched with the credentials of the user. That needs READ on
the topic. Timestamps of the same offset are read once in a session. `UnreadReader` has the bounds of a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import FetchResult
from ottla.common.errors import KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.console import formats
from ottla.console.context import Context
from ottla.console.errors import FORBIDDEN
from ottla.console.lags import log_starts
from ottla.record.batch import LOG_APPEND_TIME
from ottla.record.legacy.stored import iter_any_batches

MAX_READS = 60
"""Records that one page fetches."""
BUDGET_S = 2.0
MAX_OF_GROUP = 5
"""Partitions that are read for a group in a list."""
FETCH_BYTES = 1
"""A fetch returns one whole batch at least (KIP-74), and no more is needed."""
MAX_BATCHES = 5
"""Batches without a record of a producer, such as transaction markers, that are passed over."""
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Decompressed size of a batch."""
MAX_KNOWN = 2_000
"""Timestamps that a session keeps."""
KNOWN = "unread timestamps"
ALL_READ = -2
"""In place of a timestamp: only transaction markers follow. A record without timestamp has -1."""


class Age(NamedTuple):
    """Age of the oldest unread record of several partitions; `is_least`: some could not be read, so it may be more."""

    seconds: float | None
    is_least: bool

    def text(self) -> str:
        """`5 min`, `at least 5 min`, or a dash."""
        if self.seconds is None:
            return "-"
        return f"{'at least ' if self.is_least else ''}{formats.duration(self.seconds)}"


class UnreadReader:
    """Reads the timestamps of unread records for one page, within its bounds."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._until_s = context.services.clock.monotonic() + BUDGET_S
        self._left = MAX_READS
        self._now_ms = context.services.clock.time_ms()
        self._known: Mapping[tuple[object, int, int], int] = context.session.kept(KNOWN)
        self.denied: dict[str, None] = {}
        """Topics that the user may not read."""
        self.is_cut = False
        """True if records were left out by the bounds."""

    def ages(
        self,
        offsets: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, float]:
        """Seconds since the oldest unread record of each partition, 0 if all are read; omits unknown ones.

        Partitions with the largest lag come first. Below `starts` there are no records any more.
        """
        lags = lags_of(offsets, ends)
        found = {key: 0.0 for key, lag in lags.items() if lag == 0}
        for key in sorted((key for key, lag in lags.items() if lag), key=lambda key: (-lags[key], key)):
            age_s = self._age(key, max(offsets[key], starts.get(key, 0)), ends[key])
            if age_s is not None:
                found[key] = age_s
        return found

    def note(self) -> str:
        """Sentences about missing values."""
        sentences = []
        if self.denied:
            names = formats.visible(", ".join(list(self.denied)[:5]))
            sentences.append(f"Lag in time needs READ on the topic, which your user lacks: {names}.")
        if self.is_cut:
            sentences.append(f"Lag in time is read for {MAX_READS} partitions of a page, those with the largest lag.")
        return " ".join(sentences)

    def _age(self, key: TopicPartition, offset: int, end: int) -> float | None:
        topic = self._context.topics().get(key[0])
        place = (key[0] if topic is None else topic.topic_id, key[1], offset)
        if place in self._known:
            return self._age_of(self._known[place])
        if key[0] in self.denied:
            return None
        if self._left <= 0 or self._context.services.clock.monotonic() > self._until_s:
            self.is_cut = True
            return None
        self._left -= 1
        self._context.check_alive()
        try:
            timestamp_ms = self._read(key, offset, end)
        except (KafkaError, BrokerUnreachable) as error:
            if isinstance(error, KafkaError) and error.code in FORBIDDEN:
                self.denied[key[0]] = None
            return None
        if timestamp_ms is None:
            return None
        if timestamp_ms != ALL_READ:
            self._context.session.keep(KNOWN, place, timestamp_ms, MAX_KNOWN)
        return self._age_of(timestamp_ms)

    def _age_of(self, timestamp_ms: int) -> float | None:
        if timestamp_ms == ALL_READ:
            return 0.0
        return None if timestamp_ms < 0 else max(0, self._now_ms - timestamp_ms) / 1000

    def _read(self, key: TopicPartition, offset: int, end: int) -> int | None:
        """The timestamp of the first record of a producer from `offset`, ALL_READ without one; None if not found."""
        for _ in range(MAX_BATCHES):
            if offset >= end:
                return ALL_READ
            result = self._context.cluster.records.fetch(*key, offset, max_bytes=FETCH_BYTES, max_wait_ms=0)
            timestamp_ms, next_offset = first_timestamp(result, offset)
            if timestamp_ms is not None or next_offset == offset:
                return timestamp_ms
            offset = next_offset
        return None


def first_timestamp(result: FetchResult, offset: int) -> tuple[int | None, int]:
    """The timestamp (ms) of the first record of a producer at or after an offset, and the offset behind the batches.

    Raises KafkaError for batches that cannot be read.
    """
    for batch in iter_any_batches(result.records):
        if batch.next_offset <= offset:
            continue
        if not batch.is_control and batch.records_count:
            if batch.timestamp_type == LOG_APPEND_TIME:
                return batch.max_timestamp, offset
            for record in batch.records(MAX_BODY_BYTES):
                if record.offset >= offset:
                    return record.timestamp, offset
        offset = batch.next_offset
    return None, offset


def lags_of(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The lag in records of the partitions whose end is known."""
    return {key: max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends}


def oldest(ages: Mapping[TopicPartition, float], keys: Iterable[TopicPartition]) -> Age:
    """The age of some partitions together, of which those without an age are not known."""
    wanted = list(keys)
    known = [ages[key] for key in wanted if key in ages]
    is_least = len(known) < len(wanted)
    most = max(known, default=0.0)
    return Age(None if not known or (is_least and not most) else most, is_least)


def group_ages(
    context: Context, offsets: Mapping[str, Mapping[TopicPartition, int]], ends: Mapping[TopicPartition, int]
) -> tuple[dict[str, Age], str]:
    """Lag in time of several groups, and sentences about missing values.

    Only the partitions with the largest lag are read, so the lag of a group may be more.
    """
    reader = UnreadReader(context)
    lags = {group_id: lags_of(found, ends) for group_id, found in offsets.items()}
    chosen = {
        group_id: sorted((key for key, lag in found.items() if lag), key=lambda key: (-found[key], key))[:MAX_OF_GROUP]
        for group_id, found in lags.items()
    }
    starts = log_starts(context, dict.fromkeys(key for keys in chosen.values() for key in keys))
    ages: dict[str, Age] = {}
    for group_id, found in lags.items():
        known = dict.fromkeys((key for key, lag in found.items() if not lag), 0.0)
        known |= reader.ages({key: offsets[group_id][key] for key in chosen[group_id]}, ends, starts)
        ages[group_id] = oldest(known, found)
    return ages, reader.note()
