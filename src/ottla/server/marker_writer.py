"""Markers that end transactions, written to partitions that this broker leads (KIP-98).

Whoever coordinates the transaction may be in this process (`transaction_markers`) or send WriteTxnMarkers. A partition
of a coordinator's log gets its marker by that coordinator, which alone appends there: it changes the state of groups,
and nothing in the log of transactions, which a client may have added to one. Every other one gets it by its log. Either
is answered when the in-sync replicas have the marker, as for acks=all.

Invariant: `done` is called exactly once for each marker, possibly within the call, unless it raises. Left out: retries,
which are the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.control import EndMarker
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation, Purgatory
from ottla.server.failures import Failures
from ottla.storage.results import AppendResult

ACKNOWLEDGEMENT_TIMEOUT_S = 30.0
"""How long the in-sync replicas are waited for, as `request.timeout.ms` of Apache Kafka's brokers."""

MarkerDone = Callable[[ErrorCode], None]

_NOT_HERE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""What a coordinator says while its log can't take a marker: to the transaction's coordinator it is a partition without
a leader, as in Apache Kafka."""


class CoordinatorTransactions(Protocol):
    """The runtime of a coordinator, as markers need it."""

    def complete_transaction(
        self, partition: int, marker: EndMarker, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Append `marker` to `partition` and apply it to its shard; `done(None)` once it is committed."""
        ...


class MarkerWriter:
    """The way of markers into the partitions of this broker."""

    __slots__ = ("_coordinators", "_failures", "_purgatory", "_replicas")

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        coordinators: Mapping[str, Callable[[], CoordinatorTransactions]],
        failures: Failures,
    ) -> None:
        """`coordinators` have the runtime of each coordinator by its topic; they may be made after this."""
        self._replicas = replicas
        self._purgatory = purgatory
        self._coordinators = coordinators
        self._failures = failures

    def write(self, topic: str, index: int, marker: EndMarker, done: MarkerDone) -> None:
        """Write `marker` to one partition; `done` hears NONE once the in-sync replicas have it, or why it is not there.

        INVALID_PRODUCER_ID_MAPPING: a negative id, of no producer. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: an older coordinator or producer. REQUEST_TIMED_OUT and
        NOT_ENOUGH_REPLICAS_AFTER_APPEND: it is appended, and may be lost yet. Others are those of a Produce.
        """
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            of_nobody = marker.producer_id < 0
            done(ErrorCode.INVALID_PRODUCER_ID_MAPPING if of_nobody else ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        try:
            partition = self._replicas.find(topic, index)
            coordinator = self._coordinators.get(topic)
            if coordinator is not None:
                self._write_to_log_of(coordinator(), index, marker, done)
                return
            result = partition.append_end_marker(marker)
        except KafkaError as error:
            done(error.code)
        except OSError as error:
            self._failures.complain(f"append to {topic}-{index}", str(error))
            done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            operation = DelayedMarker(partition, result, done)
            if not operation.try_complete(False):
                self._purgatory.park(operation, [partition.produce_watch], ACKNOWLEDGEMENT_TIMEOUT_S)

    @staticmethod
    def _write_to_log_of(coordinator: CoordinatorTransactions, index: int, marker: EndMarker, done: MarkerDone) -> None:
        def completed(error: KafkaError | None) -> None:
            if error is None:
                done(ErrorCode.NONE)
            else:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NOT_HERE else error.code)

        coordinator.complete_transaction(index, marker, completed)


class DelayedMarker(DelayedOperation):
    """A marker that is appended and not yet acknowledged."""

    __slots__ = ("_done", "_leader_epoch", "_partition", "_result")

    def __init__(self, partition: Partition, result: AppendResult, done: MarkerDone) -> None:
        super().__init__()
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._result = result
        self._done = done

    def try_complete(self, force: bool) -> bool:
        """Tell once the in-sync replicas have the marker, or this broker can't find out any more."""
        partition = self._partition
        if not partition.is_leader or self._leader_epoch < partition.leader_since:
            self._done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.acknowledged(self._result, True):
            enough = partition.enough_after_append
            self._done(ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        elif partition.offline:
            self._done(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            return False
        return True

    def expire(self) -> None:
        """The marker stays; the coordinator writes another one."""
        if not self.try_complete(False):
            self._done(ErrorCode.REQUEST_TIMED_OUT)

    def fail(self, error: Exception) -> None:
        """A defect: the coordinator asks again."""
        self._done(ErrorCode.UNKNOWN_SERVER_ERROR)
