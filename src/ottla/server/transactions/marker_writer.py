"""Writes transaction markers to partitions that this broker leads (KIP-98).

The transaction's coordinator may be in this process (`transaction_markers`) or send WriteTxnMarkers. In a partition of
a coordinator's log only that coordinator appends, so it writes the marker. For groups the marker changes their state;
in the transaction log, which a client may have added to a transaction, it changes nothing. In any other partition the
marker is appended to the log. Both are answered when the in-sync replicas have the marker, as for acks=all.

Invariant: `done` is called exactly once for each marker, possibly within the call, unless it raises. Not here: retries,
which the coordinator does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.record.control import EndMarker
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation, Purgatory
from ottla.server.requests.failures import Failures
from ottla.storage.segment.results import AppendResult

ACKNOWLEDGEMENT_TIMEOUT_S = 30.0
"""Maximum wait for the in-sync replicas, like `request.timeout.ms` of Apache Kafka's brokers."""

MarkerDone = Callable[[ErrorCode], None]

_NOT_HERE = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""Errors of a coordinator whose log can't take a marker: reported to the transaction's coordinator as a leaderless
partition, as in Apache Kafka."""


class MarkerWriter:
    """Writes markers to the partitions of this broker."""

    __slots__ = ("_coordinators", "_failures", "_purgatory", "_replicas")

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        coordinators: Mapping[str, Callable[[], CoordinatorRuntime[Any]]],
        failures: Failures,
    ) -> None:
        """`coordinators` has the runtime of each coordinator by topic; entries may be added later."""
        self._replicas = replicas
        self._purgatory = purgatory
        self._coordinators = coordinators
        self._failures = failures

    def write(self, topic: str, index: int, ends: Sequence[tuple[EndMarker, MarkerDone]]) -> None:
        """Write markers of distinct producers to one partition; each `done` gets NONE once the in-sync replicas have
        its marker, or the error.

        INVALID_PRODUCER_ID_MAPPING: a negative producer id. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: an older producer or coordinator. REQUEST_TIMED_OUT and
        NOT_ENOUGH_REPLICAS_AFTER_APPEND: it is appended, and may still be lost. Other errors are those of a Produce.
        """
        refused: list[tuple[MarkerDone, ErrorCode]] = []
        markers: list[EndMarker] = []
        callbacks: list[MarkerDone] = []
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
                callbacks.append(done)
        if markers:
            self._append(partition, markers, callbacks)
        for done, code in refused:
            done(code)

    def _append(self, partition: Partition, markers: Sequence[EndMarker], callbacks: Sequence[MarkerDone]) -> None:
        try:
            result = partition.append_end_markers(markers)
        except KafkaError as error:
            _call_all(callbacks, error.code)
        except OSError as error:
            self._failures.warn(f"append to {partition.topic}-{partition.index}", str(error))
            _call_all(callbacks, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            operation = DelayedMarkers(partition, result, callbacks)
            if not operation.try_complete(False):
                self._purgatory.park(operation, [partition.produce_watch], ACKNOWLEDGEMENT_TIMEOUT_S)

    @staticmethod
    def _write_to_log_of(coordinator: CoordinatorRuntime[Any], index: int, marker: EndMarker, done: MarkerDone) -> None:
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


def _call_all(callbacks: Sequence[MarkerDone], code: ErrorCode) -> None:
    for done in callbacks:
        done(code)


class DelayedMarkers(DelayedOperation):
    """Appended markers that are not acknowledged yet."""

    __slots__ = ("_callbacks", "_leader_epoch", "_partition", "_result")

    def __init__(self, partition: Partition, result: AppendResult, callbacks: Sequence[MarkerDone]) -> None:
        super().__init__()
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._result = result
        self._callbacks = callbacks

    def try_complete(self, force: bool) -> bool:
        """Call back once the in-sync replicas have the markers, or this broker can no longer know."""
        partition = self._partition
        if not partition.is_leader or self._leader_epoch < partition.leader_since:
            _call_all(self._callbacks, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.acknowledged(self._result, True):
            enough = partition.enough_after_append
            _call_all(self._callbacks, ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        elif partition.offline:
            _call_all(self._callbacks, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            return False
        return True

    def expire(self) -> None:
        """The markers stay; the coordinator writes them again."""
        if not self.try_complete(False):
            _call_all(self._callbacks, ErrorCode.REQUEST_TIMED_OUT)

    def fail(self, error: Exception) -> None:
        """A defect: the coordinator retries."""
        _call_all(self._callbacks, ErrorCode.UNKNOWN_SERVER_ERROR)
