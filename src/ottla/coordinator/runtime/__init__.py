"""Event-sourced shards over the partitions of an internal topic, used by all coordinators."""

from ottla.coordinator.runtime.context import TIMER
from ottla.coordinator.runtime.errors import append_error
from ottla.coordinator.runtime.log import CoordinatorLog, LogOffsets, ReadDone, Transaction, VerificationDone
from ottla.coordinator.runtime.operation import CoordinatorOperation
from ottla.coordinator.runtime.records import EMPTY_RESULT, CoordinatorRecord, CoordinatorResult, CoordinatorSerde
from ottla.coordinator.runtime.runtime import WRITE_TXN_MARKER, CoordinatorRuntime
from ottla.coordinator.runtime.shard import CoordinatorShard, ShardFactory
from ottla.coordinator.runtime.state import CoordinatorState
from ottla.coordinator.runtime.statistics import CoordinatorStatistics
from ottla.coordinator.runtime.timer import CoordinatorTimer

__all__ = [
    "EMPTY_RESULT",
    "TIMER",
    "WRITE_TXN_MARKER",
    "CoordinatorLog",
    "CoordinatorOperation",
    "CoordinatorRecord",
    "CoordinatorResult",
    "CoordinatorRuntime",
    "CoordinatorSerde",
    "CoordinatorShard",
    "CoordinatorState",
    "CoordinatorStatistics",
    "CoordinatorTimer",
    "LogOffsets",
    "ReadDone",
    "ShardFactory",
    "Transaction",
    "VerificationDone",
    "append_error",
]
