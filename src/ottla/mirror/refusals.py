"""Records that the target refuses: which one of a batch it is, what the refusal depends on, and whether to skip it.

A refused batch is divided until the refused records are alone, or the broker names them (KIP-467). The rest is written.
A batch that is refused as a whole but not in parts, as one that is too large, thus loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.batch_producer import BatchProducer, BatchRefused, RequestTooLarge
from ottla.client.wire.model import ResourceType
from ottla.client.wire.outage import Tell
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError, OttlaError
from ottla.mirror.copying import PartitionCopy, Step, Write, size_of
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
"""Errors that may be gone in a new session."""
FENCED_ERRORS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})

STOP, SKIP = "stop", "skip"
MESSAGE_BYTES, DECOMPRESSED_BYTES = RECORD_SIZES
BURST = 10
WINDOW_S = 10.0
"""So many skipped records are logged one by one in that time; the others are counted."""

REMEDIES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: "min.insync.replicas of the topic exceeds its in-sync replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "min.insync.replicas of the topic exceeds its in-sync replicas",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow WRITE on that topic to the user of --to-config",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow WRITE on transactional ids with the prefix ottla-mirror/ "
    "to the user of --to-config",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "set message.format.version of the topic, or log.message.format.version "
    "of its brokers, to 0.11.0 or later, since older formats have no transactions and no headers",
}
"""Errors that concern a whole topic, so that no record is skipped for them."""


_PROGRESS_WAYS_OUT = {
    ErrorCode.INVALID_TIMESTAMP: f"set the clock of this machine, or raise {TIMESTAMP_AFTER} of that topic",
    ErrorCode.MESSAGE_TOO_LARGE: f"raise {MESSAGE_BYTES} of that topic to 1048588",
}


class RecordRefused(OttlaError):
    """A record that the target refuses, where refusals end the mirror: one sentence with the remedy."""


class Written(NamedTuple):
    """The writes that a step has left, their offsets in the target, and how many records were skipped."""

    step: Step
    base_offsets: list[int]
    skipped: int


class Refusals:
    """Writes steps batch by batch, and decides about each refused record."""

    def __init__(
        self,
        target: Cluster,
        policy: str,
        tell: Tell,
        *,
        monotonic: Callable[[], float],
        time_s: Callable[[], float],
    ) -> None:
        """`policy`: STOP or SKIP. `time_s`: seconds since 1970."""
        self._target = target
        self._policy = policy
        self._log = _SkipLog(tell, monotonic)
        self._time_s = time_s

    def write(self, producer: BatchProducer, copy: PartitionCopy, step: Step) -> Written:
        """Send each batch alone, in the transaction that is open.

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
        return Written(step._replace(writes=tuple(written)), base_offsets, skipped)

    def _divided(self, copy: PartitionCopy, write: Write, refusal: BatchRefused) -> list[Write]:
        """Writes that replace a refused batch; empty if all of its records are skipped."""
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
                f"topic {copy.route.target!r} of the target refuses the batch with offsets {write.offsets[0]} to "
                f"{write.offsets[-1]} of {_partition(copy.route)} ({refusal.message}), and its records can't be read "
                f"one by one: {error.message}"
            ) from error

    def _refused(self, route: Route, offset: int, record: Record, refusal: BatchRefused, reason: str | None) -> None:
        """Log a record that is skipped. Raises RecordRefused where none is."""
        if self._policy == SKIP and not self._log.admits():
            return
        words = (reason or refusal.message).rstrip(".")
        remedy = self._remedy(route, record, refusal)
        if self._policy == SKIP:
            self._log.write(
                f"skipped the record at offset {offset} of {_partition(route)}, which topic {route.target!r} of the "
                f"target refuses: {words}; to copy such records, {remedy}"
            )
            return
        raise RecordRefused(
            f"topic {route.target!r} of the target refuses the record at offset {offset} of {_partition(route)}: "
            f"{words}; {remedy}, or leave such records out (--on-refused skip)"
        )

    def _remedy(self, route: Route, record: Record, refusal: BatchRefused) -> str:
        if isinstance(refusal, RequestTooLarge):
            return "raise socket.request.max.bytes of the target's brokers"
        try:
            entries = self._target.describe_configs(ResourceType.TOPIC, route.target)
        except KafkaError:
            entries = []
        settings = {entry.name: entry.value for entry in entries if entry.value is not None}
        return remedy_for(refusal.code, record, settings, f"topic {route.target!r} in the target", self._time_s())

    def log_rest(self) -> None:
        """Log how many records were skipped that were not logged one by one."""
        self._log.write_rest()


class _SkipLog:
    """Lines about skipped records, BURST in WINDOW_S at most."""

    def __init__(self, tell: Tell, monotonic: Callable[[], float]) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._begun_s = float("-inf")
        self._written = self._suppressed = 0

    def admits(self) -> bool:
        """Whether the next record is logged; counts it if not."""
        now = self._monotonic()
        if now - self._begun_s >= WINDOW_S:
            self.write_rest()
            self._begun_s, self._written = now, 0
        self._suppressed += self._written >= BURST
        return self._written < BURST

    def write(self, sentence: str) -> None:
        self._written += 1
        self._tell(f"ERROR {sentence}")

    def write_rest(self) -> None:
        if self._suppressed:
            self._tell(f"ERROR skipped {self._suppressed} more records that the target refuses; they are not listed")
            self._suppressed = 0


def remedy_for(code: ErrorCode, record: Record, settings: Mapping[str, str], topic: str, time_s: float) -> str:
    """The setting of the target's topic that refuses a record, and how to change it; an imperative clause.

    `settings`: the topic's, as far as the target shows them. `time_s`: the time now, in seconds since 1970.
    """
    name = _limit_for(code, record, settings, time_s)
    now = f" ({settings[name]} now)" if name in settings else ""
    if name == CLEANUP_POLICY:
        return f"remove compact from {name} of {topic}{now}"
    if name:
        return f"raise {name} of {topic}{now}"
    if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        return "upgrade the target's brokers"
    return f"change what {topic} accepts"


def _limit_for(code: ErrorCode, record: Record, settings: Mapping[str, str], time_s: float) -> str:
    """Empty if no setting is known to be the reason."""
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
    """The error of a write, which began with a source offset if one is given, with what it depends on if known.

    Errors that another attempt may not meet stay as they are, and so do those of a fenced producer.
    """
    remedy = REMEDIES.get(error.code)
    if remedy is None and error.code in PASSING_ERRORS | FENCED_ERRORS:
        return error
    start = "" if offset is None else f" from offset {offset} on"
    sentence = f"topic {route.target!r} of the target does not take {_partition(route)}{start}: {error.message}"
    return KafkaError(error.code, sentence if remedy is None else f"{sentence}; {remedy}")


def require_readable(route: Route, step: Step) -> None:
    """Raise KafkaError INVALID_RECORD for a batch of the step whose records can't be read, by no consumer either."""
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
    """For a record of the progress topic, which is never skipped."""
    way_out = _PROGRESS_WAYS_OUT.get(
        refusal.code, f"compare its settings with those of a topic that has only {CLEANUP_POLICY}=compact"
    )
    return RecordRefused(f"topic {PROGRESS_TOPIC!r} of the target refuses progress: {refusal.message}; {way_out}")


def _partition(route: Route) -> str:
    return f"{route.topic}-{route.partition} of the source"
