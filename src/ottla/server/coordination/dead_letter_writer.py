"""Dead letters of the share partitions that this broker leads (KIP-1191): written, then the records are archived.

A share partition is handled chunk by chunk: its first ARCHIVING records are read, their dead letters appended with
acks=all, and ARCHIVED stored. The next chunk follows then. `share.dead_letters` explains why no leader writes a dead
letter twice.

A failure is logged once, until one of another kind or a success follows; a transient one, as after a change of leaders,
only if it lasts. It is repeated with growing delays, or as soon as topics or settings change.

With `ottla.dlq.on.failure=archive` records are given up as in Apache Kafka: at once after a permanent failure, after
MAX_ATTEMPTS otherwise. Share partitions of groups without members are retried MAX_ATTEMPTS times, then dropped; their
state stays, and the leader continues when a member fetches.

Bounds: one chunk of each share partition is in progress, with CHUNK records and the bytes of `dead_letter_source`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError
from ottla.common.platform.clock import TimerHandle
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metrics.registry import MetricsRegistry
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.server.coordination.dead_letter_producer import DeadLetterProducer, Outcomes
from ottla.server.coordination.dead_letter_settings import (
    DeadLetterSettings,
    creation_of,
    dead_letter_settings,
    topic_problem,
)
from ottla.server.coordination.dead_letter_source import DeadLetterSource
from ottla.server.requests.in_flight import TrackedPool
from ottla.share.dead_letters import SourceRecord, batch_of, dead_letter, producer_of
from ottla.share.share_partition import DueDeadLetter, SharePartition

if TYPE_CHECKING:
    from ottla.protocol.messages.create_topics import CreatableTopic
    from ottla.server.coordination.share_partitions import LedSharePartition, SharePartitions

logger = logging.getLogger(__name__)

CHUNK = 100
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 30.0
MAX_ATTEMPTS = 5
_METRICS = "kafka_server_sharegroupmetrics_deadletterqueue"

CreateTopic = Callable[["CreatableTopic", Callable[["KafkaError | None"], None]], None]
Failure = tuple[int, KafkaError]
"""Offset and error of a record whose dead letter was not written."""


class DeadLetterQueue:
    """Dead letters of one share partition, while it has ARCHIVING records."""

    __slots__ = ("attempts", "busy", "led", "machine", "reported", "timer")

    def __init__(self, led: LedSharePartition, machine: SharePartition) -> None:
        self.led = led
        self.machine = machine
        self.busy = False
        """Whether a chunk is in progress."""
        self.attempts = 0
        """Failed chunks since the last success."""
        self.timer: TimerHandle | None = None
        self.reported = ""
        """Failure that was logged last."""

    def __str__(self) -> str:
        return f"{self.led.partition.topic}-{self.led.key.partition} in share group {self.led.key.group_id}"


class DeadLetterStatistics:
    """Metrics of a group with a dead-letter topic, under Kafka's names."""

    __slots__ = ("failed", "records", "requests")

    def __init__(self, registry: MetricsRegistry, group_id: str, retained: Callable[[], int]) -> None:
        labels = {"group": group_id}
        self.records = registry.counter(f"{_METRICS}recordcount_total", "Dead letters of a share group.", labels)
        self.requests = registry.counter(
            f"{_METRICS}totalproducerequests_total", "Writes of dead letters, also repeated ones.", labels
        )
        self.failed = registry.counter(
            f"{_METRICS}failedproducerequests_total", "Writes of dead letters that failed.", labels
        )
        registry.gauge(
            "ottla_share_group_retained_dead_letters",
            "Records on this broker that wait for their dead letters.",
            labels,
            read=retained,
        )


