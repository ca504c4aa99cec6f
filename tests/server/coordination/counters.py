"""A coordinator other than the group coordinator: counters by name, partitioned by the hash of the name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import (
    EMPTY_RESULT,
    CoordinatorOperation,
    CoordinatorRecord,
    CoordinatorResult,
    CoordinatorTimer,
)
from ottla.server.coordination.coordinator_host import BrokerServices, CoordinatorHost
from ottla.server.coordination.internal_topic import InternalTopic
from ottla.timeline import SnapshotRegistry, TimelineDict

RESET_AFTER_MS = 60_000


class Count(NamedTuple):
    """A record: the value of a counter; None: it was reset."""

    name: str
    value: int | None


class CountSerde:
    """Names and numbers as text."""

    def encode(self, record: Count) -> CoordinatorRecord:
        value = None if record.value is None else str(record.value).encode()
        return CoordinatorRecord(record.name.encode(), value)

    def decode(self, key: bytes, value: bytes | None) -> Count | None:
        return Count(bytes(key).decode(), None if value is None else int(bytes(value)))

    def without_value(self, key: bytes) -> Count | None:
        return None


class CounterShard:
    """The counters of one partition."""

    def __init__(self, partition: int, registry: SnapshotRegistry, timer: CoordinatorTimer) -> None:
        self.partition = partition
        self.counts: TimelineDict[str, int] = TimelineDict(registry)
        self.timer = timer
        self.life = "empty"

    def replay(self, offset: int, record: Count, producer_id: int, producer_epoch: int) -> None:
        if record.value is None:
            self.counts.pop(record.name, None)
        else:
            self.counts[record.name] = record.value

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Counters do not use transactions."""

    def loaded(self) -> None:
        self.life = "loaded"

    def unloaded(self) -> None:
        self.life = "unloaded"

    def release(self) -> Iterator[None]:
        yield from ()

    def add(self, name: str, amount: int) -> CoordinatorResult[Count, int]:
        if amount < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "counters only increase")
        value = self.counts.get(name, 0) + amount
        self.timer.schedule(name, RESET_AFTER_MS, lambda: self._reset(name))
        return CoordinatorResult((Count(name, value),), value)

    def _reset(self, name: str) -> CoordinatorResult[Count, None]:
        return CoordinatorResult((Count(name, None),)) if name in self.counts else EMPTY_RESULT

    def value(self, name: str, committed_offset: int) -> int:
        return dict(self.counts.items_at(committed_offset)).get(name, 0)


class Asked(NamedTuple):
    """A request to the coordinator: the counter, and its increment."""

    name: str
    amount: int = 0


Answer = int | ErrorCode

ADD: CoordinatorOperation[None, Asked, Answer] = CoordinatorOperation(
    "add-to-counter",
    key=lambda asked: asked.name,
    run=lambda context, asked, shard: shard.add(asked.name, asked.amount),
    refused=lambda context, asked, error: error.code,
)

VALUE: CoordinatorOperation[None, Asked, Answer] = CoordinatorOperation(
    "value-of-counter",
    key=lambda asked: asked.name,
    run=lambda context, asked, shard, committed: shard.value(asked.name, committed),
    refused=lambda context, asked, error: error.code,
    reads=True,
)

COUNTERS_TOPIC = InternalTopic(
    "__counters",
    partitions="offsets.topic.num.partitions",
    replication_factor="offsets.topic.replication.factor",
    configs=lambda config: {"cleanup.policy": "compact"},
)


class CounterCoordination(CoordinatorHost[CounterShard]):
    """Everything that a further coordinator needs in the server."""

    def __init__(self, host: BrokerServices) -> None:
        super().__init__(
            COUNTERS_TOPIC,
            host,
            serde=CountSerde,
            make_shard=CounterShard,
            compression="none",
            write_timeout_ms=5_000,
        )
