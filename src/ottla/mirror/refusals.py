"""Records that the target rejects: which one of a batch, the setting that causes it, and whether to skip it.

A rejected batch is split until the rejected records are alone, or the broker identifies them (KIP-467). The others are
written. A batch that is only rejected as a whole, for example because of its size, thus loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer, BatchRefused, RequestTooLarge
from ottla.client.wire.model import ResourceType
from ottla.client.wire.outage import Notify
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError, OttlaError
from ottla.mirror.copying import PartitionCopy, Step, Write, size_of
from ottla.mirror.option_values import SKIP
from ottla.mirror.routes import (
    CLEANUP_POLICY,
    MAX_LONG,
    PROGRESS_TOPIC,
    RECORD_SIZES,
    TIMESTAMP_AFTER,
    TIMESTAMP_BEFORE,
    TIMESTAMP_DIFFERENCE,
    Route,
)
from ottla.record.batch import Record

PASSING_ERRORS = RETRIABLE_ERRORS | {
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}
"""Errors that a new session may not encounter."""
FENCED_ERRORS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})

MESSAGE_BYTES, DECOMPRESSED_BYTES = RECORD_SIZES
BURST = 10
WINDOW_S = 10.0
"""Number of skipped records that are logged individually in the interval; others are counted."""

REMEDIES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: "min.insync.replicas of the topic exceeds its in-sync replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "min.insync.replicas of the topic exceeds its in-sync replicas",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow WRITE on that topic to the user of --to-config",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow WRITE on transactional ids with the prefix ottla-mirror/ "
    "to the user of --to-config",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "set message.format.version of the topic, or log.message.format.version "
    "of its brokers, to 0.11.0 or later, since older formats have no transactions and no headers",
}
"""Errors of a whole topic, for which no record is skipped."""


_PROGRESS_WAYS_OUT = {
    ErrorCode.INVALID_TIMESTAMP: f"set the clock of this machine, or raise {TIMESTAMP_AFTER} of that topic",
    ErrorCode.MESSAGE_TOO_LARGE: f"raise {MESSAGE_BYTES} of that topic to 1048588",
}


class RecordRefused(OttlaError):
    """A record that the target rejects, if the policy is STOP; the message contains a remedy."""


class WrittenStep(NamedTuple):
    """The written part of a step, with offsets in the target, and the number of skipped records."""

    step: Step
    base_offsets: list[int]
    skipped: int


class Refusals:
    """Writes steps batch by batch, and decides on each rejected record."""

    def __init__(
        self,
        target: Cluster,
        policy: str,
        notify: Notify,
        *,
        monotonic: Callable[[], float],
        time_s: Callable[[], float],
    ) -> None:
        """`policy`: STOP or SKIP. `time_s`: seconds since 1970."""
        self._target = target
        self._policy = policy
        self._log = _SkipLog(notify, monotonic)
        self._time_s = time_s

    def write(self, producer: BatchProducer, copy: PartitionCopy, step: Step) -> WrittenStep:
        """Send each batch alone, in the open transaction.

        Raises RecordRefused, KafkaError, BrokerUnreachable.
        """
        written: list[Write] = []
        base_offsets: list[int] = []
        skipped = 0
        for write in step.writes:
            pending = [write]
            while pending:
                part = pending.pop()
                try:
                    base_offsets += producer.send((copy.route.target, part.partition), [part.batch])
                    written.append(part)
                except BatchRefused as refusal:
                    parts = self._divided(copy, part, refusal)
                    skipped += len(part.offsets) - sum(len(each.offsets) for each in parts)
                    pending += reversed(parts)
        return WrittenStep(step._replace(writes=tuple(written)), base_offsets, skipped)

    def _divided(self, copy: PartitionCopy, write: Write, refusal: BatchRefused) -> list[Write]:
        """The writes that replace a rejected batch; empty if all of its records are skipped."""
        count = len(write.offsets)
        try:
            if refusal.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and copy.avoid_codec(write.batch.compression):
                return [copy.part(write, range(count))]
            named = {number for number in refusal.records if 0 <= number < count}
            if count > 1 and not named:
                return [copy.part(write, range(count // 2)), copy.part(write, range(count // 2, count))]
            refused = named or {0}
            for number, record in enumerate(write.batch.records()):
                if number in refused:
                    self._refused(copy.route, write.offsets[number], record, refusal, refusal.records.get(number))
            rest = set(range(count)) - refused
            return [copy.part(write, rest)] if rest else []
        except KafkaError as error:
            raise RecordRefused(
                f"topic {copy.route.target!r} of the target rejects the batch with offsets {write.offsets[0]} to "
                f"{write.offsets[-1]} of {_partition(copy.route)} ({refusal.message}), and its records can't be "
                "decoded "
                f"one by one: {error.message}"
            ) from error

    def _refused(self, route: Route, offset: int, record: Record, refusal: BatchRefused, reason: str | None) -> None:
        """Log a skipped record. Raises RecordRefused if the policy is STOP."""
        if self._policy == SKIP and not self._log.admits():
            return
        words = (reason or refusal.message).rstrip(".")
        remedy = self._remedy(route, record, refusal)
        if self._policy == SKIP:
            self._log.write(
                f"skipped the record at offset {offset} of {_partition(route)}, which topic {route.target!r} of the "
                f"target rejects: {words}; to copy such records, {remedy}"
            )
            return
        raise RecordRefused(
            f"topic {route.target!r} of the target rejects the record at offset {offset} of {_partition(route)}: "
            f"{words}; {remedy}, or skip such records (--on-refused skip)"
        )

    def _remedy(self, route: Route, record: Record, refusal: BatchRefused) -> str:
        if isinstance(refusal, RequestTooLarge):
            return "raise socket.request.max.bytes of the target's brokers"
        try:
            entries = self._target.configs.describe(ResourceType.TOPIC, route.target)
        except KafkaError:
            entries = []
        settings = {entry.name: entry.value for entry in entries if entry.value is not None}
        return remedy_for(refusal.code, record, settings, f"topic {route.target!r} in the target", self._time_s())

    def log_rest(self) -> None:
        """Log the number of skipped records that were not logged individually."""
        self._log.write_rest()


class _SkipLog:
    """Messages about skipped records, at most BURST in WINDOW_S."""

    def __init__(self, notify: Notify, monotonic: Callable[[], float]) -> None:
        self._notify = notify
        self._monotonic = monotonic
        self._begun_s = float("-inf")
        self._written = self._suppressed = 0

    def admits(self) -> bool:
        """True if the next record is to be logged; counts it otherwise."""
        now = self._monotonic()
        if now - self._begun_s >= WINDOW_S:
            self.write_rest()
            self._begun_s, self._written = now, 0
        self._suppressed += self._written >= BURST
        return self._written < BURST

    def write(self, sentence: str) -> None:
        self._written += 1
        self._notify(f"ERROR {sentence}")

    def write_rest(self) -> None:
        if self._suppressed:
            self._notify(f"ERROR skipped {self._suppressed} more records that the target rejects; not listed")
            self._suppressed = 0


def remedy_for(code: ErrorCode, record: Record, settings: Mapping[str, str], topic: str, time_s: float) -> str:
    """The setting of the target's topic that rejects a record, and how to change it; an imperative clause.

    `settings`: those of the topic, if they are visible. `time_s`: the current time in seconds since 1970.
    """
    name = _limit_for(code, record, settings, time_s)
    now = f" (now {settings[name]})" if name in settings else ""
    if name == CLEANUP_POLICY:
        return f"remove compact from {name} of {topic}{now}"
    if name:
        return f"raise {name} of {topic}{now}"
    if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        return "upgrade the target's brokers"
    return f"change the limits of {topic}"


def _limit_for(code: ErrorCode, record: Record, settings: Mapping[str, str], time_s: float) -> str:
    """The setting that causes the rejection; empty if it is unknown."""
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        return MESSAGE_BYTES
    if code == ErrorCode.RECORD_LIST_TOO_LARGE:
        return "segment.bytes"
    if code == ErrorCode.INVALID_TIMESTAMP:
        name = TIMESTAMP_AFTER if record.timestamp > time_s * 1000 else TIMESTAMP_BEFORE
        has_difference = int(settings.get(TIMESTAMP_DIFFERENCE, MAX_LONG)) < MAX_LONG
        uses_difference = has_difference and int(settings.get(name, MAX_LONG)) == MAX_LONG
        return TIMESTAMP_DIFFERENCE if uses_difference else name
    if code == ErrorCode.INVALID_RECORD and record.key is None and "compact" in settings.get(CLEANUP_POLICY, ""):
        return CLEANUP_POLICY
    if code == ErrorCode.INVALID_RECORD and size_of(record) > int(settings.get(DECOMPRESSED_BYTES, MAX_LONG)):
        return DECOMPRESSED_BYTES
    return ""


def explained(error: KafkaError, route: Route, offset: int | None = None) -> KafkaError:
    """The error of a write from a source offset, if given, with its cause, if known.

    Retriable errors and errors of a fenced producer are returned unchanged.
    """
    remedy = REMEDIES.get(error.code)
    if remedy is None and error.code in PASSING_ERRORS | FENCED_ERRORS:
        return error
    start = "" if offset is None else f" from offset {offset}"
    sentence = f"topic {route.target!r} of the target rejects records of {_partition(route)}{start}: {error.message}"
    return KafkaError(error.code, sentence if remedy is None else f"{sentence}; {remedy}")


def require_readable(route: Route, step: Step) -> None:
    """Raise KafkaError INVALID_RECORD for a batch of the step that cannot be decoded, by any consumer."""
    for write in step.writes:
        try:
            for _ in write.batch.records():
                pass
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the batch with offsets {write.offsets[0]} to {write.offsets[-1]} of {_partition(route)} is damaged "
                f"and can't be copied: {error.message}",
            ) from error


def progress_refused(refusal: BatchRefused) -> RecordRefused:
    """The error for a rejected record of the progress topic, which is never skipped."""
    way_out = _PROGRESS_WAYS_OUT.get(
        refusal.code, f"compare its settings with those of a topic that has only {CLEANUP_POLICY}=compact"
    )
    return RecordRefused(f"topic {PROGRESS_TOPIC!r} of the target rejects progress: {refusal.message}; {way_out}")


def _partition(route: Route) -> str:
    return f"{route.topic}-{route.partition} of the source"
