"""Markers that end transactions, written to partitions that this broker leads (KIP-98).

Whoever coordinates the transaction may be in this process (`transaction_markers`) or send WriteTxnMarkers. A partition
of a coordinator's log gets its marker by that coordinator, which alone appends there: it changes the state of groups,
and nothing in the log of transactions, which a client may have added to one. Every other one gets it by its log. Either
is answered when the in-sync replicas have the marker, as for acks=all.

Invariant: `done` is called exactly once for each marker, possibly within the call, unless it raises. Left out: retries,
which are the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.record.control import EndMarker
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation, Purgatory
from ottla.server.requests.failures import Failures
from ottla.storage.segment.results import AppendResult

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

    def write(self, topic: str, index: int, ends: Sequence[tuple[EndMarker, MarkerDone]]) -> None:
        """Write markers, each of another producer, to one partition; each `done` hears NONE once the in-sync replicas
        have its marker, or why it is not there.

        INVALID_PRODUCER_ID_MAPPING: a negative id, of no producer. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: an older coordinator or producer. REQUEST_TIMED_OUT and
        NOT_ENOUGH_REPLICAS_AFTER_APPEND: it is appended, and may be lost yet. Others are those of a Produce.
        """
        refused: list[tuple[MarkerDone, ErrorCode]] = []
        markers: list[EndMarker] = []
        told: list[MarkerDone] = []
        try:
            partition = self._replicas.find(topic, index)
        except KafkaError as error:
            for _, done in ends:
                done(error.code)
            return
        coordinator = self._coordinators.get(topic)
        for marker, done in ends:
            try:
                _check_producer(marker)
                if coordinator is None:
                    partition.check_end_marker(marker)
            except KafkaError as error:
                refused.append((done, error.code))
                continue
            if coordinator is not None:
                self._write_to_log_of(coordinator(), index, marker, done)
            else:
                markers.append(marker)
                told.append(done)
        if markers:
            self._append(partition, markers, told)
        for done, code in refused:
            done(code)

    def _append(self, partition: Partition, markers: Sequence[EndMarker], told: Sequence[MarkerDone]) -> None:
        try:
            result = partition.append_end_markers(markers)
        except KafkaError as error:
            _tell(told, error.code)
        except OSError as error:
            self._failures.warn(f"append to {partition.topic}-{partition.index}", str(error))
            _tell(told, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            operation = DelayedMarkers(partition, result, told)
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


def _check_producer(marker: EndMarker) -> None:
    if marker.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if marker.producer_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)


def _tell(told: Sequence[MarkerDone], code: ErrorCode) -> None:
    for done in told:
        done(code)


class DelayedMarkers(DelayedOperation):
    """Markers that are appended and not yet acknowledged."""

    __slots__ = ("_leader_epoch", "_partition", "_result", "_told")

    def __init__(self, partition: Partition, result: AppendResult, told: Sequence[MarkerDone]) -> None:
        super().__init__()
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._result = result
        self._told = told

    def try_complete(self, force: bool) -> bool:
        """Tell once the in-sync replicas have the markers, or this broker can't find out any more."""
        partition = self._partition
        if not partition.is_leader or self._leader_epoch < partition.leader_since:
            _tell(self._told, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.acknowledged(self._result, True):
            enough = partition.enough_after_append
            _tell(self._told, ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        elif partition.offline:
            _tell(self._told, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            return False
        return True

    def expire(self) -> None:
        """The markers stay; the coordinator writes others."""
        if not self.try_complete(False):
            _tell(self._told, ErrorCode.REQUEST_TIMED_OUT)

    def fail(self, error: Exception) -> None:
        """A defect: the coordinator asks again."""
        _tell(self._told, ErrorCode.UNKNOWN_SERVER_ERROR)