class DeadLetterWriter:
    """Owner of the dead-letter queues of one broker."""

    __slots__ = (
        "_config",
        "_create_topic",
        "_image",
        "_partitions",
        "_pool",
        "_producer",
        "_queues",
        "_registry",
        "_services",
        "_statistics",
    )

    def __init__(
        self,
        partitions: SharePartitions,
        services: BrokerServices,
        producer: DeadLetterProducer,
        *,
        image: Callable[[], MetadataImage],
        config: Callable[[], BrokerConfig],
        create_topic: CreateTopic,
        registry: MetricsRegistry,
    ) -> None:
        """`create_topic(topic, done)` creates a topic, and calls `done` when this broker knows it."""
        self._partitions = partitions
        self._services = services
        self._producer = producer
        self._image = image
        self._config = config
        self._create_topic = create_topic
        self._registry = registry
        self._pool = TrackedPool(services.node_runtime.pool, services.in_flight)
        self._queues: dict[LedSharePartition, DeadLetterQueue] = {}
        self._statistics: dict[str, DeadLetterStatistics] = {}

    # --- share partitions ------------------------------------------------------------------------------------------

    def wake(self, led: LedSharePartition) -> None:
        """Write the dead letters of a share partition, which has ARCHIVING records or had some."""
        queue = self._queues.get(led)
        if queue is None:
            if led.machine is None or led.dropped or not led.machine.archiving_count:
                return
            queue = self._queues[led] = DeadLetterQueue(led, led.machine)
            self._statistics_of(led.key.group_id)
        if not queue.busy and queue.timer is None:
            self._step(queue)

    def keeps(self, led: LedSharePartition) -> bool:
        """Whether a share partition without members must not be dropped yet."""
        queue = self._queues.get(led)
        return queue is not None and queue.attempts < MAX_ATTEMPTS

    def forget(self, led: LedSharePartition) -> None:
        """The share partition was dropped; results in flight are ignored."""
        queue = self._queues.pop(led, None)
        if queue is not None and queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None

    def follow(self, changes: MetadataChanges) -> None:
        """Try again what failed: a change may have removed the reason."""
        if changes.created_topics or changes.changed_configs:
            for queue in self._queues.values():
                if queue.timer is not None:
                    queue.timer.cancel()
                    queue.timer = self._services.node_runtime.scheduler.call_soon(self._retry, queue)

    def close(self) -> None:
        """The broker stops: close the connections to other brokers."""
        self._producer.close()

    # --- one chunk -------------------------------------------------------------------------------------------------

    def _is_gone(self, queue: DeadLetterQueue) -> bool:
        return queue.led.dropped or self._queues.get(queue.led) is not queue

    def _step(self, queue: DeadLetterQueue) -> None:
        due = queue.machine.due_dead_letters(CHUNK)
        if not due:
            if not queue.machine.archiving_count:
                del self._queues[queue.led]
            return  # otherwise a write is in progress, after which this is called again
        image = self._image()
        settings = dead_letter_settings(image, queue.led.key.group_id)
        if settings is None:
            self._report(
                queue, f"records of {queue} are archived without dead letters: the group has no topic for them"
            )
            self._partitions.archive(queue.led, [each.offset for each in due])
            return
        queue.busy = True
        problem = topic_problem(image, self._config(), settings.topic)
        topic = image.topic(settings.topic)
        if problem is not None:
            self._failed(queue, _all(due, KafkaError(ErrorCode.INVALID_CONFIG, problem)))
        elif topic is None:
            self._create(queue, settings.topic, due)
        elif any(settings.copied):
            self._read(queue, settings, topic, due)
        else:
            self._send(queue, topic, due, {})

    def _create(self, queue: DeadLetterQueue, name: str, due: Sequence[DueDeadLetter]) -> None:
        def created(error: KafkaError | None) -> None:
            if self._is_gone(queue):
                return
            if error is None and self._image().topic(name) is None:
                error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if error is not None:
                text = f"the dead-letter topic {name} was not created: {error}"
                self._failed(queue, _all(due, KafkaError(error.code, text)))
                return
            queue.busy = False
            self._step(queue)

        self._create_topic(creation_of(name), created)

    def _read(
        self, queue: DeadLetterQueue, settings: DeadLetterSettings, topic: TopicImage, due: Sequence[DueDeadLetter]
    ) -> None:
        def done(records: dict[int, SourceRecord], examined: int, error: KafkaError | None) -> None:
            if self._is_gone(queue):
                return
            if examined:
                self._send(queue, topic, due[:examined], records)
            else:
                self._failed(queue, _all(due, error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))

        offsets = [each.offset for each in due]
        DeadLetterSource(queue.led.partition, offsets, settings.copied, self._pool, done).read()

    def _send(
        self,
        queue: DeadLetterQueue,
        topic: TopicImage,
        due: Sequence[DueDeadLetter],
        records: dict[int, SourceRecord],
        *,
        idempotent: bool = True,
    ) -> None:
        key, name = queue.led.key, queue.led.partition.topic
        now_ms = self._services.node_runtime.clock.time_ms()
        batches = [
            batch_of(
                dead_letter(key, name, each, records.get(each.offset), now_ms),
                producer_of(key, queue.machine.state_epoch, each.offset) if idempotent else None,
            )
            for each in due
        ]
        statistics = self._statistics_of(key.group_id)
        statistics.requests.value += len(batches)

        def sent(outcomes: Outcomes) -> None:
            statistics.records.value += outcomes.count(None)
            if self._is_gone(queue):
                return
            pairs = list(zip(due, outcomes, strict=True))
            written = [each.offset for each, error in pairs if error is None]
            if written:
                self._partitions.archive(queue.led, written)
            # Another life of the group has used the slot: written without a producer rather than not at all.
            stale = [each for each, error in pairs if error and error.code is ErrorCode.INVALID_PRODUCER_EPOCH]
            if stale and idempotent:
                self._send(queue, topic, stale, records, idempotent=False)
                return
            failures = [(each.offset, error) for each, error in pairs if error is not None]
            statistics.failed.value += len(failures)
            if failures:
                self._failed(queue, failures)
                return
            queue.busy, queue.attempts, queue.reported = False, 0, ""

        self._producer.send(topic, key.partition % len(topic.partitions), batches, sent)

    # --- failures --------------------------------------------------------------------------------------------------

    def _failed(self, queue: DeadLetterQueue, failures: Sequence[Failure]) -> None:
        """Give up, or wait for the next attempt."""
        queue.busy = False
        queue.attempts += 1
        _, error = failures[0]
        reason = error.message or error.code.name
        settings = dead_letter_settings(self._image(), queue.led.key.group_id)
        if settings is not None and settings.archives:
            too_often = queue.attempts >= MAX_ATTEMPTS
            lost = [offset for offset, each in failures if too_often or each.code not in RETRIABLE_ERRORS]
            if lost:
                self._report(queue, f"records of {queue} are archived without dead letters: {reason}")
                self._partitions.archive(queue.led, lost)
                queue.attempts = 0
            if len(lost) == len(failures):
                return
        elif queue.attempts > 1 or error.code not in RETRIABLE_ERRORS:
            self._report(
                queue, f"failed records of {queue} are retained, their dead letters can't be written: {reason}"
            )
        delay_s = min(FIRST_RETRY_S * 2 ** min(queue.attempts - 1, 10), MAX_RETRY_S)
        queue.timer = self._services.node_runtime.scheduler.call_later(delay_s, self._retry, queue)
        self._partitions.drop_unused(queue.led)

    def _retry(self, queue: DeadLetterQueue) -> None:
        queue.timer = None
        if not self._is_gone(queue):
            self._step(queue)

    @staticmethod
    def _report(queue: DeadLetterQueue, text: str) -> None:
        if text != queue.reported:
            queue.reported = text
            logger.warning("%s", text)

    def _statistics_of(self, group_id: str) -> DeadLetterStatistics:
        found = self._statistics.get(group_id)
        if found is None:

            def retained() -> int:
                queues = self._queues.values()
                return sum(each.machine.archiving_count for each in queues if each.led.key.group_id == group_id)

            found = self._statistics[group_id] = DeadLetterStatistics(self._registry, group_id, retained)
        return found


def _all(due: Sequence[DueDeadLetter], error: KafkaError) -> list[Failure]:
    return [(each.offset, error) for each in due]
